"""The task `entry`: open a position. Its bracket, the flat bar or the floor of the account closes
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import SIDES, Action, bracket, legal_actions
from jaxtrade.env.observation import position_slots, position_values, window_slots, window_values
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef, Order, Slot
from jaxtrade.env.tasks.base import Task
from jaxtrade.types import Array


@dataclass(frozen=True)
class EntryTask(Task):
    """The actions HOLD, BUY and SELL. The observation holds the window of bars and the position."""

    def actions(self, config: EnvConfig) -> tuple[str, ...]:
        return (Action.HOLD.name, Action.BUY.name, Action.SELL.name)

    def sides(self, config: EnvConfig) -> tuple[int | None, ...]:
        return tuple(SIDES.get(name) for name in self.actions(config))

    def mask(self, config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
        legal = legal_actions(state, params)
        return jnp.stack([legal[name] for name in self.actions(config)])

    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        """BUY and SELL order `config.quantity` contracts with the fixed bracket. In a position they
        are illegal, and the order then keeps the position."""
        held = state.position.quantity
        entry = (action == Action.BUY) | (action == Action.SELL)
        side = jnp.where(action == Action.BUY, 1, -1)
        return bracket(state, jnp.where(entry & (held == 0), side * config.quantity, held), params)

    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        return (*window_slots(config), *position_slots())

    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        return window_values(config, ref, params), position_values(config, ref, params)


ENTRY = EntryTask()
