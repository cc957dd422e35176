"""Export the policy of a finished run: its file, its card, and the checks of both."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import NetworkConfig
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.export import check_format, numpy_policy
from jaxtrade.export.card import CARD, PAGE, card_of, describe_checks, markdown
from jaxtrade.export.checks import compare, replay
from jaxtrade.export.graph import read, require_known, weights_of, write
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.stored_run import chosen_number, policy_path
from jaxtrade.storage import digests
from jaxtrade.text import json_text
from jaxtrade.training.population import Stack


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
        seed: which policy, of a run with several.
        agent: the same, of a sweep.
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
    try:
        setup = open_run(path, data, advisor=False)[0] if evaluation else None
    except DataError as error:
        leave_out = "or leave the check on trades out (--no-evaluation, evaluation=False)"
        raise DataError(f"{error}; {leave_out}") from None
    loaded = load_policy(policy_path(path, config, number))
    network = NetworkConfig.model_validate(loaded.schema["network"])  # an old run lacks keys
    loaded.schema["network"] = network.model_dump(mode="json")
    require_known(loaded)
    symbols, words = loaded.symbols, [format]
    if len(symbols) > 1:
        if symbol is None:
            raise ConfigError(
                "this run has several symbols, and an export is for one; give symbol (--symbol) "
                + " or ".join(symbols)
            )
        words.append(symbol.upper())
    chosen = (symbol or symbols[0]).upper()
    card = card_of(format, path.resolve().name, config, loaded, chosen)
    loaded = loaded.for_symbol(chosen)
    folder = Path(out or stack.folder(path / "export" / "-".join(words), number))
    if folder.exists() and not (folder / CARD).is_file():
        raise ConfigError(f"out (--out) {folder}: exists, and is no export; choose another folder")
    rundir.check_place(folder.parent, f"out (--out) {folder}")
    report = stack.folder(path / "evaluation" / "test", number) / "evaluation.json"
    card["training_days"] = setup and setup.dates("train").astype(str).tolist()
    card["evaluation"] = digests.read_json(report) if report.is_file() else None
    if card["evaluation"]:
        card["evaluation"] = {key: card["evaluation"].get(key) for key in ("labels", "verdict")}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".jaxtrade-", dir=folder.parent) as temporary:
        new = Path(temporary) / "export"
        new.mkdir()
        file = new / f"policy.{format}"
        write(file, weights_of(loaded), card)
        card["weights_sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        (new / CARD).write_text(json_text(card), encoding="utf-8")  # `numpy_policy` reads it
        act, on_host, seen = (
            read(file),
            format != "stablehlo",
            np.zeros((0, loaded.schema["observation"]["size"])),
        )
        checks: dict[str, Any] = {"evaluation": None}
        if setup is not None:
            checks["evaluation"], seen = replay(setup, loaded, number, chosen, act, on_host)
        checks["rows"] = compare(loaded, act, seen)
        card["checks"] = checks
        (new / CARD).write_text(json_text(card), encoding="utf-8")
        (new / PAGE).write_text(markdown(card), encoding="utf-8")
        if format == "npz":
            source = Path(numpy_policy.__file__)
            shutil.copyfile(source, new / source.name)
        shutil.rmtree(folder, ignore_errors=True)
        new.replace(folder)
    return folder


def describe(folder: Path) -> str:
    """Return what a command prints of an export."""
    checks = digests.read_json(folder / CARD)["checks"]
    return f"{describe_checks(checks)}\n{folder}: read {PAGE}"
