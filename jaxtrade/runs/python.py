"""`run` as Python calls it: a configuration by name, keys by keyword, data from memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from jaxtrade.config import Changes, RunConfig, changed_config, load_config
from jaxtrade.data.given import READING, bars_from, with_bars
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.source import load_source
from jaxtrade.runs.train import RunResult
from jaxtrade.runs.train import run as run_config

if TYPE_CHECKING:
    import pandas as pd

BARS = "bars"  # folder beside the runs, for bars that were given in memory


def run(
    config: RunConfig | str | Path = "quickstart",
    path: Path | str | None = None,
    *,
    data: pd.DataFrame | Bars | Path | str | Mapping[str, Any] | None = None,
    set: Changes = (),
    from_run: Path | str | None = None,
    **settings: Any,
) -> RunResult:
    """Train a policy, save it and evaluate it on the held-out sessions, as `jaxtrade train` does.

        result = jaxtrade.run("quickstart", total_timesteps=200_000, seed=3)
        result = jaxtrade.run(data="es.csv", market="ES", stamp="open", time_zone="UTC")
        print(result.table)

    Args:
        config: the name of a shipped configuration, a YAML file, or a configuration.
        path: the new run folder; default `runs/<market-task-utc-id>`.
        data: the bars: a file, a pandas frame, `Bars`, or a mapping of keys of the section `data`.
            Bars in memory are written to `bars/` beside the run folder, because a run must be able
            to read its data again.
        set: `["section.key=value", ...]`, or a mapping from dotted keys to values.
        from_run: the folder of a run whose policy this run begins with, as `jaxtrade train --from`
            does.
        settings: keys by name: `total_timesteps=50_000`, `market="ES"`, `network={"kind": "gru"}`,
            `account="apex_like_50k_2025"`. A name that several sections have needs its section.
    Raises:
        ConfigError, DataError: before anything is trained.
        DivergedError, PreemptedError, InterruptedRunError, StorageError: as `train`.
    """
    chosen = configured(config, data, set, settings)
    folder = None if path is None else Path(path)
    if folder is not None:
        rundir.check_new(folder)
    if data is not None and _in_memory(data):
        bars = data if isinstance(data, Bars) else bars_from(data, chosen)
        if isinstance(data, Bars):
            _check_keywords(data, settings)
        chosen = with_bars(chosen, bars, (Path("runs") if folder is None else folder.parent) / BARS)
    return run_config(chosen, folder, None if from_run is None else load_source(Path(from_run)))


def configured(
    config: RunConfig | str | Path, data: object, set: Changes, settings: Mapping[str, Any]
) -> RunConfig:
    """The configuration that `run` trains with such arguments. Raises ConfigError."""
    if data is not None:
        settings = {**settings, **({"source": "file"} if _in_memory(data) else {"data": data})}
    return (
        changed_config(config, set, **settings)
        if isinstance(config, RunConfig)
        else load_config(config, set, **settings)
    )


def _in_memory(data: object) -> TypeGuard[pd.DataFrame | Bars]:
    """Whether `data` holds bars itself. Raises ConfigError for a thing of another kind."""
    if isinstance(data, str | os.PathLike | Mapping):
        return False
    if isinstance(data, Bars) or (hasattr(data, "columns") and hasattr(data, "iloc")):
        return True
    raise ConfigError(
        f"data=<{type(data).__name__}>: expected a file, a pandas frame, Bars, or a dict of keys of the "
        "section 'data'"
    )


def _check_keywords(bars: Bars, settings: Mapping[str, Any]) -> None:
    """Raises ConfigError for a keyword that says how to read bars which are read already, or
    another market's name.
    """
    asked, symbol = settings.get("market"), bars.contract.symbol
    if asked is not None and str(asked).upper() != symbol:
        raise ConfigError(
            f"market={asked!r}: these bars are of {symbol}; drop market, or read the bars as {asked}"
        )
    for name in READING:
        if name in settings:
            raise ConfigError(
                f"{name}={settings[name]!r}: says how to read bars, and these are read already; drop it, "
                "or give it to load_bars or from_frame"
            )
