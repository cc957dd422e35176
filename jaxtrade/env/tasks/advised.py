"""The task `advised`: the actions of `manage`; the observation adds context of the bar and the
trade record.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.data.features.schema import CONTEXT_FEATURES
from jaxtrade.env.actions import SIDES, Action, bracket, breakeven_stop, legal_actions
from jaxtrade.env.episode import RISK_SLOTS, account_seen, add_bar, new_record, risk_slots
from jaxtrade.env.observation import (
    context_slots,
    context_values,
    flag_slots,
    flag_values,
    position_slots,
    position_values,
    window_slots,
    window_values,
)
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef, Order, Slot
from jaxtrade.env.tasks.base import RecordKeeper, Task
from jaxtrade.types import Array

# The task `manage`: open a position, move its stop, trail it, close it.

# The task `entry`: open a position. Its bracket, the flat bar or the floor of the account closes
# it.


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


@dataclass(frozen=True)
class AdvisedTask(ManageTask):
    """The observation of `manage`, context features of the decision bar, and five slots of the
    trade record.
    """

    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        risks = (Slot(name, "account", 0) for name in RISK_SLOTS)
        return (*super().slots(config), *context_slots(self.context), *risks)

    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        return (
            *super().observe(config, ref, params),
            context_values(config, self.context, ref, params),
            risk_slots(config.scaling, ref.account, params.account),
        )


ADVISED = AdvisedTask(CONTEXT_FEATURES, RecordKeeper(new_record, add_bar, account_seen))
