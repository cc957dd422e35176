"""Build the parts of a run before anything is written.

These are market, splits, environment, learner, advice, the agents of a sweep or a walk-forward, the
episode monitor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.advisor.table import empty_table
from jaxtrade.config import PLACES, RunConfig, SplitConfig
from jaxtrade.config.learners import tunable_floats
from jaxtrade.config.load import SweepAgent, agents_of, config_of
from jaxtrade.config.run import (
    count_evaluations,
    refuse_best,
    scores_by_default,
    split_note,
    with_control,
    with_split,
)
from jaxtrade.config.sweep import MOST_AGENTS
from jaxtrade.data.market import Market, Markets
from jaxtrade.data.markets import load_markets
from jaxtrade.data.members import member_configs
from jaxtrade.data.splits import (
    Fold,
    count_sessions,
    decision_count,
    folds_of,
    sessions_of,
    split_sessions,
)
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.monitor import add_monitor, summarise
from jaxtrade.env.params import make_env, make_params, make_stages
from jaxtrade.env.shared import crowding, trained_env, with_impact
from jaxtrade.env.state import EndReason, EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.padding import for_member, members_of
from jaxtrade.evaluation.record import EvaluationSteps, decision_bars, longest
from jaxtrade.rl.advice import Fusion, make_fusion
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.sharding import MeshDevices, mesh_of, plan_mesh
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import part_of
from jaxtrade.runs.advice import view_of
from jaxtrade.runs.advice_evaluation import ShownAdvice, load_split_advice
from jaxtrade.runs.agents import RULES, announcement, groups_of
from jaxtrade.runs.memory import device_count
from jaxtrade.runs.xla_settings import check_strict
from jaxtrade.storage.monitor import LOST, MONITOR, MonitorSink
from jaxtrade.storage.sinks import Names
from jaxtrade.text import Log
from jaxtrade.training.loop import RunLength, plan_run
from jaxtrade.training.population import ONE_DEVICE, Axes, RunDevices, Stack
from jaxtrade.types import Learner, LoopState, PyTree, Row, SessionSet, Summary, Warn

Chooses = Callable[[Markets], dict[str, SessionSet]]

# The episode monitor of a run: what its learner reports, its file, and a warning when rows are
# lost.


def market_symbols(market: Markets) -> tuple[str, ...]:
    """Return the names of a market's symbols, by number.

    Symbols that are held together have one name for all of them.
    """
    return tuple(part.name for part in market.parts)


def rows_of(config: RunConfig) -> int:
    """Count the rows of the buffer of ended episodes, per update and agent; 0 without a file.

    `auto` has room for episodes of eight steps on average (a day of hourly bars has more), and for
    two of each environment where a rollout is short.
    """
    if not config.monitor.csv:
        return 0
    if config.monitor.rows != "auto":
        return config.monitor.rows
    return config.rollout.num_envs * max(2, config.rollout.num_steps // 8)


def summary_of(config: RunConfig, market: Markets) -> Summary:
    """Make what a learner reports about its rollouts, with the monitor if `monitor.on`.

    The environment's parameters then need `monitor=True`. In a shared market, crowding is
    reported too.
    """
    found = (
        add_monitor(summarise, rows_of(config), market_symbols(market))
        if config.monitor.on
        else summarise
    )
    return crowding(found) if config.shared.on else found


def warn_of_lost_episodes(rows: Sequence[Row]) -> str:
    """Warn about episodes that have no row in the file.

    rows: the newest updates; one that lost some is enough.
    """
    losing = [row for row in rows if row.get(LOST, 0) > 0]
    if not losing:
        return ""
    return (
        f"{losing[0][LOST]:,.0f} episodes of update {losing[0]['update']} have no row in {MONITOR}, because more "
        "episodes ended than monitor.rows; raise it in the next run (the means in metrics.jsonl and TensorBoard "
        f"count every episode, and {LOST} counts what the file misses)"
    )


def with_warning(config: RunConfig, algorithm: Learner) -> Learner:
    """Give the learner a warning about lost rows, if there can be any.

    As all warnings it is given when it begins: once, unless many updates without a loss lie
    in between.
    """
    if not (config.monitor.on and rows_of(config)):
        return algorithm
    warnings = (*algorithm.info.warnings, Warn("monitor_rows", warn_of_lost_episodes, at_once=True))
    return algorithm._replace(info=algorithm.info._replace(warnings=warnings))


def monitor_sink(
    path: Path, config: RunConfig, market: Markets, resume_update: int | None
) -> MonitorSink:
    """Make the writer of a run's `monitor.csv`.

    path: the run's folder.

    Raises as `MonitorSink`.
    """
    symbols = market_symbols(market)
    return MonitorSink(
        path / MONITOR, f"{'+'.join(symbols)}-{config.env.task}", symbols, resume_update
    )


# The agents of a sweep as arguments of one program: batched environment parameters, tunable
# floats, and the rules under which each of them is evaluated.
#
# Leaves that are equal for all agents are shared, above all the market: `vmap` gets an `in_axes`
# tree that has 0 for the leaves of which each agent has its own, and None elsewhere.

# The agents of a walk-forward as arguments of one program: each fold and seed is an agent.
#
# They share the market and all settings. Of their own they have the training sessions of their
# fold, as data, and a key by their seed, which is the same in every fold.


def make_walk_agents(
    config: RunConfig, market: Markets, folds: Sequence[Fold], make: Callable[[RunConfig], PyTree]
) -> Agents:
    """Make the agents of the folds: all seeds of the first fold, then of the second, ...

    `setting` is the fold.

    make: the environment's parameters of a configuration; its sessions are replaced.

    Raises ConfigError for more agents than a run may have.
    """
    seeds = config.walk.seeds
    if len(folds) * seeds > MOST_AGENTS:
        raise ConfigError(
            f"walk.seeds={seeds} (--seeds): {len(folds)} folds x {seeds} seeds are more than "
            f"{MOST_AGENTS:,} agents: lower it, raise walk.test (--test), or give fewer sessions "
            "(data.start)"
        )
    agents = tuple(
        SweepAgent(fold * seeds + i, config.seed + i, fold, {"fold": fold})
        for fold in range(len(folds))
        for i in range(seeds)
    )
    params = make(config)
    rules = [params.replace(sessions=sessions_of(market, fold.train)) for fold in folds]
    each = tuple(rules[agent.setting] for agent in agents)
    configs = tuple(config.model_copy(update={"seed": agent.seed}) for agent in agents)
    return list_agents(agents, configs, each, {}, make)


SHARED = (
    "market",
    "sessions",
    "advice",
    "forced_start",
    "symbol_weights",
    "monitor",
)  # never an agent's own
OF_CONTRACT = (
    "commission",
    "slippage",
    "min_stop",
    "be_ticks",
)  # of a contract, what a configuration may change


@dataclass(frozen=True)
class Agents:
    """The agents of a run, as arguments of one program.

    stack: along which axis they are.
    configs, rules: the configuration and the environment's parameters of each agent alone, which
        share the market; a single one where agents differ in their seeds alone.
    params: the parameters of all agents, [N, ...] where two of them differ.
    axes: `in_axes` of `params`; None if all leaves are shared.
    hparams: tunable floats with which they begin, float32[N] by name; empty: the learner's own.
    make: the parameters of a configuration.
    """

    stack: Stack
    configs: tuple[RunConfig, ...]
    rules: tuple[PyTree, ...]
    params: PyTree
    axes: PyTree
    hparams: Mapping[str, np.ndarray]
    make: Callable[[RunConfig], PyTree]

    @property
    def are_listed(self) -> bool:
        """Whether each agent has a configuration of its own, as in a sweep or a walk-forward."""
        return bool(self.stack.swept)


def agents_by_seed(config: RunConfig, make: Callable[[RunConfig], PyTree]) -> Agents:
    """Make agents that differ in their seeds alone, or a single one."""
    params = make(config)
    return Agents(Stack.of_run(config), (config,), (params,), params, None, {}, make)


def list_agents(
    agents: tuple[SweepAgent, ...],
    configs: tuple[RunConfig, ...],
    rules: tuple[PyTree, ...],
    hparams: Mapping[str, np.ndarray],
    make: Callable[[RunConfig], PyTree],
    like: PyTree = None,
) -> Agents:
    """Make agents that have configurations of their own.

    like: as in `read_swept`.
    """
    params, axes = stack_trees(rules, like)
    stack = Stack((len(agents),), (Axes(params=axes),), agents)
    return Agents(stack, configs, rules, params, axes, hparams, make)


def read_swept(
    config: RunConfig, make: Callable[[RunConfig], PyTree], like: PyTree = None
) -> Agents:
    """Make the agents of a sweep.

    Args:
        make: the environment's parameters of one agent's configuration.
        like: `axes` of another sweep, whose program these agents are to share: leaves that differ
            there get an axis of agents here too.
    Raises ConfigError if they need more than one program, or a setting is at fault.
    """
    groups = groups_of(config)
    if len(groups) > 1:
        raise ConfigError(
            f"sweep: {announcement(groups)}: train it with `jaxtrade train` or jaxtrade.run, which train "
            "one program after the other"
        )
    agents = agents_of(config)
    configs = tuple(config_of(config, agent) for agent in agents)
    decide = {*RULES, "reward", "allocate", "episode"}  # the sections that decide the parameters
    keys = [json.dumps(alone.model_dump(mode="json", include=decide)) for alone in configs]
    made = {key: make(configs[keys.index(key)]) for key in dict.fromkeys(keys)}
    rules = tuple(made[key] for key in keys)
    floats = [tunable_floats(alone) for alone in configs]
    hparams = {name: np.array([each[name] for each in floats], np.float32) for name in floats[0]}
    return list_agents(agents, configs, rules, hparams, make, like)


def stack_trees(each: Sequence[PyTree], like: PyTree = None) -> tuple[PyTree, PyTree]:
    """Stack the trees of all agents into one; return it and its `in_axes`.

    Leaves that differ get a leading axis, the others stay.

    `in_axes` is None if no leaf differs.

    like: as in `read_swept`.

    Raises ValueError if the trees differ in structure, static fields, shapes or dtypes, so that one
    program cannot serve them.
    """
    structures = {jax.tree.structure(tree) for tree in each}
    if len(structures) > 1:
        raise ValueError("the agents' environment parameters differ in structure or static fields")
    own = jax.tree.map(lambda *leaves: _differ(leaves), *each)
    if like is not None:
        own = jax.tree.map(lambda mine, axis: mine or axis == 0, own, like)
    params = jax.tree.map(
        lambda mine, *leaves: jnp.stack(leaves) if mine else leaves[0], own, *each
    )
    return params, jax.tree.map(lambda mine: 0 if mine else None, own) if any(
        jax.tree.leaves(own)
    ) else None


def _differ(leaves: Sequence[Any]) -> bool:
    first, others = leaves[0], [leaf for leaf in leaves if leaf is not leaves[0]]
    if any((leaf.shape, leaf.dtype) != (first.shape, first.dtype) for leaf in others):
        raise ValueError("the agents' environment parameters differ in shapes or dtypes")
    return any(not np.array_equal(leaf, first) for leaf in others)


@dataclass(frozen=True)
class Setup:
    """The parts of a run, built before anything is written.

    `params` are the parameters of the training split, before any stage of `stages` is applied. The algorithm applies
    the stages itself, so evaluation never sees them. In a sweep they are those of its first agent, as the algorithm is;
    `agents` holds what the agents have of their own. In a walk-forward the agents have
    training sessions of their own, those of their fold in `folds`; `splits` then holds the sessions of all folds.
    `split_note` says what of the default split is off because the configuration names some of its numbers.
    `unseen` (`runs.new_bars.NewBars`) chose the splits of an evaluation on other bars than the run's own.
    """

    config: RunConfig
    market: Markets
    splits: dict[str, SessionSet]
    env: TradingEnv
    params: EnvParams
    plan: RunLength
    algorithm: Learner
    agents: Agents
    fusion: Fusion | None = None
    folds: tuple[Fold, ...] = ()
    split_note: str | None = None
    unseen: Any = None

    @property
    def counted(self) -> RunConfig:
        """The configuration with all agents of a walk-forward as its seeds, for estimates of memory."""
        walk = self.config.walk.model_copy(update={"seeds": self.stack.count})
        return self.config.model_copy(update={"walk": walk}) if self.folds else self.config

    @property
    def stack(self) -> Stack:
        """How the run's agents are stacked: one, or several along a leading axis."""
        return self.agents.stack

    def of_agent(self, number: int, symbol: str, params: EnvParams) -> tuple[RunConfig, EnvParams]:
        """Return the configuration and the parameters by which an agent is evaluated on a symbol.

        Those of a sweep are evaluated under their own costs, account, brackets and weights. Market,
        sessions and advice stay those of `params`.

        number: of the agent (`Stack.numbers`).
        params: made to show the sessions of this symbol.
        """
        own, agents, member = self.symbols[symbol], self.agents, None
        if not agents.are_listed:
            return own.config, params
        index = self.stack.index(number, self.config.seed)
        config = agents.configs[index]
        if len(self.market.parts) > 1:
            place = self.market.symbols.index(symbol)
            member, config = self.market.members[place], member_configs(config)[place]
        if agents.axes is None:
            return config, params
        rules = agents.rules[index]
        if member is not None:
            rules = make_params(member, own.splits["train"], config)
        kept = {name: getattr(params, name) for name in SHARED}
        costs = {name: getattr(rules.contract, name) for name in OF_CONTRACT}
        return config, rules.replace(contract=params.contract.replace(**costs), **kept)

    @property
    def _first(self) -> RunConfig:
        """The configuration of the run's algorithm and `params`."""
        return self.agents.configs[0] if self.agents.are_listed else self.config

    @cached_property
    def place(self) -> RunDevices:
        """The devices that the run trains on.

        Raises ConfigError if there are too few, or they cannot share it.
        """
        chosen, rollout = self.config.parallel, self.config.rollout
        layout = plan_mesh(
            device_count(self.config), self.stack.count, rollout.shards, chosen.reduce == "strict"
        )
        if layout.is_plain:
            return ONE_DEVICE
        check_strict(self.config)
        if self.config.shared.on:
            raise ConfigError(
                "shared.on=true: the agents meet inside the program of one device; train in one process"
            )
        part = make_algorithm(
            part_of(self._first, layout.parts),
            self.env,
            self.plan.total_updates,
            summarise=summary_of(self.config, self.market),
            stage=make_stages(self.config.stages),
            fusion=self.fusion,
            reduce=layout.reduce,
        )
        return MeshDevices(layout, mesh_of(layout), part, self.stack, rollout.num_envs)

    @property
    def single(self) -> Market:
        """The market of a run on one symbol. Raises ConfigError for a set of symbols."""
        if len(self.market.parts) > 1:
            raise ConfigError(
                f"data.markets: this works on one symbol, and the run has {len(self.market.members)} ("
                f"{', '.join(self.market.symbols)}); set data.market instead"
            )
        only: Any = self.market
        return only

    @cached_property
    def symbols(self) -> dict[str, Setup]:
        """Symbol -> the setup of that symbol alone, on which policies are evaluated.

        The markets of a set have one shape there, and their arrays are on the host. For one symbol:
        this setup itself.
        """
        if len(self.market.parts) == 1:
            return {self.market.name: self}
        several: Any = self.market
        return {
            symbol: replace(
                self, market=own.market, splits=own.sessions, params=own.params, config=own.config
            )
            for symbol, own in members_of(several, self.splits, self._first).items()
        }

    @cached_property
    def policy_of(self) -> Callable[[LoopState], Policy]:
        """The compiled function from the run's state to its policies, stacked as the state is."""
        return jax.jit(self.stack.map(self.algorithm.policy))

    @property
    def facts(self) -> dict[str, Any]:
        """All that decides what the run's programs compute, besides the source code.

        It is configuration, data and contract.

        The seed is left out: it is an argument of the programs. So is what the agents of a sweep
        have of their own. So are the places of files: their content is in the fingerprint and the
        contract.
        """
        config = self._first.model_dump(
            mode="json", exclude={"seed": True, "sweep": True, "data": set(PLACES)}
        )
        contracts = [repr(member.contract) for member in self.market.members]
        return {"config": config, "data": self.market.fingerprint, "contract": " ".join(contracts)}

    def steps(self, split: str) -> EvaluationSteps | None:
        """Return what the programs of a set step on a split; None for one symbol.

        It is as much as the symbol with most bars has, so that every program is compiled once for
        all symbols.
        """
        if len(self.symbols) == 1:
            return None
        return longest(
            [decision_bars(own.single.data, own.splits[split]) for own in self.symbols.values()]
        )

    def acting(self, policy: PyTree, symbol: str) -> PyTree:
        """Return a policy as it acts on one symbol: with the observation statistics of that symbol.

        It may be abstract.
        """
        parts = list(self.symbols)
        return for_member(policy, parts.index(symbol)) if len(parts) > 1 else policy

    def rules_on(self, symbol: str, shown: EnvParams) -> EnvParams | list[EnvParams]:
        """Return the parameters by which the agents are scored on a symbol.

        They are those of all, or of each where those of a sweep differ.

        shown: as `params` of `of_agent`.
        """
        if self.agents.axes is None:
            return shown
        numbers = self.stack.numbers(self.config.seed)
        return [self.of_agent(number, symbol, shown)[1] for number in numbers]

    def dates(self, split: str) -> np.ndarray:
        """Return the trade date of each session of a split (datetime64[D])."""
        sessions, market = self.splits[split], self.market
        return market.trade_dates[np.asarray(sessions.ids)[: int(sessions.count)]]

    def evaluation_split(self) -> str:
        """Choose the split to evaluate: `test`, or `train` (in sample) if none is held out."""
        return "test" if int(self.splits["test"].count) else "train"


