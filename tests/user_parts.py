"""What a user writes in a module of their own: a task of nine actions with a record, and a reward
term.

Importing it registers both.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.actions import bracket, hold
from jaxtrade.env.observation import (
    context_slots,
    context_values,
    position_slots,
    position_values,
    window_slots,
    window_values,
)
from jaxtrade.env.rewards import register_term
from jaxtrade.env.state import Slot
from jaxtrade.env.tasks.base import RecordKeeper, Task, register_task

TRAILS = {"": -1, "_TRAIL": 1, "_NO_TRAIL": 0}  # what an action does to the trail, as `Order.trail`
SIDES = {"HOLD": None, "LONG": 1, "SHORT": -1}  # the side that it opens


def no_entries():
    return jnp.int32(0)


def count_entries(record, prev, next, event, contract):
    return record + (event.entry_quantity != 0)


def entries_seen(state):
    return state.record


@dataclass(frozen=True)
class ProductTask(Task):
    """A product table: what to open, times what to do about the trail. Shows how often an episode
    has entered.
    """

    def actions(self, config):
        return tuple(side + trail for side in SIDES for trail in TRAILS)

    def sides(self, config):
        return tuple(side for side in SIDES.values() for _ in TRAILS)

    def mask(self, config, state, params):
        held, trailing = state.position.quantity != 0, state.position.trailing == 1
        holds = jnp.stack([jnp.ones_like(held), held & ~trailing, held & trailing])
        return jnp.concatenate([holds, jnp.tile(~held & rules.may_open(state, params), 6)])

    def decode(self, config, action, state, params):
        side, trail = (
            action // len(TRAILS),
            jnp.asarray([*TRAILS.values()], jnp.int32)[action % len(TRAILS)],
        )
        opened = bracket(state, jnp.where(side == 1, config.quantity, -config.quantity), params)
        kept = hold(state)
        return opened.replace(
            quantity=jnp.where(side == 0, kept.quantity, opened.quantity), trail=trail
        )

    def slots(self, config):
        return (
            *window_slots(config),
            *position_slots(),
            *context_slots(self.context),
            Slot("entries", "count", 0),
        )

    def observe(self, config, ref, params):
        return (
            window_values(config, ref, params),
            position_values(config, ref, params),
            context_values(config, self.context, ref, params),
            ref.account.astype(jnp.float32)[None],
        )


register_task(
    "product", ProductTask(("spread", "adx"), RecordKeeper(no_entries, count_entries, entries_seen))
)


@register_term
def entries(prev, next, step, params):
    """1 for a bar in which a position was opened."""
    return (step.event.entry_quantity != 0).astype(jnp.float32)
