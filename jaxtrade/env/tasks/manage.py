"""The task `manage`: open a position, move its stop, trail it, close it."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action, breakeven_stop
from jaxtrade.env.observation import flag_slots, flag_values
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef, Order, Slot
from jaxtrade.env.tasks.entry import EntryTask
from jaxtrade.types import Array


@dataclass(frozen=True)
class ManageTask(EntryTask):
    """All actions of `Action`; with `env.actions=seed6` without CLOSE. The observation adds three
    flags to `entry`'s.
    """

    def actions(self, config: EnvConfig) -> tuple[str, ...]:
        return tuple(
            action.name for action in Action if config.actions == "full" or action != Action.CLOSE
        )

    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        order = super().decode(config, action, state, params)
        return order.replace(
            quantity=jnp.where(action == Action.CLOSE, 0, order.quantity),
            move_stop=jnp.where(
                action == Action.MOVE_STOP_TO_BREAKEVEN,
                breakeven_stop(state, params),
                order.move_stop,
            ),
            trail=jnp.where(
                action == Action.ENABLE_TRAIL,
                1,
                jnp.where(action == Action.DISABLE_TRAIL, 0, order.trail),
            ),
        )

    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        return (*super().slots(config), *flag_slots())

    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        return (*super().observe(config, ref, params), flag_values(ref))


MANAGE = ManageTask()