def prepare(config: RunConfig, choose: Chooses | None = None) -> Setup:
    """Load the market and build the environment, parameters and learner. Writes nothing.

    The configuration of the setup names what the default protocol chose (`config.run`).

    choose: makes the session sets of other bars than the run's own.

    Raises ConfigError, DataError.
    """
    if config.rollout.auto:
        raise ConfigError(
            "rollout.num_envs=auto: it is measured by `jaxtrade train` and jaxtrade.run alone; give a "
            "number"
        )
    if config.sweep.optuna:
        raise ConfigError(
            "sweep.optuna: the settings are proposed as the run goes on; train it with `jaxtrade train` "
            "or jaxtrade.run"
        )
    first = config_of(config, agents_of(config)[0]) if config.sweep.on else config
    market = load_markets(first)
    split = SplitConfig(validation_sessions=0) if config.walk.on else first.split
    splits = choose(market) if choose else split_sessions(market, split)
    asked, sessions, folds = config, count_sessions(market), tuple[Fold, ...]()
    note = None if config.walk.on else split_note(config.split, sessions)
    if config.walk.on:
        folds = tuple(folds_of(market, config))
        splits |= {
            name: sessions_of(
                market, np.unique(np.concatenate([getattr(fold, name) for fold in folds]))
            )
            for name in ("train", "test")
        }
    else:
        config, first = with_split(config, sessions), with_split(first, sessions)
    env = make_env(first)
    fusion = make_fusion(config.advisor, config.env)
    view = None
    if fusion is not None:
        table = empty_table(market.num_bars * config.advisor.advisors)
        view = view_of(config.advisor, market.data.sessions, table, True)

    def params_of(own: RunConfig) -> EnvParams:
        made = make_params(market, splits["train"], own).replace(monitor=config.monitor.on)
        made = with_impact(made, own)
        return made if view is None else made.replace(advice=view)

    agents = (
        read_swept(config, params_of)
        if config.sweep.on
        else make_walk_agents(config, market, folds, params_of)
        if folds
        else agents_by_seed(config, params_of)
    )
    config, agents, plan, algorithm = _make_learner(
        asked, config, agents, env, market, splits, fusion
    )
    return Setup(
        config, market, splits, env, agents.rules[0], plan, algorithm, agents, fusion, folds, note
    )


