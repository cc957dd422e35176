"""`jaxtrade advise replay`: train a run again from its journal alone, and compare both runs: bits
and reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.openings import PREFIX
from jaxtrade.runs import rundir
from jaxtrade.runs.advice import SUMMARY, check_whole
from jaxtrade.runs.beginning import source_again
from jaxtrade.runs.train import run
from jaxtrade.storage import checkpoint, digests
from jaxtrade.storage.archives import read_arrays
from jaxtrade.text import show

# Compares two runs of the same training, as a run and its replay: last state bit by bit, report
# and summary.

EVALUATION = "evaluation"  # in a run's folder
_TEXTS = (".json", ".txt", ".csv")  # pictures are drawn from these
# Where and from what a run was made, how often its days were opened, and how long it took. These
# differ between a run and its replay.
_OWN = frozenset(
    (
        "provenance",
        "config_sha256",
        "compile_seconds",
        "steps_per_second",
        "recompiles",
        "warnings",
        "performance",
        "trials",
    )
)


def state_differences(one: Path, other: Path) -> list[str]:
    """Names of the arrays that differ in any bit between the two runs' last checkpoints.

    Raises ConfigError if a run has no checkpoint.
    """
    states = []
    for path in (one, other):
        saved = checkpoint.list_checkpoints(path / "checkpoints")
        if not saved:
            raise ConfigError(f"{path}: holds no checkpoint")
        states.append(read_arrays(saved[-1][1] / "state.npz"))
    one_state, other_state = states
    same = {
        name
        for name in one_state.keys() & other_state.keys()
        if (one_state[name].dtype, one_state[name].shape)
        == (other_state[name].dtype, other_state[name].shape)
        and one_state[name].tobytes() == other_state[name].tobytes()
    }
    return sorted((one_state.keys() | other_state.keys()) - same)


def report_differences(one: Path, other: Path) -> list[str]:
    """One line for each difference between what two runs say: `summary.json`, and the reports of
    each split that
    `other` has evaluated. Left out are pictures, times, and what names the run itself."""
    found = [*_json_differences(one, other, Path(SUMMARY))]
    for split in sorted(
        folder.name for folder in (other / EVALUATION).iterdir() if folder.is_dir()
    ):
        names = {
            file.relative_to(run)
            for run in (one, other)
            for file in (run / EVALUATION / split).rglob("*")
            if file.suffix in _TEXTS and file.name != digests.FILE
        }
        for name in sorted(names):
            found += _file_differences(one, other, name)
    return found


def _file_differences(one: Path, other: Path, name: Path) -> Iterator[str]:
    missing = [run for run in (one, other) if not (run / name).is_file()]
    if missing:
        yield f"{name}: missing in {missing[0]}"
    elif name.suffix == ".json":
        yield from _json_differences(one, other, name)
    else:
        lines = [
            [
                line
                for line in (run / name).read_text(encoding="utf-8").splitlines()
                if not line.startswith(PREFIX)
            ]
            for run in (one, other)
        ]
        pairs = zip(
            *(each + [""] * (max(map(len, lines)) - len(each)) for each in lines), strict=True
        )
        yield from (
            f"{name}, line {number}: {a!r} and {b!r}"
            for number, (a, b) in enumerate(pairs, 1)
            if a != b
        )


def _json_differences(one: Path, other: Path, name: Path) -> Iterator[str]:
    documents = [json.loads((run / name).read_text(encoding="utf-8")) for run in (one, other)]
    yield from (
        f"{name}, {key}: {a!r} and {b!r}" for key, a, b in _unequal(documents[0], documents[1], "")
    )


def _unequal(one: Any, other: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """(key, value, value) of each difference between two JSON values. Mappings are compared key by
    key.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted((one.keys() | other.keys()) - _OWN):
            yield from _unequal(one.get(name), other.get(name), f"{key}.{name}".removeprefix("."))
    elif one != other:
        yield key, one, other


_MOST_LINES = 20  # differences that are printed


def replay(path: Path, target: Path) -> int:
    """Train the run at `path` again into `target`, with the advice in its journal and in its
    evaluations, and print the differences.

    Returns 0, or 1 if the runs differ. Raises ConfigError (not a finished run with a journal) or
    JournalError (the journal is damaged or cut, or belongs to another run).
    """
    config, manifest = rundir.read_run(path)
    journal = path / JOURNAL
    if not journal.is_file():
        raise ConfigError(
            f"{path}: no {JOURNAL}: this run had no advisor (advisor.kind={config.advisor.kind}), so "
            "there is nothing to replay; train with --advisor"
        )
    if not (path / SUMMARY).is_file():
        raise ConfigError(
            f"{path}: not finished, so there is nothing to compare with; jaxtrade train --resume {path}"
        )
    check_whole(journal, read_journal(journal))
    # Both variables change bits on a CPU, so they are restored before JAX starts. `run` checks that
    # the bars are those of the journal.
    os.environ["NPROC"], os.environ["XLA_FLAGS"] = manifest["nproc"], manifest.get("xla_flags", "")
    values = config.model_dump(mode="json")
    values["advisor"] |= {"kind": f"replay:{journal.resolve()}", "options": {}}
    source = source_again(path, manifest["source"]) if manifest.get("source") else None
    run(make_config(values, f"{path}, replayed", stored=True), target, source)
    differ = [
        *(f"state, {name}" for name in state_differences(path, target)),
        *report_differences(path, target),
    ]
    said = "DIFFERS" if differ else "the same state, bit for bit, and the same report"
    shown = [f"  {line}" for line in differ[:_MOST_LINES]]
    if len(differ) > _MOST_LINES:
        shown.append(f"  and {len(differ) - _MOST_LINES} more differences")
    show("\n".join([f"replay of {path} in {target}: {said}", *shown]))
    return 1 if differ else 0
