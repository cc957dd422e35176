"""`jaxtrade advise replay`: train a run again from its journal alone, and compare both runs bit by bit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.beginning import source_again
from jaxtrade.runs.train import run
from jaxtrade.storage import checkpoint


def replay(path: Path, target: Path) -> int:
    """Train the run at `path` again into `target`, with the advice in its journal, and print the differences.

    Returns 0, or 1 if the runs differ. Raises ConfigError (not a finished run with a journal) or JournalError (the
    journal is damaged or belongs to another run).
    """
    config, manifest = rundir.read_run(path)
    journal = path / JOURNAL
    if not journal.is_file():
        raise ConfigError(f"{path}: no {JOURNAL}: this run had no advisor (advisor.kind={config.advisor.kind}), so "
                          "there is nothing to replay; train with --advisor")
    if not (path / "summary.json").is_file():
        raise ConfigError(f"{path}: not finished, so there is nothing to compare with; jaxtrade train --resume {path}")
    # Both variables change bits on a CPU, so they are restored before JAX starts. `run` checks that the bars are those
    # of the journal.
    os.environ["NPROC"], os.environ["XLA_FLAGS"] = manifest["nproc"], manifest.get("xla_flags", "")
    values = config.model_dump(mode="json")
    values["advisor"] |= {"kind": f"replay:{journal.resolve()}", "options": {}}
    source = source_again(path, manifest["source"]) if manifest.get("source") else None
    run(make_config(values, f"{path}, replayed"), target, source)
    differ = differences(path, target)
    print("\n".join([f"replay of {path} in {target}: {'DIFFERS' if differ else 'the same state, bit for bit'}",
                     *(f"  {name}" for name in differ)]))
    return 1 if differ else 0


def differences(one: Path, other: Path) -> list[str]:
    """Names of the arrays that differ in any bit between the two runs' last checkpoints.

    Raises ConfigError if a run has no checkpoint.
    """
    states = []
    for path in (one, other):
        saved = checkpoint.list_checkpoints(path / "checkpoints")
        if not saved:
            raise ConfigError(f"{path}: holds no checkpoint")
        with np.load(saved[-1][1] / "state.npz", allow_pickle=False) as found:
            states.append({name: found[name] for name in found.files})
    one_state, other_state = states
    same = {name for name in one_state.keys() & other_state.keys()
            if (one_state[name].dtype, one_state[name].shape) == (other_state[name].dtype, other_state[name].shape)
            and one_state[name].tobytes() == other_state[name].tobytes()}
    return sorted((one_state.keys() | other_state.keys()) - same)