def _make_learner(
    asked: RunConfig,
    config: RunConfig,
    agents: Agents,
    env: TradingEnv,
    market: Markets,
    splits: Mapping[str, SessionSet],
    fusion: Fusion | None,
) -> tuple[RunConfig, Agents, RunLength, Learner]:
    """Make the learner of a setup, its plan, and what depends on it: configuration and agents.

    asked, config: the run's configuration as it was given, and with what the default protocol has
        chosen so far.
    """
    first = agents.configs[0]
    plan = plan_run(first.train, first.rollout.num_envs, first.rollout.num_steps)
    algorithm = make_algorithm(
        first,
        trained_env(first, env),
        plan.total_updates,
        summarise=summary_of(first, market),
        stage=make_stages(first.stages),
        fusion=fusion,
    )
    count = 0  # how often the default protocol scores the policy, where it chooses one
    if scores_by_default(asked, config):
        count = count_evaluations(
            plan.total_steps, decision_count(market.data, splits["validation"])
        )
    refuse_best(asked, count_sessions(market))
    config = with_control(config, plan.chunks, count)
    own = {"control": config.control}
    configs = tuple(each.model_copy(update=own) for each in agents.configs)
    if not agents.are_listed:
        configs = (config,)
    return config, replace(agents, configs=configs), plan, with_warning(first, algorithm)


