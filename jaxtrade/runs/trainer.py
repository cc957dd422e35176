"""`Trainer`: one run as an object for notebooks.

It has `train`, `evaluate`, `performance_info` and `policy`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from jaxtrade.config import Changes, RunConfig, changed_config, load_config
from jaxtrade.data.bars import Bars
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.data.sources import READING, bars_from, with_bars
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.policy import LoadedPolicy
from jaxtrade.formatting import duration
from jaxtrade.runs import rundir
from jaxtrade.runs.auto_envs import measure_update, set_num_envs
from jaxtrade.runs.evaluate import Request, evaluate_run
from jaxtrade.runs.evaluate import open_run as open_setup
from jaxtrade.runs.job import UNITS
from jaxtrade.runs.memory import size
from jaxtrade.runs.new_bars import NewBars
from jaxtrade.runs.setup import with_learner_of
from jaxtrade.runs.stored_run import StoredEvaluation, StoredRun, open_run
from jaxtrade.runs.train import RunResult, resume
from jaxtrade.runs.train import run as run_config
from jaxtrade.storage.programs import use_cache
from jaxtrade.text import short_repr

if TYPE_CHECKING:
    import pandas as pd


# `run` as Python calls it: a configuration by name, keys by keyword, data from memory.

BARS = "bars"  # folder beside the runs, for bars that were given in memory


def run(
    config: RunConfig | str | Path = "quickstart",
    path: Path | str | None = None,
    *,
    data: pd.DataFrame | Bars | Path | str | Mapping[str, Any] | None = None,
    set: Changes = (),
    from_run: Path | str | None = None,
    name: str | None = None,
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
        name: of the new folder, `runs/NAME`, instead of `path`.
        settings: keys by name: `total_timesteps=50_000`, `market="ES"`, `network={"kind": "gru"}`,
            `account="apex_like_50k_2025"`. A name that several sections have needs its section.

    Raises:
        ConfigError, DataError: before anything is trained.
        DivergedError, PreemptedError, InterruptedRunError, StorageError: as `train`.
    """
    chosen = resolve_config(config, data, set, settings)
    _keep_programs()
    folder = _find_folder(path, name)
    if folder is not None:
        rundir.check_new(folder)
    if data is not None and _in_memory(data):
        bars = data if isinstance(data, Bars) else bars_from(data, chosen)
        if isinstance(data, Bars):
            _check_keywords(data, settings)
        chosen = with_bars(chosen, bars, (Path("runs") if folder is None else folder.parent) / BARS)
    return run_config(chosen, folder, None if from_run is None else Path(from_run))


def _keep_programs() -> None:
    """Keep compiled programs where the commands keep them, so that a run need not compile again.

    Warns if that is impossible. JAX decides about its cache when it first compiles: in a process
    that has compiled something before, nothing changes.
    """
    if problem := use_cache():
        warnings.warn(problem, stacklevel=3)


def _find_folder(path: Path | str | None, name: str | None) -> Path | None:
    """Return the folder that the arguments of `run` name; None: none. Raises ConfigError."""
    if name is None:
        return None if path is None else Path(path)
    if path is not None:
        raise ConfigError(f"name={name!r} and path={str(path)!r}: both name the folder; give one")
    return rundir.named_folder(name, "name=", "path=")


def resolve_config(
    config: RunConfig | str | Path, data: object, set: Changes, settings: Mapping[str, Any]
) -> RunConfig:
    """Resolve the configuration that `run` trains with such arguments. Raises ConfigError."""
    if data is not None:
        settings = {**settings, **({"source": "file"} if _in_memory(data) else {"data": data})}
    return (
        changed_config(config, set, **settings)
        if isinstance(config, RunConfig)
        else load_config(config, set, **settings)
    )


def _in_memory(data: object) -> TypeGuard[pd.DataFrame | Bars]:
    """Return whether `data` holds bars itself. Raises ConfigError for a thing of another kind."""
    if isinstance(data, str | os.PathLike | Mapping):
        return False
    if isinstance(data, Bars) or (hasattr(data, "columns") and hasattr(data, "iloc")):
        return True
    raise ConfigError(
        f"data=<{type(data).__name__}>: expected a file, a pandas frame, Bars, or a dict of keys of the "
        "section 'data'"
    )


