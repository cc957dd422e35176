"""Reward: a weighted sum of pure terms `(prev, next, step, params) -> float32[]`.

A composition is a table of weights; `env.reward_presets` names some. The names of its terms are
static: they are the keys of `EnvParams.reward_weights` and so part of the pytree's structure, and
only these terms are compiled. The weights are leaves, so `vmap` can sweep them. To add a term here,
write a function and add its name to `parts.REWARD_TERMS`. To add one from outside the package, use
`register_term`.

docs/features.md has formulas, units, sources, and the known defects of RL-Trainer's rewards.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.env.actions import Action
from jaxtrade.env.state import EnvParams, EnvState, ExitReason
from jaxtrade.parts import REWARD_TERMS
from jaxtrade.types import Array

# Dollars per mill. A factor instead of a divisor: a compiler may turn a division by a constant into
# a multiplication in one program (a batch) and not in another, which would change the bits.
DOLLARS = 1.0 / 1000.0
MANAGEMENT = tuple(action.name for action in Action if action >= Action.MOVE_STOP_TO_BREAKEVEN)


class StepEvent(struct.PyTreeNode):
    """The inputs of a reward term about a step, besides the two states.

    action: int32[], the chosen action.
    illegal: bool[], True if the mask forbade it; it was then executed as HOLD.
    event: an `Event` or a `PortfolioEvent`, of the bar.
    actions: names of the task's actions in the order of their ids (static).
    """

    action: Array
    illegal: Array
    event: Any
    actions: tuple[str, ...] = struct.field(pytree_node=False)

    def chosen(self, *names: str) -> Array:
        """Return whether one of these actions was chosen, legal or not (bool[]).

        It is False if the task has none of them.
        """
        ids = [i for i, name in enumerate(self.actions) if name in names]
        return functools.reduce(
            operator.or_, [self.action == i for i in ids], jnp.zeros_like(self.illegal)
        )

    def executed(self, name: str) -> Array:
        """Return whether the action was chosen and legal (bool[])."""
        return self.chosen(name) & ~self.illegal


Term = Callable[[EnvState, EnvState, StepEvent, EnvParams], Array]


def _count(value: Array) -> Array:
    return value.astype(jnp.float32)


def _closed_trades(prev: EnvState, next: EnvState) -> Array:
    return next.stats.trades - prev.stats.trades


def _wins(prev: EnvState, next: EnvState) -> Array:
    return next.stats.wins - prev.stats.wins


def equity_change(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return (equity at this close - equity at the last one) / risk_unit.

    Its sum is the episode's profit in risk units.
    """
    # The reciprocal is explicit. A compiler might divide in one program and multiply in another
    # (see DOLLARS).
    return (next.account.equity - prev.account.equity).astype(jnp.float32) * (
        1.0 / params.account.risk_unit
    )


