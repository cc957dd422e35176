"""Build the parts of a run before anything is written: market, splits, environment, learner, advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from jaxtrade.advisor.table import empty_table
from jaxtrade.config import PLACES, EnvConfig, RunConfig
from jaxtrade.config.allocate import TASK
from jaxtrade.data.market import Market
from jaxtrade.data.market_set import MarketSet, load_markets
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.layout import symbols_of
from jaxtrade.env.params import make_params
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.market import load_portfolio, split_portfolio
from jaxtrade.env.portfolio.params import make_portfolio_params
from jaxtrade.env.shared.dynamics import trained_env
from jaxtrade.env.shared.impact import with_impact
from jaxtrade.env.shared.state import AGENTS
from jaxtrade.env.stages import make_stages
from jaxtrade.env.state import EndReason, EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.members import members_of
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.listening.fusion import Fusion, make_fusion
from jaxtrade.rl.state import Policy
from jaxtrade.runs.advice import view_of
from jaxtrade.runs.advice_evaluation import Shown, shown
from jaxtrade.runs.monitoring import summary_of, with_warning
from jaxtrade.storage.sinks import Names
from jaxtrade.training.loop import Plan, plan_run
from jaxtrade.training.population import Axes, Stack
from jaxtrade.types import Algorithm, LoopState, SessionSet

MEETING = Axes(name=AGENTS)  # agents that trade in the same worlds


def make_env(config: EnvConfig | RunConfig) -> TradingEnv:
    """The environment of a configuration. It is static and hashable; the data are in `EnvParams` (`make_params`)."""
    if isinstance(config, RunConfig) and config.env.task == TASK:
        joint: Any = PortfolioEnv(config.env, config.allocate, symbols_of(config))  # the same `Env`, of several symbols
        return joint
    return TradingEnv(config.env, config.sampler.kind) if isinstance(config, RunConfig) else TradingEnv(config)


@dataclass(frozen=True)
class Setup:
    """The parts of a run, built before anything is written.

    `params` are the parameters of the training split, before any stage of `stages` is applied. The algorithm applies
    the stages itself, so evaluation never sees them.
    """

    config: RunConfig
    market: Market | MarketSet
    splits: dict[str, SessionSet]
    env: TradingEnv
    params: EnvParams
    plan: Plan
    algorithm: Algorithm
    fusion: Fusion | None = None

    @property
    def stack(self) -> Stack:
        """How the run's agents are stacked: one, or several along a leading axis."""
        return stack_of(self.config)

    @property
    def single(self) -> Market:
        """The market of a run on one symbol. Raises ConfigError for a set of symbols."""
        if isinstance(self.market, MarketSet):
            raise ConfigError(f"data.markets: this works on one symbol, and the run has {len(self.market.members)} ("
                              f"{', '.join(self.market.symbols)}); set data.market instead")
        return self.market

    @cached_property
    def symbols(self) -> dict[str, Setup]:
        """symbol -> the setup of that symbol alone, on which policies are evaluated.

        The markets of a set have one shape there, and their arrays are on the host. For one symbol: this setup itself.
        """
        if not isinstance(self.market, MarketSet):
            return {self.market.contract.symbol: self}
        return {symbol: replace(self, market=own.market, splits=own.sessions, params=own.params, config=own.config)
                for symbol, own in members_of(self.market, self.splits, self.config).items()}

    @cached_property
    def policy_of(self) -> Callable[[LoopState], Policy]:
        """The compiled function from the run's state to its policies, stacked as the state is."""
        return jax.jit(self.stack.map(self.algorithm.policy))

    @property
    def facts(self) -> dict[str, Any]:
        """All that decides what the run's programs compute, besides the source code: configuration, data, contract.

        The seed is left out: it is an argument of the programs. So are the places of files: their content is in the
        fingerprint and the contract.
        """
        config = self.config.model_dump(mode="json", exclude={"seed": True, "data": set(PLACES)})
        contracts = [repr(member.contract) for member in self.market.members]
        return {"config": config, "data": self.market.fingerprint, "contract": " ".join(contracts)}

    def evaluation_split(self) -> str:
        """The split to evaluate: `test`, or `train` (in sample) if no session is held out."""
        return "test" if int(self.splits["test"].count) else "train"