def with_learner_of(setup: Setup, config: RunConfig) -> Setup:
    """Replace the learner of the setup by another one on the same market. Raises ConfigError.

    config: differs from `setup.config` in keys of the learner alone, or in what `prepare` finds
        for it.
    """
    asked, config = config, with_split(config, count_sessions(setup.market))
    listed = setup.stack.swept
    configs = tuple(config_of(config, agent) for agent in listed) if listed else (config,)
    config, agents, plan, algorithm = _make_learner(
        asked,
        config,
        replace(setup.agents, configs=configs),
        setup.env,
        setup.market,
        setup.splits,
        setup.fusion,
    )
    return replace(setup, config=config, agents=agents, plan=plan, algorithm=algorithm)


def with_sweep_of(setup: Setup, config: RunConfig) -> Setup:
    """Replace the agents of a sweep by those of another one, for the same program.

    Raises ConfigError.
    config: differs from `setup.config` in the section `sweep` alone, or in what `prepare` finds
        for it.
    """
    found = {name: getattr(setup.config, name) for name in ("split", "control")}
    config = config.model_copy(update=found)
    agents = read_swept(config, setup.agents.make, setup.agents.axes)
    return replace(setup, config=config, agents=agents)


def policies_of(setup: Setup, state: LoopState) -> list[Policy]:
    """Return the policies in a run's state, one per agent.

    Each carries the trust in the advisor that it acts with.
    """
    advice = getattr(state, "advice", None)
    if (
        advice is not None
    ):  # all agents share it, so it lacks the leading axis that `stack.map` expects
        state = state.replace(advice=None)
    trust = None if setup.fusion is None or advice is None else setup.fusion.trust(advice.outcomes)
    policies = setup.policy_of(state)
    return [policy.replace(fusion=trust) for policy in setup.stack.agents(policies)]


