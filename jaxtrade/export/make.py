"""Export the policy of a finished run: its file, its card, and the checks of both."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.export import check_format
from jaxtrade.export.card import CARD, PAGE, card_of, evaluations, markdown
from jaxtrade.export.checks import compare, replay
from jaxtrade.export.graph import FILES, graph_of, read, write
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.setup import Setup
from jaxtrade.runs.stored_run import chosen_number, policy_path
from jaxtrade.text import json_text
from jaxtrade.training.population import Stack

SPLITS = ("test", "validation", "train", "all")


def export_policy(
    run: Any,
    format: str = "npz",
    out: Path | str | None = None,
    *,
    seed: int | None = None,
    agent: int | None = None,
    symbol: str | None = None,
    data: Path | None = None,
    evaluation: bool = True,
) -> Path:
    """Export a run's policy, and return the folder of the export.

    Args:
        run: folder of a run, or a run that `jaxtrade.run` or `open_run` returned.
        format: `npz` (NumPy), `onnx` or `stablehlo` (JAX); the last two need `jaxtrade[export]`.
        out: folder of the export; default: RUN/export/FORMAT. An earlier export is replaced.
        seed, agent: which policy, of a run with several.
        symbol: whose observation statistics are used, of a run with several.
        data: the run's own bars at another place.
        evaluation: False leaves out the check on trades, which needs the run's bars.

    Raises:
        ConfigError: the choice is not clear, a package is absent, or an export cannot carry
            the policy.
        DataError: the run's bars are gone.
        UnequalError: the export does not act as the policy; nothing is left of it.
    """
    check_format(format)
    path = Path(getattr(run, "path", run))
    config, _ = rundir.read_run(path)
    number, stack = chosen_number(config, seed, agent), Stack.of_run(config)
    setup = None
    if evaluation:
        try:
            setup, _ = open_run(path, data, advisor=False)
        except DataError as error:
            raise DataError(
                f"{error}; or leave the check on trades out (--no-evaluation, evaluation=False)"
            ) from None
    loaded = load_policy(policy_path(path, config, number))
    chosen = choose_symbol(loaded, symbol)
    loaded = loaded.for_symbol(chosen)
    words = [format, *([chosen] if len(loaded.symbols) > 1 else [])]
    folder = Path(out or stack.folder(path / "export" / "-".join(words), number))
    check_folder(folder)
    about = {split: stack.folder(path / "evaluation" / split, number) for split in SPLITS}
    days = None if setup is None else setup.dates("train").astype(str).tolist()
    graph = graph_of(loaded)
    card = card_of(format, path, config, loaded, graph, chosen) | {
        "training_days": days and [days[0], days[-1], len(days)],
        "evaluations": evaluations(about),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".jaxtrade-export-", dir=folder.parent))
    try:
        fill(new, format, graph, card, loaded, setup, number)
        if folder.exists():
            shutil.rmtree(folder)
        new.chmod(0o755)
        new.replace(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def choose_symbol(loaded: LoadedPolicy, symbol: str | None) -> str:
    """Return the symbol that was asked for, or the only one. Raises ConfigError."""
    if symbol is None and len(loaded.symbols) > 1:
        raise ConfigError(
            "this run has several symbols, and an export is for one of them; give symbol (--symbol) "
            + " or ".join(loaded.symbols)
        )
    return (symbol or loaded.symbols[0]).upper()


def check_folder(folder: Path) -> None:
    """Raise ConfigError for a folder that is no export, StorageError for one without rights."""
    rundir.check_place(folder.parent, f"out (--out) {folder}")
    if folder.exists() and not (folder / CARD).is_file():
        raise ConfigError(f"out (--out) {folder}: exists, and is no export; choose another folder")


def fill(
    new: Path,
    format: str,
    graph: Any,
    card: dict[str, Any],
    loaded: LoadedPolicy,
    setup: Setup | None,
    number: int,
) -> None:
    """Write an export into an empty folder, and check it. Raises UnequalError."""
    write(format, new, graph, card)
    card["weights_sha256"] = hashlib.sha256((new / FILES[format]).read_bytes()).hexdigest()
    (new / CARD).write_text(json_text(card), encoding="utf-8")  # `numpy_policy` reads it
    run, seen = read(format, new), np.zeros((0, graph.size), np.float32)
    card["checks"] = {"evaluation": None}
    if setup is not None:
        card["checks"]["evaluation"], seen = replay(
            setup, loaded, number, card["symbol"], run, format != "stablehlo"
        )
    card["checks"]["rows"] = compare(loaded, run, seen)
    (new / CARD).write_text(json_text(card), encoding="utf-8")
    (new / PAGE).write_text(markdown(card), encoding="utf-8")
