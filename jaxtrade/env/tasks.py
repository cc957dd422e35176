"""Tasks as decoders from an action to an Order; everything after the Order is the same for all of them."""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action, breakeven_stop
from jaxtrade.env.execution import stop_distance
from jaxtrade.env.state import KEEP_STOP, EnvParams, EnvState, Order
from jaxtrade.types import Array


def hold(state: EnvState) -> Order:
    """Keep the position, its stop, its target and its trail as they are."""
    zero = jnp.int32(0)
    return Order(state.position.quantity, zero, zero, jnp.int32(KEEP_STOP), jnp.int32(-1))


def bracket(state: EnvState, quantity: Array, params: EnvParams) -> Order:
    """Want `quantity` (signed), a new position with the fixed bracket: stop in ATRs, target a multiple of it."""
    stop_ticks = stop_distance(params.market.tr_sum[state.row], params)
    return Order(quantity, stop_ticks, params.brackets.target_multiple * stop_ticks, jnp.int32(KEEP_STOP),
                 jnp.int32(-1))


def decode(config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
    """Order of a legal action of `entry`, `manage` or `advised`.

    BUY and SELL ask for `config.quantity` contracts; where a position exists they are illegal and keep it.
    """
    entry = (action == Action.BUY) | (action == Action.SELL)
    side = jnp.where(action == Action.BUY, 1, -1)
    order = bracket(state, jnp.int32(0), params)
    wanted = jnp.where(entry & (state.position.quantity == 0), side * config.quantity, state.position.quantity)
    return order.replace(
        quantity=jnp.where(action == Action.CLOSE, 0, wanted),
        move_stop=jnp.where(action == Action.MOVE_STOP_TO_BREAKEVEN, breakeven_stop(state, params), KEEP_STOP),
        trail=jnp.where(action == Action.ENABLE_TRAIL, 1, jnp.where(action == Action.DISABLE_TRAIL, 0, -1)),
    )
