"""Which actions of `allocate` are legal: permissions to trade, and caps on the positions after an
action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.env import rules
from jaxtrade.env.portfolio.state import PortfolioParams, PortfolioState
from jaxtrade.env.portfolio.table import wanted
from jaxtrade.types import Array


class Choices(NamedTuple):
    """What each action would do. quantity: int32[A, S] contracts. changed: int32[A] legs. legal:
    bool[A].
    """

    quantity: Array
    changed: Array
    legal: Array


def wait(state: PortfolioState, params: PortfolioParams) -> Array:
    """int32[]: bars until an order is allowed by `cooldown` and `gate`; 0 if one is allowed now."""
    limits, first = params.limits, params.market.sessions.first[params.sessions.ids[state.slot]]
    cool = jnp.maximum(state.last_order + limits.cooldown + 1 - state.row, 0)
    return cool + (first - state.row - cool) % limits.gate


def trades_left(state: PortfolioState, params: PortfolioParams) -> Array:
    """int32[]: legs that orders may still change in this session."""
    return params.limits.trades - state.orders


def choices(config: AllocateConfig, state: PortfolioState, params: PortfolioParams) -> Choices:
    """The actions at the close of `state.row`. It reads no later bar."""
    limits, held = params.limits, state.legs.quantity
    units = wanted(config, held // limits.size, limits.max_units)
    quantity = units * limits.size
    differs = quantity != held
    changed = differs.sum(axis=-1)
    opens = (differs & ((jnp.abs(quantity) > jnp.abs(held)) | (quantity * held < 0))).any(axis=-1)
    sizes = jnp.abs(units)
    within = (
        (sizes.max(axis=-1) <= limits.max_units)
        & (sizes.sum(axis=-1) <= limits.max_total)
        & (jnp.abs(quantity).sum(axis=-1) <= params.account.max_contracts)
    )
    market: Any = params  # `may_open` reads the row, the lock, `bars_to_flat` and `tr_sum`, which both kinds have
    opening: Any = state
    permitted = (wait(state, params) == 0) & (changed <= trades_left(state, params))
    legal = (changed == 0) | (permitted & (~opens | (within & rules.may_open(opening, market))))
    return Choices(quantity, changed, legal)
