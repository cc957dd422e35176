"""The markets of a set in one shape, so that one compiled program evaluates every symbol.

Rows and sessions are padded to the longest symbol's. What one market has and another lacks gets
a value that means the same: the ask side of one-sided bars is the bid, a tick of a dollar market is
worth its constant value in every bar. Evaluation reads no padded row, so each symbol's result is
bit-identical to that of the symbol alone.

The symbols of a set are each a market of its own in the shape that all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.data.markets import MarketSet
from jaxtrade.data.members import member_configs
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.rl.acting import select_group
from jaxtrade.types import MarketData, PyTree, Quotes, SessionSet, TickValue


def in_one_shape(members: Sequence[EnvParams]) -> list[EnvParams]:
    """Give parameters equal tree structures, shapes and dtypes.

    New leaves are NumPy arrays: only the symbol that is evaluated needs to be on the device. Raises
    ValueError if the market views were built for different configurations.

    members: of one symbol each (scalar contracts), in any number.
    """
    if len(members) == 1:
        return list(members)
    views = {(each.market.view.scaling, each.market.view.features) for each in members}
    if len(views) > 1:
        raise ValueError(
            f"the markets show different features ({views}); build all of them from one configuration"
        )
    alike = [_with_parts_of_all(each, members) for each in members]
    rows = max(len(each.market.close) for each in alike)
    sessions = max(len(each.market.sessions.first) for each in alike)
    falls = max(
        (each.market.path.falls.shape[-1] for each in alike if each.market.path),
        default=0,
    )
    return [
        each.replace(
            market=_padded_market(each.market, rows, sessions, falls),
            sessions=padded_sessions(each.sessions, sessions),
        )
        for each in alike
    ]


def padded_sessions(sessions: SessionSet, size: int) -> SessionSet:
    """Pad the ids of a session set to `size`, by its first one."""
    ids = np.asarray(sessions.ids, np.int32)
    padded = np.pad(ids, (0, size - len(ids)), constant_values=ids[0] if len(ids) else 0)
    return SessionSet(ids=padded, count=sessions.count)  # type: ignore[arg-type]  # a host leaf


def _with_parts_of_all(params: EnvParams, members: Sequence[EnvParams]) -> EnvParams:
    """Add to the parameters every optional part that any member has."""
    market, contract, view = params.market, params.contract, params.market.view
    markets = [each.market for each in members]
    if not market.ask and any(each.ask for each in markets):
        market = market.replace(ask=Quotes(market.open, market.high, market.low, market.close))
    if not market.tick_value and any(each.tick_value for each in markets):
        ones = np.ones(len(market.close), np.int32)
        market = market.replace(tick_value=TickValue(ones * np.int32(contract.tick_mills), ones))  # type: ignore[arg-type]
        contract = contract.replace(tick_mills=None)
    if not all(each.path for each in markets):
        market = market.replace(path=None)
    if view.base is None and any(each.view.base is not None for each in markets):
        market = market.replace(view=view.replace(base=np.int32(0)))
    return params.replace(market=market, contract=contract)


def _padded_market(market: MarketData, rows: int, sessions: int, falls: int) -> MarketData:
    """Pad a market to `rows` rows, `sessions` sessions, and `falls` falls in each bar."""
    path = market.path
    if path:
        path = path.replace(falls=_pad(path.falls, falls, -1))
    by_row: dict[str, Any] = {
        name: getattr(market, name)
        for name in ("open", "high", "low", "close", "tr_sum", "bars_to_flat", "tick_value", "ask")
    }
    view = _pad_rows(market.view.replace(base=None), rows).replace(base=market.view.base)
    return market.replace(
        **_pad_rows(by_row, rows),
        path=_pad_rows(path, rows),
        view=view,
        sessions=_pad_rows(market.sessions, sessions),
    )


def _pad_rows(tree: PyTree, rows: int) -> PyTree:
    """Pad every leaf with zeros after its rows."""
    return jax.tree.map(lambda leaf: _pad(leaf, rows, 0), tree)


def _pad(leaf: Any, size: int, axis: int) -> Any:
    """Pad a leaf with zeros to `size` entries on an axis; one of that size stays as it is."""
    missing = size - leaf.shape[axis]
    if not missing:
        return leaf
    widths = [(0, 0)] * leaf.ndim
    widths[axis] = (0, missing)
    return np.pad(leaf, widths)


class SetMember(NamedTuple):
    """One symbol of a set.

    The leaves of market and parameters are NumPy arrays, in one shape for all symbols.

    sessions: its part of each session set.
    params: of the first of these.
    config: of this symbol alone.
    """

    market: Market
    sessions: dict[str, SessionSet]
    params: EnvParams
    config: RunConfig


def members_of(
    market: MarketSet, sessions: Mapping[str, SessionSet], config: RunConfig
) -> dict[str, SetMember]:
    """Return symbol -> member. Raises as `make_params`.

    sessions: session sets of the whole set by name, at least one.
    """
    configs, found = member_configs(config), []
    for number, (member, own) in enumerate(zip(market.members, configs, strict=True)):
        chosen = {name: member_sessions(market, each, number) for name, each in sessions.items()}
        found.append(
            SetMember(member, chosen, make_params(member, next(iter(chosen.values())), own), own)
        )
    alike = in_one_shape([each.params for each in found])
    size = len(alike[0].sessions.ids)
    return {
        each.market.contract.symbol: SetMember(
            replace(each.market, data=params.market),
            {name: padded_sessions(chosen, size) for name, chosen in each.sessions.items()},
            params,
            each.config,
        )
        for each, params in zip(found, alike, strict=True)
    }


def member_sessions(market: MarketSet, sessions: SessionSet, number: int) -> SessionSet:
    """Return the sessions of one symbol in a session set, as rows of its own session table.

    The session set is that of the symbol's market set.
    """
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    first, end = market.session_offsets[number : number + 2]
    return session_set(ids[(ids >= first) & (ids < end)] - first, int(end - first))


def for_member(policy: PyTree, number: int) -> PyTree:
    """Return a policy of a set as it acts on symbol `number`.

    It has the observation statistics of that symbol. The policy may be abstract
    (`jax.ShapeDtypeStruct`). A policy without statistics by symbol is returned as it is.
    """
    normaliser = getattr(policy, "normaliser", None)
    if not normaliser:
        return policy
    leaves = jax.tree.leaves(normaliser)
    if isinstance(leaves[0], jax.ShapeDtypeStruct):
        return policy.replace(
            normaliser=jax.eval_shape(lambda stats: select_group(stats, number), normaliser)
        )
    return policy.replace(normaliser=select_group(normaliser, number))