def _check_keywords(bars: Bars, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a keyword about reading bars that are read already.

    It does so for another market's name too.
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


def performance_info(
    run: RunResult | StoredRun | Path | str, against_one: bool = False
) -> dict[str, Any]:
    """Return what a finished run measured of itself, and under `units` what each number is.

    None: not measured.

        jaxtrade.performance_info(result)["steps_per_second"]

    Args:
        run: the result of a run, an opened run, or its folder.
        against_one: also time one update of the run and one with a single environment, here and
            now. It takes two compilations, and the ratio is kept in the run's `summary.json`.

    Raises:
        ConfigError: not a run, or one that has not finished.
        DataError: as `open_run` of a run whose bars are gone.
    """
    path = Path(run) if isinstance(run, str | Path) else run.path
    stored = open_run(path)
    if (summary := stored.summary) is None:
        raise ConfigError(
            f"{path}: the run has not finished, so it has no figures of itself; let it finish: jaxtrade "
            f"train --resume {path}"
        )
    if against_one:
        figures = dict(summary.get("performance", {})) | {"times_one_env": _times_one(path)}
        summary = summary | {"performance": figures}
        rundir.write_json(path / "summary.json", summary)
    rollout = stored.config.rollout
    own = {
        name: summary.get(name) for name in ("steps_per_second", "compile_seconds")
    }  # runs of earlier versions
    own |= {
        "num_envs": rollout.num_envs,
        "num_steps": rollout.num_steps,
        "agents": stored.config.agents,
        "device": stored.manifest.get("device", {}).get("kind"),
        "devices": stored.manifest.get("device", {}).get("count"),
    }
    own |= summary.get("performance", {})
    return {name: own.get(name) for name in UNITS} | {"units": dict(UNITS)}


def _times_one(path: Path) -> float:
    setup, _ = open_setup(path)
    if setup.fusion is not None:
        raise ConfigError(
            f"{path}: an update with an advisor waits for its answers, so one environment cannot be "
            "timed alone; leave against_one (--perf-one) out"
        )
    one, own = (
        measure_update(each, None).steps_per_second
        for each in (with_learner_of(setup, set_num_envs(setup.config, 1)), setup)
    )
    return own / one


def lines(info: Mapping[str, Any]) -> Iterator[str]:
    """Format the metrics as lines for people. What was not measured is left out."""
    yield "measured in this run:"
    for name, unit in UNITS.items():
        if info[name] is not None:
            yield f"  {name.replace('_', ' '):<20} {_format_value(name, info[name]):<24} {unit}"


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{each} {duration(seconds)}" for each, seconds in value.items())
    if name.endswith("_bytes"):
        return size(value)
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 100
        else (f"{value:,.0f}" if isinstance(value, int | float) else str(value))
    )


class Trainer:
    """A run to be trained, evaluated and looked at.

        trainer = jaxtrade.Trainer("quickstart", total_timesteps=40_960, num_envs="auto")
        trainer.train()
        print(trainer.evaluate().table, trainer.performance_info()["steps_per_second"])

    It is `jaxtrade.run` in steps: the same arguments, the same run folder. Its configuration is
    read and checked at once, and nothing is trained before `train`.
    """

    def __init__(
        self,
        config: RunConfig | str | Path = "quickstart",
        path: Path | str | None = None,
        *,
        data: pd.DataFrame | Bars | Path | str | Mapping[str, Any] | None = None,
        set: Changes = (),
        from_run: Path | str | None = None,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        """Arguments as `jaxtrade.run`. Raises ConfigError."""
        self.config = resolve_config(config, data, set, settings)
        self._given = {"data": data, "set": set, "from_run": from_run} | settings
        self._path = self._new = _find_folder(path, name)
        self._config = config
        self._trained = False

    def __repr__(self) -> str:
        """Say what is trained, and where it is once it is trained."""
        config = self.config
        done = f"trained: {self._path}" if self._trained else "not trained yet"
        return short_repr(
            "Trainer",
            set_name(symbols_of(config)),
            f"task {config.env.task}",
            config.algorithm,
            f"{config.train.total_timesteps:,} steps",
            done,
        )

    @property
    def path(self) -> Path:
        """The run folder. Raises ConfigError before `train`."""
        if not self._trained or self._path is None:
            raise ConfigError(
                "this Trainer has trained nothing yet; call train() first, or open a finished run: "
                "jaxtrade.open_run(PATH)"
            )
        return self._path

    @property
    def run(self) -> StoredRun:
        """The run, read from its folder. Raises ConfigError before `train`."""
        return open_run(self.path)

    def train(self) -> RunResult:
        """Train a new run, save its policy and evaluate it.

        A run that `control.wall_clock` has stopped goes on.

        Raises what `jaxtrade.run` raises.
        """
        if self._trained:
            _keep_programs()
            return resume(self.path)
        result = run(self._config, self._new, **self._given)
        self._trained, self._path = True, result.path
        return result

    def evaluate(
        self,
        split: str = "test",
        *,
        on: Path | str | None = None,
        start: str | None = None,
        end: str | None = None,
        allow_overlap: bool = False,
        set: Sequence[str] = (),
    ) -> StoredEvaluation:
        """Evaluate the policy on a split: `test`, `validation`, `train` or `all`.

        The evaluation is read if the run has it already.

        Args:
            on: new bars instead (`jaxtrade evaluate --on`): a file, or of several symbols a folder.
                Days that the run was trained or chosen on are left out.
            start: the first trade date of them, YYYY-MM-DD.
            end: the last one.
            allow_overlap: keep those days, and label the result in sample.
            set: how the file is read, such as ["data.market=GBPUSD"].

        Of several seeds it is the first one's. Raises ConfigError before `train`, and for an
        unknown or empty split; DataError for new bars that do not fit, or of which no day is left.
        """
        bars = None
        if on is not None:
            bars = NewBars(Path(on), start, end, allow_overlap, set)
            split = bars.split
        if split not in _splits(self.run):
            evaluate_run(Request(self.path, split, on=bars))
        return _splits(self.run)[split]

    def performance_info(self, against_one: bool = False) -> dict[str, Any]:
        """Return what the run measured of itself: `jaxtrade.performance_info`."""
        return performance_info(self.path, against_one)

    @property
    def policy(self) -> LoadedPolicy:
        """The trained policy (of the first seed), ready to act.

        Raises ConfigError before `train`.
        """
        return self.run.policy


def _splits(stored: StoredRun) -> dict[str, StoredEvaluation]:
    """Map each split to its evaluation, of the first seed."""
    found: dict[str, StoredEvaluation] = {}
    for name, evaluation in stored.evaluations.items():
        found.setdefault(name.partition("/")[0], evaluation)
    return found
