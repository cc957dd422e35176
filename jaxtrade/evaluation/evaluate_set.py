"""`evaluate` for a set of symbols: each symbol by itself, in programs that are compiled once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.data.market_set import MarketSet
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.evaluation.evaluate import evaluate
from jaxtrade.evaluation.members import bars_of, for_member, members_of
from jaxtrade.evaluation.set_report import SetResult
from jaxtrade.types import Algorithm, PyTree, SessionSet


def evaluate_set(
    env: TradingEnv, market: MarketSet, sessions: SessionSet, config: RunConfig, *, algorithm: Algorithm | None = None,
    policy: PyTree = None, provenance: Mapping[str, Any] | None = None, trained_on: SessionSet | None = None,
    notes: Sequence[str] = ()
) -> SetResult:
    """Evaluate a policy of a set, and the baselines, on every symbol.

    Each symbol has an account of its own, costs of its own, and the observation statistics that the policy has for it.

    Args:
        market, sessions: the set and some of its sessions (`split_sessions`).
        config: of the run. algorithm, policy, provenance, trained_on, notes: as in `evaluate`.
    Raises:
        DataError: a symbol has no session among these.
        ConfigError: as `evaluate`, for any symbol.
    """
    given = {"evaluated": sessions} | ({} if trained_on is None else {"trained": trained_on})
    members = members_of(market, given, config)
    steps = max(bars_of(each.market, each.sessions["evaluated"]) for each in members.values())
    found = {}
    for number, (symbol, each) in enumerate(members.items()):
        own = None if policy is None else for_member(policy, number)
        found[symbol] = evaluate(env, jax.device_put(each.params), each.market, each.sessions["evaluated"], each.config,
                                 algorithm=algorithm, policy=own, provenance=provenance,
                                 trained_on=each.sessions.get("trained"), notes=notes, steps=steps)
    digests = {"config_sha256": config.digest(), "data_sha256": market.fingerprint}
    return SetResult(found, dict(provenance or {}), digests)
