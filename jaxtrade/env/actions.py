"""Ids, names and legality of the built-in tasks' actions, and the order that opens a position."""

from __future__ import annotations

import enum

import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.execution import quote_at, stop_distance
from jaxtrade.env.state import KEEP_STOP, EnvParams, EnvState, Order
from jaxtrade.types import Array


class Action(enum.IntEnum):
    """Actions of the built-in tasks: ids are stable, and each task uses a prefix of them.

    A user's task has its own names and ids.
    """

    HOLD = 0
    BUY = 1
    SELL = 2
    MOVE_STOP_TO_BREAKEVEN = 3
    ENABLE_TRAIL = 4
    DISABLE_TRAIL = 5
    CLOSE = 6


SIDES = {
    Action.BUY.name: 1,
    Action.SELL.name: -1,
    Action.CLOSE.name: 0,
}  # side after the action; others keep the side


def breakeven_stop(state: EnvState, params: EnvParams) -> Array:
    """Return the entry fill plus be_ticks on the winning side (int32[] ticks)."""
    position = state.position
    return position.entry + jnp.sign(position.quantity) * params.contract.be_ticks


def legal_actions(state: EnvState, params: EnvParams) -> dict[str, Array]:
    """Return legality by name, bool[] each, at the close of `state.row`.

    It depends on no future bar.

    HOLD is always legal. BUY and SELL need a flat account and `rules.may_open`.
    MOVE_STOP_TO_BREAKEVEN must tighten the stop, and leave it at least one tick on the losing side
    of the close (with two-sided bars, of the side at which the position would be closed).
    ENABLE_TRAIL needs the trail off, the stop at or beyond the entry fill, and an open profit (a
    rule of RL-Trainer). DISABLE_TRAIL needs the trail on. CLOSE needs a position.
    """
    position = state.position
    side = jnp.sign(position.quantity)
    held = position.quantity != 0
    close = quote_at(params.market, state.row).leaving(side).close
    may_enter = ~held & rules.may_open(state, params)
    breakeven = breakeven_stop(state, params)
    trailing = position.trailing == 1
    return {
        "HOLD": jnp.ones_like(held),
        "BUY": may_enter,
        "SELL": may_enter,
        "MOVE_STOP_TO_BREAKEVEN": held
        & (side * (close - breakeven) >= 1)
        & (side * (breakeven - position.stop) > 0),
        "ENABLE_TRAIL": held
        & ~trailing
        & (side * (position.stop - position.entry) >= 0)
        & (side * (close - position.entry) > 0),
        "DISABLE_TRAIL": held & trailing,
        "CLOSE": held,
    }


# Basic orders, which tasks, baselines and the environment itself use.


def hold(state: EnvState) -> Order:
    """Keep the position, its stop, its target and its trail as they are."""
    zero = jnp.int32(0)
    return Order(state.position.quantity, zero, zero, jnp.int32(KEEP_STOP), jnp.int32(-1))


def bracket(state: EnvState, quantity: Array, params: EnvParams) -> Order:
    """Build an order for `quantity` (int32[], signed) with the fixed bracket.

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
