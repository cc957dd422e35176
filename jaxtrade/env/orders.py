"""Basic orders, which tasks, baselines and the environment itself use."""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.env.execution import stop_distance
from jaxtrade.env.state import KEEP_STOP, EnvParams, EnvState, Order
from jaxtrade.types import Array


def hold(state: EnvState) -> Order:
    """Keep the position, its stop, its target and its trail as they are."""
    zero = jnp.int32(0)
    return Order(state.position.quantity, zero, zero, jnp.int32(KEEP_STOP), jnp.int32(-1))


def bracket(state: EnvState, quantity: Array, params: EnvParams) -> Order:
    """An order for `quantity` (int32[], signed) with the fixed bracket.

    The stop is a multiple of the ATR, and the target is a multiple of the stop.
    """
    stop_ticks = stop_distance(params.market.tr_sum[state.row], params)
    return Order(
        quantity,
        stop_ticks,
        params.brackets.target_multiple * stop_ticks,
        jnp.int32(KEEP_STOP),
        jnp.int32(-1),
    )