def prepare(config: RunConfig) -> Setup:
    """Load the market and build the environment, parameters and learner. Writes nothing.

    Raises ConfigError, DataError.
    """
    if config.rollout.auto:
        raise ConfigError("rollout.num_envs=auto: it is measured by `jaxtrade train` and jaxtrade.run alone; give a "
                          "number")
    market, splits, params = _joint(config) if config.env.task == TASK else _alone(config)
    env = make_env(config)
    fusion = make_fusion(config.advisor, config.env)
    if fusion is not None:
        table = empty_table(market.num_bars * config.advisor.advisors)
        view = view_of(config.advisor, market.data.sessions, table, True)
        params = params.replace(advice=view)
    params = with_impact(params.replace(monitor=config.monitor.on), config)
    return Setup(config, market, splits, env, params, *_learner(config, env, market, fusion), fusion)


def _learner(config: RunConfig, env: TradingEnv, market: Market | MarketSet, fusion: Fusion | None
             ) -> tuple[Plan, Algorithm]:
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    algorithm = make_algorithm(config, trained_env(config, env), plan.total_updates,
                               summarise=summary_of(config, market), stage=make_stages(config.stages), fusion=fusion)
    return plan, with_warning(config, algorithm)


def with_learner_of(setup: Setup, config: RunConfig) -> Setup:
    """The setup with another learner on the same market. config: differs from `setup.config` in keys of the learner
    alone. Raises ConfigError."""
    plan, algorithm = _learner(config, setup.env, setup.market, setup.fusion)
    return replace(setup, config=config, plan=plan, algorithm=algorithm)


def _alone(config: RunConfig) -> tuple[Any, dict[str, SessionSet], Any]:
    """Market, splits and training parameters of tasks that hold one symbol at a time."""
    market = load_markets(config)
    splits = split_sessions(market, config.split)
    return market, splits, make_params(market, splits["train"], config)


def _joint(config: RunConfig) -> tuple[Any, dict[str, SessionSet], Any]:
    """The same of `allocate`, a `Portfolio` and `PortfolioParams`. They serve where a run needs a market's sessions and
    fingerprint, and parameters for the environment of `make_env`."""
    market = load_portfolio(config)
    splits = split_portfolio(market, config.split)
    return market, splits, make_portfolio_params(market, splits["train"], config)


def stack_of(config: RunConfig) -> Stack:
    """The agents that a run trains side by side."""
    agents = config.train.num_seeds
    return Stack((agents,), (MEETING,)) if config.shared.on else Stack.of(agents)


def seeds_of(config: RunConfig) -> range:
    """The seeds that a run trains."""
    return range(config.seed, config.seed + config.train.num_seeds)


def policies_of(setup: Setup, state: LoopState) -> list[Policy]:
    """The policies in a run's state, one per seed. Each carries the trust in the advisor that it acts with."""
    advice = getattr(state, "advice", None)
    if advice is not None:  # all agents share it, so it lacks the leading axis that `stack.map` expects
        state = state.replace(advice=None)
    trust = None if setup.fusion is None or advice is None else setup.fusion.trust(advice.outcomes)
    policies = setup.policy_of(state)
    return [policy.replace(fusion=trust) for policy in setup.stack.agents(policies)]


def params_shown(setup: Setup, split: str, path: Path | None, tell: Callable[[str], None] | None = None,
                 again: bool = False) -> tuple[EnvParams, Shown | None]:
    """The environment's parameters for evaluating a split, with the advice on its bars.

    again: as in `advice_evaluation.shown`. Returns (parameters, the advice shown), where the second is None for a run
    without an advisor.
    """
    if setup.fusion is None:
        return jax.device_put(setup.params), None  # those of a symbol of a set are on the host until it is evaluated
    known = shown(setup.config, setup.single, split, setup.splits[split], path, tell, again)
    return setup.params.replace(advice=known.view), known


def figure_names(env: TradingEnv, market: Market | MarketSet) -> Names:
    """Names of the entries of the run's list-valued figures: actions, reasons for an episode's end, and symbols."""
    return {"action_share": list(env.actions), "end_share": [reason.name for reason in EndReason],
            "symbol_share": [member.contract.symbol for member in market.members]}
