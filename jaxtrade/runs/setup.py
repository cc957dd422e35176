"""Build the parts of a run before anything is written: market, splits, environment, learner,
advice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.advisor.table import empty_table
from jaxtrade.config import PLACES, EnvConfig, RunConfig, SplitConfig
from jaxtrade.config.allocate import TASK
from jaxtrade.config.load import agents_of, config_of
from jaxtrade.config.run import chooses, evaluations, split_note, with_control, with_split
from jaxtrade.data.market import Market, MarketSet, load_markets
from jaxtrade.data.members import symbols_of
from jaxtrade.data.splits import (
    Fold,
    countable,
    decision_count,
    folds_of,
    sessions_of,
    split_sessions,
)
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params, make_stages
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.params import load_portfolio, make_portfolio_params, split_portfolio
from jaxtrade.env.shared import trained_env, with_impact
from jaxtrade.env.state import EndReason, EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.members import members_of
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.listening import Fusion, make_fusion
from jaxtrade.rl.sharding import Spread, layout_of, mesh_of
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import part_of
from jaxtrade.runs.advice import view_of
from jaxtrade.runs.advice_evaluation import Shown, shown
from jaxtrade.runs.computing import check_strict
from jaxtrade.runs.monitoring import summary_of, with_warning
from jaxtrade.runs.preflight import device_count
from jaxtrade.runs.swept import Swept, own_config, own_params, read_swept, walked
from jaxtrade.storage.sinks import Names
from jaxtrade.training.placing import ONE_DEVICE, Place
from jaxtrade.training.plan import Plan, plan_run
from jaxtrade.training.population import Stack
from jaxtrade.types import Algorithm, LoopState, SessionSet


def make_env(config: EnvConfig | RunConfig) -> TradingEnv:
    """The environment of a configuration. It is static and hashable; the data are in `EnvParams`
    (`make_params`).
    """
    if isinstance(config, RunConfig) and config.env.task == TASK:
        joint: Any = PortfolioEnv(
            config.env, config.allocate, symbols_of(config)
        )  # the same `Env`, of several symbols
        return joint
    return (
        TradingEnv(config.env, config.sampler.kind)
        if isinstance(config, RunConfig)
        else TradingEnv(config)
    )


@dataclass(frozen=True)
class Setup:
    """The parts of a run, built before anything is written.

    `params` are the parameters of the training split, before any stage of `stages` is applied. The algorithm applies
    the stages itself, so evaluation never sees them. In a sweep they are those of its first agent, as the algorithm is,
    and `swept` holds what the agents have of their own; it is None without a sweep. In a walk-forward the agents have
    training sessions of their own, those of their fold in `folds`; `splits` then holds the sessions of all folds.
    `split_note` says what of the default split is off because the configuration names some of its numbers.
    """

    config: RunConfig
    market: Market | MarketSet
    splits: dict[str, SessionSet]
    env: TradingEnv
    params: EnvParams
    plan: Plan
    algorithm: Algorithm
    fusion: Fusion | None = None
    swept: Swept | None = None
    folds: tuple[Fold, ...] = ()
    split_note: str | None = None

    @property
    def stack(self) -> Stack:
        """How the run's agents are stacked: one, or several along a leading axis."""
        return Stack.of_run(self.config) if self.swept is None else self.swept.stack

    @property
    def trained_params(self) -> EnvParams:
        """The parameters with which the run's agents train: [N, ...] where the agents of a sweep
        differ.
        """
        return self.params if self.swept is None else self.swept.params

    @property
    def hparams(self) -> Mapping[str, np.ndarray]:
        """The tunable floats with which the agents of a sweep begin, by name; empty for a run
        without a sweep.
        """
        return {} if self.swept is None else self.swept.hparams

    def of_agent(self, number: int, symbol: str, params: EnvParams) -> tuple[RunConfig, EnvParams]:
        """The configuration and the parameters by which an agent is evaluated on a symbol.

        number: of the agent (`Stack.numbers`). params: made to show the sessions of this symbol.
        """
        own, place = self.symbols[symbol], None
        if isinstance(self.market, MarketSet):
            place = self.market.symbols.index(symbol)
        index = self.stack.index(number, self.config.seed)
        return (
            own_config(own.config, self.swept, index, place),
            own_params(params, self.swept, index, self.market, place, own.splits["train"]),
        )

    @property
    def _first(self) -> RunConfig:
        """The configuration of the run's algorithm and `params`."""
        return self.config if self.swept is None else self.swept.configs[0]

    @cached_property
    def place(self) -> Place:
        """The devices that the run trains on. Raises ConfigError if there are too few, or they
        cannot share it.
        """
        chosen, rollout = self.config.parallel, self.config.rollout
        layout = layout_of(
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
        return Spread(layout, mesh_of(layout), part, self.stack, rollout.num_envs)

    @property
    def single(self) -> Market:
        """The market of a run on one symbol. Raises ConfigError for a set of symbols."""
        if isinstance(self.market, MarketSet):
            raise ConfigError(
                f"data.markets: this works on one symbol, and the run has {len(self.market.members)} ("
                f"{', '.join(self.market.symbols)}); set data.market instead"
            )
        return self.market

    @cached_property
    def symbols(self) -> dict[str, Setup]:
        """symbol -> the setup of that symbol alone, on which policies are evaluated.

        The markets of a set have one shape there, and their arrays are on the host. For one symbol:
        this setup itself.
        """
        if not isinstance(self.market, MarketSet):
            return {self.market.contract.symbol: self}
        return {
            symbol: replace(
                self, market=own.market, splits=own.sessions, params=own.params, config=own.config
            )
            for symbol, own in members_of(self.market, self.splits, self._first).items()
        }

    @cached_property
    def policy_of(self) -> Callable[[LoopState], Policy]:
        """The compiled function from the run's state to its policies, stacked as the state is."""
        return jax.jit(self.stack.map(self.algorithm.policy))

    @property
    def facts(self) -> dict[str, Any]:
        """All that decides what the run's programs compute, besides the source code: configuration,
        data, contract.

        The seed is left out: it is an argument of the programs. So is what the agents of a sweep
        have of their own. So are the places of files: their content is in the fingerprint and the
        contract.
        """
        config = self._first.model_dump(
            mode="json", exclude={"seed": True, "sweep": True, "data": set(PLACES)}
        )
        contracts = [repr(member.contract) for member in self.market.members]
        return {"config": config, "data": self.market.fingerprint, "contract": " ".join(contracts)}

    def evaluation_split(self) -> str:
        """The split to evaluate: `test`, or `train` (in sample) if no session is held out."""
        return "test" if int(self.splits["test"].count) else "train"


def prepare(config: RunConfig) -> Setup:
    """Load the market and build the environment, parameters and learner. Writes nothing.

    The configuration of the setup names what the default protocol chose (`config.run`).

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
    market, splits, make = _joint(first) if config.env.task == TASK else _alone(first)
    asked, sessions, folds = config, countable(market), tuple[Fold, ...]()
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
        made = with_impact(make(own).replace(monitor=config.monitor.on), own)
        return made if view is None else made.replace(advice=view)

    swept = (
        read_swept(config, params_of)
        if config.sweep.on
        else walked(config, market, folds, params_of)
    )
    params = params_of(config) if swept is None else swept.rules[0]
    plan, algorithm = _learner(first, env, market, fusion)
    config = with_control(config, plan.chunks, _evaluations(asked, config, plan, splits, market))
    swept = _controlled(swept, config)
    return Setup(config, market, splits, env, params, plan, algorithm, fusion, swept, folds, note)


def _learner(
    config: RunConfig, env: TradingEnv, market: Market | MarketSet, fusion: Fusion | None
) -> tuple[Plan, Algorithm]:
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    algorithm = make_algorithm(
        config,
        trained_env(config, env),
        plan.total_updates,
        summarise=summary_of(config, market),
        stage=make_stages(config.stages),
        fusion=fusion,
    )
    return plan, with_warning(config, algorithm)


def _controlled(swept: Swept | None, config: RunConfig) -> Swept | None:
    """The agents of a sweep with the section `control` of their run."""
    return (
        None
        if swept is None
        else replace(
            swept,
            configs=tuple(
                own.model_copy(update={"control": config.control}) for own in swept.configs
            ),
        )
    )


def _evaluations(
    asked: RunConfig,
    config: RunConfig,
    plan: Plan,
    splits: Mapping[str, SessionSet],
    market: Market | MarketSet,
) -> int:
    """How often the default protocol scores the policy: 0 where it does not choose one."""
    return (
        evaluations(plan.total_steps, decision_count(market.data, splits["validation"]))
        if chooses(asked, config)
        else 0
    )


def with_learner_of(setup: Setup, config: RunConfig) -> Setup:
    """The setup with another learner on the same market. config: differs from `setup.config` in
    keys of the learner alone, or in what `prepare` finds for it. Raises ConfigError."""
    asked, config = config, with_split(config, countable(setup.market))
    swept = setup.swept
    if swept is not None:
        swept = replace(swept, configs=tuple(config_of(config, agent) for agent in swept.agents))
    first = config if swept is None else swept.configs[0]
    plan, algorithm = _learner(first, setup.env, setup.market, setup.fusion)
    config = with_control(
        config, plan.chunks, _evaluations(asked, config, plan, setup.splits, setup.market)
    )
    return replace(
        setup, config=config, plan=plan, algorithm=algorithm, swept=_controlled(swept, config)
    )


def with_sweep_of(setup: Setup, config: RunConfig) -> Setup:
    """The setup of a sweep with the agents of another one, for the same program. config: differs
    from `setup.config` in the section `sweep` alone, or in what `prepare` finds for it. Raises
    ConfigError."""
    assert setup.swept is not None
    found = {name: getattr(setup.config, name) for name in ("split", "control")}
    config = config.model_copy(update=found)
    return replace(
        setup, config=config, swept=read_swept(config, setup.swept.make, setup.swept.axes)
    )


def _alone(config: RunConfig) -> tuple[Any, dict[str, SessionSet], Callable[[RunConfig], Any]]:
    """Market, splits, and what makes training parameters of a configuration, for tasks that hold
    one symbol at a time.
    """
    market = load_markets(config)
    splits = split_sessions(
        market, SplitConfig(validation_sessions=0) if config.walk.on else config.split
    )
    return market, splits, lambda own: make_params(market, splits["train"], own)


def _joint(config: RunConfig) -> tuple[Any, dict[str, SessionSet], Callable[[RunConfig], Any]]:
    """The same of `allocate`, a `Portfolio` and `PortfolioParams`. They serve where a run needs a
    market's sessions and fingerprint, and parameters for the environment of `make_env`."""
    market = load_portfolio(config)
    splits = split_portfolio(market, config.split)
    return market, splits, lambda own: make_portfolio_params(market, splits["train"], own)


def policies_of(setup: Setup, state: LoopState) -> list[Policy]:
    """The policies in a run's state, one per agent. Each carries the trust in the advisor that it
    acts with.
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
    tell: Callable[[str], None] | None = None,
    again: bool = False,
) -> tuple[EnvParams, Shown | None]:
    """The environment's parameters for evaluating a split, with the advice on its bars.

    again: as in `advice_evaluation.shown`. Returns (parameters, the advice shown), where the second
        is None for a run
    without an advisor.
    """
    if setup.fusion is None:
        return jax.device_put(
            setup.params
        ), None  # those of a symbol of a set are on the host until it is evaluated
    known = shown(setup.config, setup.single, split, setup.splits[split], path, tell, again)
    return setup.params.replace(advice=known.view), known


def figure_names(env: TradingEnv, market: Market | MarketSet) -> Names:
    """Names of the entries of the run's list-valued figures: actions, reasons for an episode's end,
    and symbols.
    """
    return {
        "action_share": list(env.actions),
        "end_share": [reason.name for reason in EndReason],
        "symbol_share": [member.contract.symbol for member in market.members],
    }