def params_shown(
    setup: Setup,
    split: str,
    path: Path | None,
    log: Log | None = None,
    again: bool = False,
) -> tuple[EnvParams, ShownAdvice | None]:
    """Make the environment's parameters for evaluating a split, with the advice on its bars.

    Return (parameters, the advice shown), where the second is None for a run without an advisor.

    again: as in `advice_evaluation.load_split_advice`.
    """
    if setup.fusion is None:
        return jax.device_put(
            setup.params
        ), None  # those of a symbol of a set are on the host until it is evaluated
    known = load_split_advice(
        setup.config, setup.single, split, setup.splits[split], path, log, again
    )
    return setup.params.replace(advice=known.view), known


def validation_shown(setup: Setup, path: Path, log: Log) -> dict[str, EnvParams]:
    """Make, by symbol, the parameters that show the validation sessions with their advice."""
    return {
        symbol: params_shown(own, "validation", path, log)[0]
        for symbol, own in setup.symbols.items()
    }


def metric_names(env: TradingEnv, market: Markets) -> Names:
    """Name the entries of the run's list-valued metrics.

    They are actions, reasons for an episode's end, and symbols.
    """
    return {
        "action_share": list(env.actions),
        "end_share": [reason.name for reason in EndReason],
        "symbol_share": [member.contract.symbol for member in market.members],
    }
