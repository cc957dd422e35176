"""Reward: a weighted sum of pure terms `(prev, next, happened, params) -> float32[]`.

A composition is a table of weights (`env.reward_presets` names some). Which terms it names is static (the keys of
`EnvParams.reward_weights` are part of the pytree's structure, so only those are compiled); the weights are leaves and
can be swept by `vmap`.
docs/rewards.md has formulas, units, sources and the known defects of the old systems' rewards.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.env.actions import Action
from jaxtrade.env.state import EnvParams, EnvState, Event, ExitReason
from jaxtrade.types import Array

DOLLARS = 1.0 / 1000.0  # per mill; a factor, as a compiler divides by a constant alone and multiplies in a batch


class Happened(NamedTuple):
    """What a term may know of a step besides the two states.

    action: int32[] as it was chosen. illegal: bool[], it was not in the mask: executed as HOLD. event: of the bar.
    """

    action: Array
    illegal: Array
    event: Event


Term = Callable[[EnvState, EnvState, Happened, EnvParams], Array]


def _count(value: Array) -> Array:
    return value.astype(jnp.float32)


def _did(happened: Happened, action: Action) -> Array:
    """bool[]: `action` was chosen and legal."""
    return (happened.action == action) & ~happened.illegal


def _closed_trades(prev: EnvState, next: EnvState) -> Array:
    return next.stats.trades - prev.stats.trades


def _wins(prev: EnvState, next: EnvState) -> Array:
    return next.stats.wins - prev.stats.wins


def equity_change(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """(equity at this close - equity at the last one) / risk_unit. Its sum is the episode's profit in risk units."""
    # The reciprocal written out: left to itself, a compiler divides alone and multiplies in a batch.
    return (next.account.equity - prev.account.equity).astype(jnp.float32) * (1.0 / params.account.risk_unit)


def net_return(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """(equity at this close - equity at the last one) / start balance: the change net of all costs as a share."""
    return (next.account.equity - prev.account.equity).astype(jnp.float32) * (1.0 / params.account.start_balance)


def closed_profit(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """Dollars: profit of the round turns closed in this bar, both commissions of each paid; 0 in other bars."""
    event = happened.event
    gross = next.account.balance - prev.account.balance + event.commission
    closed = jnp.abs(event.order_exit_quantity) + jnp.abs(event.exit_quantity)
    return (gross - 2 * closed * params.contract.commission).astype(jnp.float32) * DOLLARS


def win(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """Round turns closed in this bar with a profit after both commissions."""
    return _count(_wins(prev, next))


def loss(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """Round turns closed in this bar without a profit after both commissions."""
    return _count(_closed_trades(prev, next) - _wins(prev, next))


def trail_win(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """Wins of this bar whose trail was on: carried into the bar so, and not switched by this step's action."""
    on = (prev.position.trailing == 1) & ~_did(happened, Action.DISABLE_TRAIL) | _did(happened, Action.ENABLE_TRAIL)
    return _count(jnp.where(on, _wins(prev, next), 0))


def in_position(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 where a position is open at this bar's close."""
    return _count(next.position.quantity != 0)


def flat(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 where nothing is held at this bar's close and nothing was closed in it."""
    return _count((next.position.quantity == 0) & (_closed_trades(prev, next) == 0))


def floor_reached(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 where equity reached the drawdown floor or the daily-loss floor."""
    return _count(happened.event.breach)


def forced_flat(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 where the session's flat bar had to close the position."""
    return _count(happened.event.exit_reason == ExitReason.FLAT)


def breakeven_moved(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 for a legal MOVE_STOP_TO_BREAKEVEN."""
    return _count(_did(happened, Action.MOVE_STOP_TO_BREAKEVEN))


def trail_enabled(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 for a legal ENABLE_TRAIL."""
    return _count(_did(happened, Action.ENABLE_TRAIL))


def trail_enabled_in_profit(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """For a legal ENABLE_TRAIL: 1 with open profit above 1 % of the start balance at the decision, else -1."""
    open_profit = (prev.account.equity - prev.account.balance).astype(jnp.float32)
    rich = open_profit > 0.01 * params.account.start_balance
    return _count(_did(happened, Action.ENABLE_TRAIL)) * jnp.where(rich, 1.0, -1.0)


def profit_level(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """Dollars: max(0, equity at this close - start balance), in every bar. A level, not a change."""
    return jnp.maximum(next.account.equity, 0).astype(jnp.float32) * DOLLARS


def return_level(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """(equity at this close - start balance) / start balance, in every bar. A level, not a change."""
    return next.account.equity.astype(jnp.float32) * (1.0 / params.account.start_balance)


def illegal(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 for an action outside the mask. The masked sampler never draws one."""
    return _count(happened.illegal)


def illegal_management(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> Array:
    """1 for an action outside the mask that would have managed a position (ids from MOVE_STOP_TO_BREAKEVEN on)."""
    return _count(happened.illegal & (happened.action >= Action.MOVE_STOP_TO_BREAKEVEN))


TERMS: dict[str, Term] = {term.__name__: term for term in (
    equity_change, net_return, closed_profit, win, loss, trail_win, in_position, flat, floor_reached, forced_flat,
    breakeven_moved, trail_enabled, trail_enabled_in_profit, profit_level, return_level, illegal, illegal_management)}


def weighted_terms(prev: EnvState, next: EnvState, happened: Happened, params: EnvParams) -> dict[str, Array]:
    """Term -> float32[]: each term of the composition times its weight; the reward is their `total`."""
    terms = {name: _rounded(TERMS[name](prev, next, happened, params), next) for name in params.reward_weights}
    return {name: _rounded(weight * terms[name], next) for name, weight in params.reward_weights.items()}


def _rounded(value: Array, state: EnvState) -> Array:
    """`value`, rounded to float32 before anything is done with it: a compiler joins factors, and products with sums, in
    one program and not in another. The bits that are put over it are always 0, which no compiler knows."""
    nothing = state.time >> 31
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(value, jnp.int32) ^ nothing, jnp.float32)


def total(terms: dict[str, Array]) -> Array:
    """float32[]: the sum, in the order of the names (float addition is not associative)."""
    return functools.reduce(operator.add, [terms[name] for name in sorted(terms)])