def net_return(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return (equity at this close - equity at the last one) / start balance.

    It is the relative change, net of all costs.
    """
    return (next.account.equity - prev.account.equity).astype(jnp.float32) * (
        1.0 / params.account.start_balance
    )


def closed_profit(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return dollars: profit of the round turns closed in this bar, less both commissions of each.

    It is 0 in other bars.
    """
    event = step.event
    gross = next.account.balance - prev.account.balance + event.commission
    closed = jnp.abs(event.order_exit_quantity) + jnp.abs(event.exit_quantity)
    return (gross - 2 * closed * params.contract.commission).astype(jnp.float32) * DOLLARS


def win(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return the number of round turns closed in this bar with a profit after both commissions."""
    return _count(_wins(prev, next))


def loss(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return the number of round turns closed in this bar without a profit.

    The profit is after both commissions.
    """
    return _count(_closed_trades(prev, next) - _wins(prev, next))


def trail_win(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return the number of wins of this bar, if the trail was on.

    An action of this step that switches the trail counts.
    """
    off, on = step.executed(Action.DISABLE_TRAIL.name), step.executed(Action.ENABLE_TRAIL.name)
    trailed = (prev.position.trailing == 1) & ~off | on
    return _count(jnp.where(trailed, _wins(prev, next), 0))


def in_position(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 if a position is open at this bar's close."""
    return _count(next.position.quantity != 0)


def flat(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 if there is no position at this bar's close and none was closed in the bar."""
    return _count((next.position.quantity == 0) & (_closed_trades(prev, next) == 0))


def floor_reached(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 if equity reached the drawdown floor or the daily-loss floor."""
    return _count(step.event.breach)


def forced_flat(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 if the flat bar of the session closed the position."""
    return _count(step.event.exit_reason == ExitReason.FLAT)


def breakeven_moved(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 for a legal MOVE_STOP_TO_BREAKEVEN."""
    return _count(step.executed(Action.MOVE_STOP_TO_BREAKEVEN.name))


def trail_enabled(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 for a legal ENABLE_TRAIL."""
    return _count(step.executed(Action.ENABLE_TRAIL.name))


def trail_enabled_in_profit(
    prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams
) -> Array:
    """Return 1 for a legal ENABLE_TRAIL in profit, -1 for another legal one.

    In profit means that open profit exceeds 1 % of the start balance at the decision.
    """
    open_profit = (prev.account.equity - prev.account.balance).astype(jnp.float32)
    rich = open_profit > 0.01 * params.account.start_balance
    return jnp.where(step.executed(Action.ENABLE_TRAIL.name), jnp.where(rich, 1.0, -1.0), 0.0)


def profit_level(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return dollars: max(0, equity at this close - start balance), in every bar.

    It is a level, not a change.
    """
    return jnp.maximum(next.account.equity, 0).astype(jnp.float32) * DOLLARS


def return_level(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return (equity at this close - start balance) / start balance, in every bar.

    It is a level, not a change.
    """
    return next.account.equity.astype(jnp.float32) * (1.0 / params.account.start_balance)


def illegal(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 for an action outside the mask. The masked sampler never draws such an action."""
    return _count(step.illegal)


def illegal_management(prev: EnvState, next: EnvState, step: StepEvent, params: EnvParams) -> Array:
    """Return 1 for an action outside the mask that manages a position (one of MANAGEMENT)."""
    return _count(step.illegal & step.chosen(*MANAGEMENT))


def register_term(term: Term) -> Term:
    """Register your own term under the name of its function, for `reward.weights`.

    A decorator: it returns the term.

    Raises ConfigError if another term has this name.
    """
    return REWARD_TERMS.register(term.__name__, term)


def weighted_terms(prev: Any, next: Any, step: StepEvent, params: Any) -> dict[str, Array]:
    """Return each term of the composition times its weight, float32[] by name.

    The reward is their `total`.

    Args:
        prev, next, params: of any environment.
    """
    terms = {name: REWARD_TERMS[name](prev, next, step, params) for name in params.reward_weights}
    for name, value in terms.items():
        chex.assert_shape(value, (), custom_message=f"reward term '{name}'")
        chex.assert_type(value, jnp.float32, custom_message=f"reward term '{name}'")
    terms = {name: _round_value(value, next) for name, value in terms.items()}
    return {
        name: _round_value(weight * terms[name], next)
        for name, weight in params.reward_weights.items()
    }


def _round_value(value: Array, state: EnvState) -> Array:
    """Round `value` to float32 before it is used.

    A compiler may fuse factors, or a product with a sum, in one program and not in another. The
    results would then differ in their last bits. The function applies xor with a number that is
    always 0. The compiler cannot know this, so it must compute the bits of `value` first.
    """
    nothing = state.time >> 31
    return jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(value, jnp.int32) ^ nothing, jnp.float32
    )


def total(terms: dict[str, Array]) -> Array:
    """Sum the terms in the order of the names (float32[]; float addition is not associative)."""
    return functools.reduce(operator.add, [terms[name] for name in sorted(terms)])
