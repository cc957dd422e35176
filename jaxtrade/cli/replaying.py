"""`jaxtrade advise replay`: train a run again from its journal alone, and compare both runs: bits
and reports.
"""

from __future__ import annotations

import os
from pathlib import Path

from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.beginning import source_again
from jaxtrade.runs.comparison import report_differences, state_differences
from jaxtrade.runs.recording import SUMMARY, check_whole
from jaxtrade.runs.train import run
from jaxtrade.text import show

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
