"""What a command trains: a `RunPlan`, made once by every check that needs no JAX.

`runs.train.train` carries a plan out; whatever trains a run makes a plan first. Imports no heavy
library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config import RunConfig
from jaxtrade.config.sweep import require_no_walk
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import (
    Group,
    Start,
    announcement,
    check_search,
    groups_of,
    is_sweep,
    read_sweep,
    resumed_config,
)
from jaxtrade.runs.preflight import check, check_memory
from jaxtrade.runs.processes import ALONE, Layout, check_config, joined
from jaxtrade.text import Tell


@dataclass(frozen=True)
class RunPlan:
    """A run that has passed every check that needs no JAX.

    config: of the run, with all agents of a sweep. groups: the programs that it needs, most often
        one. path: its folder; None in a process that process 0 tells it.
    source: the run whose policy it begins with, or None. keeps: whether slots and actions must be
        those of the source (`--continue`).
    start: whether the run is new, goes on in its folder, or has finished. changes: what a run that
        goes on is given anew, as `key=value`. data: a file of its bars, instead of its own.
    processes: those that train it together.
    """

    config: RunConfig
    groups: tuple[Group, ...]
    path: Path | None
    source: Path | None = None
    keeps: bool = False
    start: Start = Start.NEW
    changes: tuple[str, ...] = ()
    data: Path | None = None
    processes: Layout = ALONE

    @property
    def folder(self) -> Path:
        """Its folder, in the process that knows it."""
        assert self.path is not None
        return self.path

    @property
    def is_search(self) -> bool:
        """Whether Optuna proposes the settings of its agents."""
        return bool(self.config.sweep.optuna)

    @property
    def is_sweep(self) -> bool:
        """Whether it needs several programs, or a search of several trainings."""
        return self.is_search or len(self.groups) > 1

    def of_program(self, config: RunConfig, path: Path) -> RunPlan:
        """The plan of one program of a sweep, in a folder of its own: it goes on if it has begun."""
        if self.start is Start.CONTINUE and (path / "manifest.json").is_file():
            return plan_resumed(path, self.changes, self.data, self.processes)
        group = Group(config, tuple(range(config.agents)), {})
        return replace(self, config=config, groups=(group,), path=path, start=Start.NEW)

    @property
    def configs(self) -> list[RunConfig]:
        """The configuration of each program."""
        return [group.config for group in self.groups]

    def ask_models(self, tell: Tell) -> RunPlan:
        """The plan with the model of each advisor's server (`with_model`). Raises ConfigError where
        a server does not answer.
        """
        if not any(config.advisor.on for config in self.configs):
            return self
        config = with_model(self.config, tell)
        groups = tuple(
            group._replace(config=with_model(group.config, tell)) for group in groups_of(config)
        )
        return replace(self, config=config, groups=groups)


def plan_new(
    config: RunConfig,
    path: Path | None = None,
    source: Path | None = None,
    *,
    keeps: bool = False,
    processes: Layout | None = None,
) -> RunPlan:
    """Plan a new run. Nothing is written.

    Args:
        path: its folder; default `runs/<market-task-utc-id>`.
        source, keeps: as in `RunPlan`.
        processes: default: those that this one has joined already.
    Raises:
        ConfigError, DataError: the configuration, the folder or the source has a fault.
        StorageError: the folder cannot be written.
    """
    require_no_walk(config)
    check(config)
    processes = joined() if processes is None else processes
    check_config(config, processes)
    groups = groups_of(config)
    if source is not None:
        _check_source(config, groups, source)
    else:
        for group in groups:
            check_alone(group.config)
    check_memory([group.config for group in groups])
    if processes.process_id == 0:
        kind = "optuna" if config.sweep.optuna else "sweep" if len(groups) > 1 else config.env.task
        path = path or rundir.new_run_path(set_name(symbols_of(config)), kind)
        rundir.check_new(path)
    return RunPlan(config, groups, path, source, keeps, processes=processes)


def plan_resumed(
    path: Path,
    changes: Sequence[str] = (),
    data: Path | None = None,
    processes: Layout | None = None,
) -> RunPlan:
    """Plan to go on with the run in a folder. changes, data: as in `RunPlan`.

    Raises ConfigError: not a run, a walk-forward, or a change that a resumed run refuses.
    """
    sweep = is_sweep(path)
    config = resumed_config(read_sweep(path) if sweep else rundir.read_run(path)[0], changes)
    require_no_walk(config)
    if sweep and config.sweep.optuna:
        check_search(config)
    processes = joined() if processes is None else processes
    check_config(config, processes)
    return RunPlan(
        config,
        groups_of(config) if sweep else (Group(config, (0,), {}),),
        path,
        start=Start.CONTINUE,
        changes=tuple(changes),
        data=data,
        processes=processes,
    )


def _check_source(config: RunConfig, groups: Sequence[Group], source: Path) -> None:
    if config.sweep.optuna:
        raise ConfigError(
            "sweep.optuna (--optuna): a search trains afresh; leave the source run out (--from, "
            "--continue)"
        )
    rundir.read_run(source)
    if len(groups) > 1:
        raise ConfigError(
            f"sweep: {announcement(groups)}, and one of them alone can begin from another run: sweep "
            "other keys, or leave the source run out (--from, --continue)"
        )


def check_alone(config: RunConfig) -> None:
    """Raises ConfigError if a run without a source has settings that need one."""
    if config.network.adapter or getattr(config.learner, "adapter_freeze", 0.0):
        key = "network.adapter" if config.network.adapter else f"{config.algorithm}.adapter_freeze"
        raise ConfigError(
            f"{key}: an adapter stands between another run's network and new slots; name that run "
            "(--from RUN) and set transfer.mode=adapter, or leave it out"
        )
