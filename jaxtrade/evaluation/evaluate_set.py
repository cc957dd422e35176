"""`evaluate` of the public API, for one symbol or a set: each symbol of a set by itself, in
programs that are compiled once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market, MarketSet
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import evaluate as one_symbol
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.evaluation.members import for_member, members_of
from jaxtrade.evaluation.record import decision_bars, longest
from jaxtrade.evaluation.set_report import SetResult
from jaxtrade.types import Algorithm, PyTree, SessionSet

if TYPE_CHECKING:
    from jaxtrade.evaluation.report import EvaluationResult


@overload
def evaluate(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent] | None = None,
    **given: Any,
) -> EvaluationResult: ...


@overload
def evaluate(
    env: TradingEnv,
    params: EnvParams,
    market: MarketSet,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent] | None = None,
    **given: Any,
) -> SetResult: ...


def evaluate(
    env: TradingEnv,
    params: EnvParams,
    market: Market | MarketSet,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent] | None = None,
    **given: Any,
) -> EvaluationResult | SetResult:
    """Run agents over all decision bars of `sessions`, twice: with account rules on and with
    account rules off.

        result = jaxtrade.evaluate(env, params, market, splits["test"], config, algorithm=ppo,
        policy=policy)

    Args:
        params: as from `make_params`. Of a set each symbol's are made from the configuration.
        market: one symbol, or a set of them. sessions: to evaluate on, as from `split_sessions`.
        agents: default: the policy, greedy and sampled, and the baselines. They are for one symbol:
            a set takes none.
        given: further arguments by name: `algorithm`, `policy`, `provenance`, `trained_on`, `notes` (see
            `evaluation.evaluate.evaluate`).
    Returns:
        The evaluation; of a set a `SetResult` with that of each symbol, and all of them together.
    Raises:
        DataError: there is no session to evaluate on.
        ConfigError: agent names repeat, both agents and a policy are given, only one of algorithm
            and policy is, or equity comes near the int32 limit. Of a set: agents are given, or
            parameters that are not those of the configuration.
    """
    if not isinstance(market, MarketSet):
        return one_symbol.evaluate(env, params, market, sessions, config, agents, **given)
    if agents is not None:
        raise ConfigError(
            "evaluation: agents are made for one symbol; give algorithm and policy for a set, or "
            "evaluate each of its members"
        )
    _check_params(params, market, sessions, config)
    return evaluate_set(env, market, sessions, config, **given)


def _check_params(
    params: EnvParams, market: MarketSet, sessions: SessionSet, config: RunConfig
) -> None:
    """Raise ConfigError unless the parameters of a set are those of the configuration, market and
    sessions apart.
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


def evaluate_set(
    env: TradingEnv,
    market: MarketSet,
    sessions: SessionSet,
    config: RunConfig,
    *,
    algorithm: Algorithm | None = None,
    policy: PyTree = None,
    provenance: Mapping[str, Any] | None = None,
    trained_on: SessionSet | None = None,
    notes: Sequence[str] = (),
) -> SetResult:
    """Evaluate a policy of a set, and the baselines, on every symbol.

    Each symbol has an account of its own, costs of its own, and the observation statistics that the
    policy has for it.

    Args:
        market, sessions: the set and some of its sessions (`split_sessions`).
        config: of the run. algorithm, policy, provenance, trained_on, notes: as in `evaluate`.
    Raises:
        DataError: a symbol has no session among these.
        ConfigError: as `evaluate`, for any symbol.
    """
    given = {"evaluated": sessions} | ({} if trained_on is None else {"trained": trained_on})
    members = members_of(market, given, config)
    steps = longest(
        [decision_bars(each.market.data, each.sessions["evaluated"]) for each in members.values()]
    )
    found = {}
    for number, (symbol, each) in enumerate(members.items()):
        own = None if policy is None else for_member(policy, number)
        found[symbol] = one_symbol.evaluate(
            env,
            jax.device_put(each.params),
            each.market,
            each.sessions["evaluated"],
            each.config,
            algorithm=algorithm,
            policy=own,
            provenance=provenance,
            trained_on=each.sessions.get("trained"),
            notes=notes,
            steps=steps,
        )
    digests = {"config_sha256": config.digest(), "data_sha256": market.fingerprint}
    return SetResult(found, dict(provenance or {}), digests)
