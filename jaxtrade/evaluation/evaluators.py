"""How the policies of each kind of environment are scored in training and evaluated after it.

`evaluator_of` alone asks which kind it has.

A score is the reward on validation sessions, by the same evaluation as all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market, Markets
from jaxtrade.data.markets import MarketSet
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import joint
from jaxtrade.evaluation.backtest import Lane, begin_lanes, run_account
from jaxtrade.evaluation.baselines import Agent, FunctionAgent, greedy
from jaxtrade.evaluation.evaluate import (
    begin_evaluation,
    evaluate_set,
    evaluate_symbol,
    standard_agents,
)
from jaxtrade.evaluation.record import EvaluationSteps, Record, decision_bars
from jaxtrade.evaluation.replay import joint_lines, replay_lines
from jaxtrade.evaluation.result import EvaluationResult, SetResult
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Learner, PyTree, SessionSet


class Evaluator(NamedTuple):
    """The functions by which the policies of a kind of environment are evaluated.

    records(env, params, sessions, algorithm, policies, steps, programs, seen) -> one record for
        each greedy policy, with the account rules on; arguments as in `total_rewards`.
    begin_records(programs, env, params, sessions, algorithm, policies, steps): begin to compile its
        program. policies: may be abstract (`jax.ShapeDtypeStruct`).
    agents(env, market, params, config, algorithm, policy) -> the policy and the baselines.
    evaluate: as `evaluate_symbol`.
    passes: how often it calls `begun`, of so many agents.
    begin: as `begin_evaluation`.
    replay: as `replay_lines`.
    """

    records: Callable[..., Sequence[Any]]
    begin_records: Callable[..., None]
    agents: Callable[..., list[Any]]
    evaluate: Callable[..., Any]
    begin: Callable[..., None]
    passes: Callable[[int], int]
    replay: Callable[..., Iterator[str]]


def evaluator_of(env: Any) -> Evaluator:
    """Return the evaluator of an environment."""
    return ONE_ACCOUNT if env.config.joint else ONE_SYMBOL


# Environments of one symbol: all policies side by side.


def _lanes(
    env: Any,
    params: EnvParams | Sequence[EnvParams],
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    steps: EvaluationSteps | None,
) -> list[Lane]:
    each = params if isinstance(params, Sequence) else [params] * len(policies)
    decisions, key = (
        decision_bars(each[0].market, sessions, steps),
        jax.random.key(0),
    )  # a greedy policy never draws
    return [
        Lane(greedy(algorithm, policy, env), own.replace(sessions=sessions), decisions, key)
        for policy, own in zip(policies, each, strict=True)
    ]


def _side_by_side(
    env: Any,
    params: PyTree,
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    steps: EvaluationSteps | None,
    programs: Programs | None,
    seen: Callable[[Record, Lane], None] | None,
) -> list[Record]:
    lanes = _lanes(env, params, sessions, algorithm, policies, steps)
    records = run_account(env, lanes, True, programs)
    if seen is not None:
        seen(records[0], lanes[0])
    return records


def _begin_side_by_side(programs: Programs, env: Any, *given: Any) -> None:
    begin_lanes(programs, env, _lanes(env, *given), "account", True)


def _agents(
    env: Any, market: Market, params: EnvParams, config: RunConfig, *policy: Any
) -> list[Agent]:
    del params
    return standard_agents(env, market, config, *policy)


ONE_SYMBOL = Evaluator(
    records=_side_by_side,
    begin_records=_begin_side_by_side,
    agents=_agents,
    evaluate=evaluate_symbol,
    begin=begin_evaluation,
    passes=lambda agents: 2,
    replay=replay_lines,
)

# Environments of several symbols in one account: one policy after the other. Their programs are
# few, and compiled when they are needed.


def _in_turn(
    env: Any,
    params: PyTree,
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    *unused: Any,
) -> list[Any]:
    del unused
    each = params if isinstance(params, Sequence) else [params] * len(policies)
    decisions, key = decision_bars(each[0].market, sessions), jax.random.key(0)  # it never draws
    return [
        joint.backtest(
            env,
            joint.policy_agent(env, algorithm, policy),
            own.replace(sessions=sessions),
            decisions,
            True,
            key,
        )
        for policy, own in zip(policies, each, strict=True)
    ]


def _nothing(*unused: Any) -> None:
    del unused


ONE_ACCOUNT = Evaluator(
    records=_in_turn,
    begin_records=_nothing,
    agents=joint.joint_agents,
    evaluate=joint.evaluate_joint,
    begin=_nothing,
    passes=lambda agents: 2 * agents,
    replay=joint_lines,
)


def total_rewards(
    env: Any,
    params: PyTree,
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    programs: Programs | None = None,
    steps: EvaluationSteps | None = None,
    seen: Callable[[Record, Lane], None] | None = None,
) -> np.ndarray:
    """Return the total reward of each greedy policy on `sessions` (float64[policies]).

    The rewards are those of the account pass (`backtest.run_account`), of all policies side by
    side. An account lives on from session to session, so reward terms that pay for a level (not for
    a change) can be larger than in training. After the end of an account, the rest of its session
    earns 0. The program is compiled once per algorithm, number of policies and number of bars; new
    weights do not compile again. `programs` may hold it already (`Evaluator.begin_records`).

    Args:
        params: of all policies, or of each.
        steps: as in `DecisionBars`.
        seen: receives the record of the first policy, for a page that shows it; not of a portfolio.
    Raises DataError and ConfigError as `run_lanes`.
    """
    records = evaluator_of(env).records(
        env, params, sessions, algorithm, policies, steps, programs, seen
    )
    return np.array([record.reward.sum(dtype=np.float64) for record in records])


def mean_reward(
    env: Any, params: PyTree, sessions: SessionSet, algorithm: Learner, policies: Sequence[PyTree]
) -> float:
    """Return the mean reward per session of greedy policies on `sessions`, averaged over them.

    As `total_rewards`.
    """
    totals = total_rewards(env, params, sessions, algorithm, policies)
    return float(np.mean(totals)) / int(sessions.count)


@overload
def evaluate(
    env: Any,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent | FunctionAgent] | None = None,
    **given: Any,
) -> EvaluationResult: ...


@overload
def evaluate(
    env: Any,
    params: EnvParams,
    market: MarketSet,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent | FunctionAgent] | None = None,
    **given: Any,
) -> SetResult: ...


def evaluate(
    env: Any,
    params: Any,
    market: Markets,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Any] | None = None,
    **given: Any,
) -> Any:
    """Run agents over all decision bars of `sessions`, with account rules on and off.

        result = jaxtrade.evaluate(
            env, params, market, splits["test"], config, algorithm=ppo, policy=policy
        )

    Args:
        params: as from `make_params`. Of a set each symbol's are made from the configuration.
        market: as from `load_markets`.
        sessions: to evaluate on, as from `split_sessions`.
        agents: your own (`jaxtrade.agent`) and others. Default: the policy, greedy and sampled, and
            the baselines. They are for one symbol: a set takes none.
        given: further arguments by name: `algorithm`, `policy`, `provenance`, `trained_on`, `notes`
            (see `evaluate_symbol`).

    Returns:
        The evaluation; of a set a `SetResult` with that of each symbol, and all of them together;
        of symbols in one account an evaluation too.

    Raises:
        DataError: there is no session to evaluate on.
        ConfigError: agent names repeat, both agents and a policy are given, only one of algorithm
            and policy is, or equity comes near the int32 limit. Of a set: agents are given, or
            parameters that are not those of the configuration.
    """
    if env.config.joint and any(isinstance(each, FunctionAgent) for each in agents or ()):
        raise ConfigError(
            "evaluation: jt.agent makes agents that trade one symbol, and env.task=allocate holds "
            "several; leave them out"
        )
    if len(market.parts) == 1:
        return evaluator_of(env).evaluate(env, params, market, sessions, config, agents, **given)
    if agents is not None:
        raise ConfigError(
            "evaluation: agents are made for one symbol; give algorithm and policy for a set, or "
            "evaluate each of its members"
        )
    _check_params(params, market, sessions, config)
    several: Any = market
    return evaluate_set(env, several, sessions, config, **given)


def _check_params(
    params: EnvParams, market: Markets, sessions: SessionSet, config: RunConfig
) -> None:
    """Raise ConfigError unless the parameters of a set are those of the configuration.

    Market and sessions are left out of the comparison.
    """

    def flat(each: EnvParams) -> dict[str, Any]:
        leaves = jax.tree_util.tree_flatten_with_path(each.replace(market=None, sessions=None))[0]
        return {jax.tree_util.keystr(path): value for path, value in leaves}

    given, own = flat(params), flat(make_params(market, sessions, config))
    other = [name for name in own if not np.array_equal(given.get(name), own[name])]
    if other or len(given) > len(own):
        named = ", ".join(other or set(given) - set(own))
        raise ConfigError(
            f"evaluation: params differ from those of the configuration ({named}); for a set, change the "
            "configuration, or evaluate each of its members"
        )
