"""The symbols of a set, each as a market of its own in the shape that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.data.market_set import MarketSet
from jaxtrade.data.members import member_configs
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.one_shape import in_one_shape, padded_sessions
from jaxtrade.rl.observing import select_group
from jaxtrade.types import PyTree, SessionSet


class Member(NamedTuple):
    """One symbol of a set. The leaves of market and parameters are NumPy arrays, in one shape for
    all symbols.

    sessions: its part of each session set. params: of the first of these. config: of this symbol
        alone.
    """

    market: Market
    sessions: dict[str, SessionSet]
    params: EnvParams
    config: RunConfig


def members_of(
    market: MarketSet, sessions: Mapping[str, SessionSet], config: RunConfig
) -> dict[str, Member]:
    """symbol -> member. sessions: session sets of the whole set by name, at least one. Raises as
    `make_params`.
    """
    configs, found = member_configs(config), []
    for number, (member, own) in enumerate(zip(market.members, configs, strict=True)):
        chosen = {name: member_sessions(market, each, number) for name, each in sessions.items()}
        found.append(
            Member(member, chosen, make_params(member, next(iter(chosen.values())), own), own)
        )
    alike = in_one_shape([each.params for each in found])
    size = len(alike[0].sessions.ids)
    return {
        each.market.contract.symbol: Member(
            replace(each.market, data=params.market),
            {name: padded_sessions(chosen, size) for name, chosen in each.sessions.items()},
            params,
            each.config,
        )
        for each, params in zip(found, alike, strict=True)
    }


def member_sessions(market: MarketSet, sessions: SessionSet, number: int) -> SessionSet:
    """The sessions of one symbol in a session set of its market set, as rows of its own session
    table.
    """
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    first, end = market.session_offsets[number : number + 2]
    return session_set(ids[(ids >= first) & (ids < end)] - first, int(end - first))


def for_member(policy: PyTree, number: int) -> PyTree:
    """A policy of a set as it acts on symbol `number`: with the observation statistics of that
    symbol.

    The policy may be abstract (`jax.ShapeDtypeStruct`). A policy without statistics by symbol is
    returned as it is.
    """
    normaliser = getattr(policy, "normaliser", None)
    if normaliser is None:
        return policy
    leaves = jax.tree.leaves(normaliser)
    if isinstance(leaves[0], jax.ShapeDtypeStruct):
        return policy.replace(
            normaliser=jax.eval_shape(lambda stats: select_group(stats, number), normaliser)
        )
    return policy.replace(normaliser=select_group(normaliser, number))
