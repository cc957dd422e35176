"""What a command trains: a `RunPlan`, made once by every check that needs no JAX.

`runs.train.train` carries a plan out; whatever trains a run makes a plan first. Imports no heavy
library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.advisor.host.prompts import check_context
from jaxtrade.advisor.host.registry import PANEL, check_kind, members_of
from jaxtrade.config import DataConfig, RunConfig
from jaxtrade.config.accounts import check_account, check_quantity, resolve_account
from jaxtrade.config.load import SweepAgent, config_of
from jaxtrade.config.run import refuse_best
from jaxtrade.config.sweep import examples_of, require_no_walk, settings_of
from jaxtrade.data.contracts import contract_of, require_bundled
from jaxtrade.data.features.schema import table_columns
from jaxtrade.data.members import (
    bundled_dates,
    bundled_expiry,
    check_split,
    check_walk_length,
    date_range,
    member_configs,
    most_sessions,
    set_name,
    symbols_of,
    weekdays,
)
from jaxtrade.env.reward_presets import resolve_reward
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError
from jaxtrade.parts import find_homes
from jaxtrade.registry import SCRIPT
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import (
    FolderChoice,
    SweepGroup,
    announcement,
    check_search,
    groups_of,
    is_sweep,
    read_sweep,
    resumed_config,
)
from jaxtrade.runs.distributed import ALONE, ProcessGroup, check_config, find_joined
from jaxtrade.runs.memory import check_memory
from jaxtrade.storage.trackers import check_tracker
from jaxtrade.text import Log


@dataclass(frozen=True)
class RunPlan:
    """A run that has passed every check that needs no JAX.

    config: of the run, with all agents of a sweep.
    groups: the programs that it needs, most often one.
    path: its folder; None in a process that gets it from process 0.
    source: the run whose policy it begins with, or None.
    keeps: whether slots and actions must be those of the source (`--continue`).
    start: whether the run is new, goes on in its folder, or has finished.
    changes: what a run that goes on is given anew, as `key=value`.
    data: a file of its bars, instead of its own.
    processes: those that train it together.
    """

    config: RunConfig
    groups: tuple[SweepGroup, ...]
    path: Path | None
    source: Path | None = None
    keeps: bool = False
    start: FolderChoice = FolderChoice.NEW
    changes: tuple[str, ...] = ()
    data: Path | None = None
    processes: ProcessGroup = ALONE

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
        """Plan one program of a sweep, in a folder of its own: it goes on if it has begun."""
        if self.start is FolderChoice.CONTINUE and (path / "manifest.json").is_file():
            return plan_resumed(path, self.changes, self.data, self.processes)
        group = SweepGroup(config, tuple(range(config.agents)), {})
        return replace(self, config=config, groups=(group,), path=path, start=FolderChoice.NEW)

    @property
    def configs(self) -> list[RunConfig]:
        """The configuration of each program."""
        return [group.config for group in self.groups]

    def ask_models(self, log: Log) -> RunPlan:
        """Add the model of each advisor's server to the plan (`with_model`).

        Raises ConfigError where a server does not answer.
        """
        if not any(config.advisor.on for config in self.configs):
            return self
        config = with_model(self.config, log)
        groups = tuple(
            group._replace(config=with_model(group.config, log)) for group in groups_of(config)
        )
        return replace(self, config=config, groups=groups)


def plan_new(
    config: RunConfig,
    path: Path | None = None,
    source: Path | None = None,
    *,
    keeps: bool = False,
    processes: ProcessGroup | None = None,
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
    config = with_own_modules(config)
    check(config)
    processes = find_joined() if processes is None else processes
    check_config(config, processes)
    groups = groups_of(config)
    if source is not None:
        _check_source(config, groups, source)
    else:
        for group in groups:
            refuse_source_settings(group.config)
    check_memory([group.config for group in groups])
    if processes.process_id == 0:
        kind = "optuna" if config.sweep.optuna else "sweep" if len(groups) > 1 else config.env.task
        path = path or rundir.new_run_path(set_name(symbols_of(config)), kind)
        rundir.check_new(path)
    return RunPlan(config, groups, path, source, keeps, processes=processes)


def with_own_modules(config: RunConfig) -> RunConfig:
    """Add to `imports` the modules of the user's parts that the configuration names.

    A Python program may have imported them itself; whoever reads the run has to import them too.
    """
    homes = find_homes(config.model_dump(mode="json")).values()
    more = dict.fromkeys(home for home in homes if home not in (SCRIPT, *config.imports))
    return config.replace(imports=(*config.imports, *more))


def plan_resumed(
    path: Path,
    changes: Sequence[str] = (),
    data: Path | None = None,
    processes: ProcessGroup | None = None,
) -> RunPlan:
    """Plan to go on with the run in a folder.

    changes, data: as in `RunPlan`.

    Raises ConfigError: not a run, a walk-forward, or a change that a resumed run refuses.
    """
    sweep = is_sweep(path)
    config = resumed_config(read_sweep(path) if sweep else rundir.read_run(path)[0], changes)
    require_no_walk(config)
    if sweep and config.sweep.optuna:
        check_search(config)
    processes = find_joined() if processes is None else processes
    check_config(config, processes)
    return RunPlan(
        config,
        groups_of(config) if sweep else (SweepGroup(config, (0,), {}),),
        path,
        start=FolderChoice.CONTINUE,
        changes=tuple(changes),
        data=data,
        processes=processes,
    )


def _check_source(config: RunConfig, groups: Sequence[SweepGroup], source: Path) -> None:
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


def refuse_source_settings(config: RunConfig) -> None:
    """Raise ConfigError if a run without a source has settings that need one."""
    if config.network.adapter or getattr(config.learner, "adapter_freeze", 0.0):
        key = "network.adapter" if config.network.adapter else f"{config.algorithm}.adapter_freeze"
        raise ConfigError(
            f"{key}: an adapter stands between another run's network and new slots; name that run "
            "(--from RUN) and set transfer.mode=adapter, or leave it out"
        )


# Everything about a run that can be checked before JAX is loaded: names, files, contradictions,
# sessions. All faults are reported at once, one line each.

Check = Callable[[], object]


def check_names(config: RunConfig, own_files: bool = False) -> None:
    """Check that market, account preset, reward, features, advisor and files exist.

    own_files: whether the command reads its own files instead of the bars that the
        configuration names.

    Raises ConfigError for unknown names, DataError if a file is missing, ConfigFaultsError for
    several of them.
    """
    run_all(_names(config, own_files))


def check(config: RunConfig, training: bool = True) -> None:
    """Check a new run: its names, that its rules agree, and that its sessions suffice.

    Each setting of a sweep is checked too.

    training: whether the account and the sessions matter, as they do to all but a look at the data.

    Raises as `check_names`.
    """
    _check_one(config, training)
    sweep = config.sweep
    settings = (
        ()
        if not sweep.on
        else examples_of(sweep)
        if sweep.optuna
        else settings_of(sweep, config.seed)
    )
    agents = [
        SweepAgent(number, config.seed, number, setting) for number, setting in enumerate(settings)
    ]
    told = set[str]()
    run_all([lambda agent=agent: _check_setting(config, agent, training, told) for agent in agents])
    if sweep.optuna and training:
        check_search(config)


def _check_one(config: RunConfig, training: bool) -> None:
    run_all([*_names(config, False), *(_rules(config) if training else [])])


def _check_setting(config: RunConfig, agent: SweepAgent, training: bool, told: set[str]) -> None:
    """Check a setting of a sweep as a run of its own.

    told: the faults of settings before it, which are not reported again: most are those of a key
        that all settings have.
    """
    try:
        _check_one(config_of(config, agent), training)
    except (ConfigError, DataError) as error:
        where = f"sweep, setting {agent.setting} ({agent.text}): "
        fault = str(error).removeprefix(where)
        if fault not in told:
            told.add(fault)
            raise ConfigError(where + fault) from None


def _names(config: RunConfig, own_files: bool) -> list[Check]:
    checks: list[Check] = [
        lambda: resolve_account(config.account),
        lambda: resolve_reward(config.reward),
        lambda: table_columns(config.env.features),
        lambda: _check_advisor(config),
        lambda: check_context(config.advisor),
        lambda: member_configs(config),
        lambda: check_tracker(config.train.tracker, config.train.tracker_online),
    ]
    return checks + [
        check for member in _members(config) for check in _member_names(member, own_files)
    ]


def _members(config: RunConfig) -> tuple[RunConfig, ...]:
    """Return the configurations of the symbols.

    There are none if one of them is at fault, which another check reports.
    """
    try:
        return member_configs(config)
    except (ConfigError, DataError):
        return ()


def _member_names(config: RunConfig, own_files: bool) -> list[Check]:
    data = config.data
    named = (
        ("--data", "data.file", data.file if data.source == "file" else None),
        ("--seconds", "data.seconds", data.seconds),
        ("--quotes", "data.quotes", data.quotes),
        ("--set", "data.conversion", data.conversion),
    )
    checks: list[Check] = [lambda: _check_market(config, own_files)]
    return checks + [
        lambda flag=flag, key=key, path=path: _check_file(flag, key, path)
        for flag, key, path in named
        if path is not None
    ]


def _check_advisor(config: RunConfig) -> None:
    for number, member in enumerate(members_of(config)):
        kind = member.advisor.kind
        shown = (
            f"advisor.panel.{number} = {kind[:60]}"
            if config.advisor.kind == PANEL
            else (f"advisor.kind = {kind[:60]} (--advisor)")
        )
        try:
            check_kind(kind, member.advisor.options)
        except ConfigError as error:  # it names the part of the kind that is wrong; where the kind stands is known here
            text = str(error)
            for own in ("advisor ", f"advisor.kind = {kind}: ", f"{kind}: ", f"{kind!r}: "):
                text = text.removeprefix(own)
            raise ConfigError(f"{shown}: {text}") from None


def _check_market(config: RunConfig, own_files: bool) -> None:
    symbol = contract_of(config.data).symbol
    if config.data.source == "bundled" and not own_files:
        require_bundled(symbol)


def _check_file(flag: str, key: str, path: str) -> None:
    if not Path(path).exists():
        raise DataError(f"{path}: there is no such file; check {key} ({flag})")
    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; name one file in {key} ({flag})")


def _rules(config: RunConfig) -> list[Check]:
    members = _members(config)
    checks: list[Check] = [lambda: check_account(config.account), lambda: _check_length(config)]
    for member in members:
        checks += [
            lambda member=member: _check_quantity(member),
            lambda member=member: _check_sessions(member),
        ]
    return checks + ([lambda: _check_shared(members, config)] if len(members) > 1 else [])


def _check_length(config: RunConfig) -> None:
    """Raise ConfigError if DQN ends before it learns.

    The length for `rollout.num_envs: auto` is not known yet.
    """
    rollout = config.rollout
    if config.algorithm == "dqn" and not rollout.auto:
        per_update = rollout.num_envs * rollout.num_steps
        config.dqn.check_length(
            config.train.chunks(per_update) * config.train.chunk_updates * per_update
        )


def _check_quantity(config: RunConfig) -> None:
    contract, preset = contract_of(config.data), resolve_account(config.account)
    check_quantity(
        config.env.quantity, preset, config.account.preset, contract.symbol, contract.micro
    )


def _check_sessions(config: RunConfig) -> None:
    data, symbol = config.data, contract_of(config.data).symbol
    most = most_sessions(data, symbol)
    if most == 0:
        given = [
            f"data.{name} = {day}"
            for name, day in (("start", data.start), ("end", data.end))
            if day
        ]
        where = "between them" if len(given) == 2 else "after it" if data.start else "before it"
        raise ConfigError(
            f"{', '.join(given)}: no session lies {where}{_bundled_range(data, symbol)}; choose others"
        )
    if not config.walk.on:
        refuse_best(config, most)
    if most is not None and config.walk.on:
        check_walk_length(most, config.walk, config.episode.sessions)
    elif most is not None:
        check_split(most, config.split, at_most=True)


def _check_shared(members: Sequence[RunConfig], config: RunConfig) -> None:
    """Raise ConfigError if the dates that all symbols can have are too few for the splits."""
    ranges = [date_range(member.data, contract_of(member.data).symbol) for member in members]
    known = [dates for dates in ranges if dates is not None]
    if not known:
        return
    first, last = max(first for first, _ in known), min(last for _, last in known)
    if first > last:
        listed = ", ".join(
            f"{member.data.market} {dates[0]}..{dates[1]}"
            for member, dates in zip(members, ranges, strict=True)
            if dates is not None
        )
        raise ConfigError(
            f"data.markets: no trade date is common to all symbols ({listed}), and splits are made of "
            "such dates; choose other symbols, data.start or data.end"
        )
    check_split(
        weekdays(date.fromisoformat(first), date.fromisoformat(last)), config.split, at_most=True
    )


def _bundled_range(data: DataConfig, symbol: str) -> str:
    """Format the dates of the bundled bars that `data` selects, as part of a message.

    Nothing where all bars are generated.
    """
    if data.source != "bundled" and data.synthetic != "phase_randomised":
        return ""
    (first, last), expiry = bundled_dates(symbol, data), bundled_expiry(symbol, data)
    those = f"whose contract {expiry} is" if expiry else "which are"
    return f" in the bundled bars of {symbol}, {those} of {first}..{last}"


def run_all(checks: Sequence[Check]) -> list[Any]:
    """Run all checks, and return their results.

    Raises the error of the one that fails, or ConfigFaultsError with the lines of all that do.
    """
    errors, results = list[ConfigError | DataError](), list[Any]()
    for each in checks:
        try:
            results.append(each())
        except (ConfigError, DataError) as error:
            errors.append(error)
    lines = dict.fromkeys(
        ("", str(error)) for error in errors
    )  # an unknown market fails several checks alike
    if len(lines) == 1:
        raise errors[0]
    if lines:
        raise ConfigFaultsError(list(lines))
    return results
