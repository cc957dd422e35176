"""Guards: rules of the user's own about when a position may be opened (`env.guards`).

A guarded task is the task with its counts in the record and its conditions in the mask. A task
without guards is returned as it is. docs/semantics.md has the rules.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxtrade.config import EnvConfig
from jaxtrade.config.market import GuardsConfig
from jaxtrade.env import rules
from jaxtrade.env.episode import closes
from jaxtrade.env.state import (
    ContractParams,
    EnvParams,
    EnvState,
    Event,
    Order,
)
from jaxtrade.env.tasks.base import RecordKeeper, Task
from jaxtrade.parts import TASKS
from jaxtrade.types import Array, PyTree


class GuardRecord(struct.PyTreeNode):
    """What the guards count; int32[]. It holds for the session in which it was written.

    entries: positions opened.
    wait: bars until one at whose close the next entry may be decided. No row, because a market that
        grows bar by bar (`jaxtrade.stream`) counts its rows anew.
    task: the record of the guarded task.
    """

    entries: Array
    wait: Array
    task: PyTree


def may_open(config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
    """Return `rules.may_open`, and whether the guards permit it too (bool[])."""
    legal, guards = rules.may_open(state, params), config.guards
    if not guards.on:
        return legal
    account, record = state.account, state.record
    change = account.equity - account.session_equity
    if guards.daily_stop:
        legal &= change > -round(1000 * guards.daily_stop)
    if guards.daily_goal:
        legal &= change < round(1000 * guards.daily_goal)
    if guards.trades_per_day:
        legal &= ~account.traded | (record.entries < guards.trades_per_day)
    if guards.cooldown or guards.cooldown_after_loss:
        # A reversal would open in the bar in which the trade ends.
        rested = (state.position.quantity == 0) & (record.wait <= 0)
        legal &= ~account.traded | rested
    return legal


def _own(state: EnvState) -> EnvState:
    """Return the state as the guarded task knows it."""
    return state.replace(record=state.record.task)


@dataclass(frozen=True)
class GuardedTask:
    """A task whose entries the guards of its configuration limit; all else is that of the task."""

    task: Task
    record: RecordKeeper

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a copy, before it has its task
            raise AttributeError(name)
        return getattr(self.task, name)

    def mask(self, config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
        """Return the task's mask, without the openings that the guards forbid (bool[A]).

        An action opens if the side after it is long or short, and not that of the position.
        """
        mask, side = self.task.mask(config, _own(state), params), jnp.sign(state.position.quantity)
        legal = may_open(config, state, params)
        after = jnp.array([after or 0 for after in self.sides(config)])
        return mask & (legal | (after == 0) | (after == side))

    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        return self.task.decode(config, action, _own(state), params)


@functools.lru_cache(maxsize=64)
def add_guards(task: Task, guards: GuardsConfig) -> Any:
    """Return the task with guards; it has all that a `Task` has."""
    keeper = task.record
    longest = max(guards.cooldown, guards.cooldown_after_loss)

    def add_bar(
        record: GuardRecord, prev: EnvState, next: EnvState, event: Event, contract: ContractParams
    ) -> GuardRecord:
        # A session without a fill so far has no counts: those of the one before end here.
        entries, left = (
            jnp.where(prev.account.traded, count, 0) for count in (record.entries, record.wait - 1)
        )
        for close in closes(event, prev.position.entry, contract):
            wait = jnp.where(close.won, guards.cooldown, longest)
            left = jnp.where(close.closed, jnp.maximum(left, wait), left)
        kept = keeper.add_bar(record.task, _own(prev), _own(next), event, contract)
        return GuardRecord(entries + (event.entry_quantity != 0), left, kept)

    record = RecordKeeper(
        lambda: GuardRecord(jnp.int32(0), jnp.int32(0), keeper.new()),
        add_bar,
        lambda state: keeper.seen(_own(state)),
    )
    return GuardedTask(task, record)


def task_of(config: EnvConfig) -> Task:
    """Return the task that a configuration names, with the guards that it asks for."""
    task = TASKS[config.task]
    return add_guards(task, config.guards) if config.guards.on else task
