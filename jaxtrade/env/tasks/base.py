"""The interface of a task: the actions of an agent, their meaning, and the observation.

Each task has a class here and a row in `parts`. To add a task from outside the package, register
it:

    class Fast(ManageTask):
        def actions(self, config): return (*super().actions(config), "REVERSE")
        def mask(self, config, state, params): ...
        def decode(self, config, action, state, params): ...

    register_task("fast", Fast())  # from then on env.task=fast
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.data.features.schema import CONTEXT_FEATURES, DUAL_FEATURES
from jaxtrade.env.actions import SIDES, Action, bracket, breakeven_stop, legal_actions
from jaxtrade.env.episode import RISKS, account_seen, add_bar, new_record, risk_slots
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
from jaxtrade.env.state import (
    ContractParams,
    EnvParams,
    EnvState,
    Event,
    ObservationRef,
    Order,
    Slot,
)
from jaxtrade.errors import ConfigError
from jaxtrade.parts import CONTEXTS, TASKS
from jaxtrade.types import Array, PyTree

HOLD = 0  # in every task, the id of the action that changes nothing


class RecordKeeper(NamedTuple):
    """The record of a task: data of an episode besides position, account and statistics.

    All are pure functions of one environment.

    new() -> `EnvState.record` at the start of an episode.
    add_bar(record, state before, state after, event, contract) -> record after a bar; the contract
        is that of the bar.
    seen(state) -> the part that a stored reference holds (`ObservationRef.account`).
    """

    new: Callable[[], PyTree]
    add_bar: Callable[[PyTree, EnvState, EnvState, Event, ContractParams], PyTree]
    seen: Callable[[EnvState], PyTree]


NO_RECORD = RecordKeeper(
    new=lambda: None, add_bar=lambda record, *bar: record, seen=lambda state: None
)


@dataclass(frozen=True)
class Task(abc.ABC):
    """A task with one symbol; frozen and hashable.

    Its methods are pure functions of one environment; batch with vmap.

    Action 0 (`HOLD`) is always legal and changes nothing. An illegal action is executed as HOLD.
    The environment executes an `Order`; it does not know the actions.

    context: names of the features of the decision bar that the market
        prepares (`observation.context_values`).
    """

    context: tuple[str, ...] = ()
    record: RecordKeeper = NO_RECORD

    @property
    def shows_record(self) -> bool:
        """Whether the policy may see the record."""
        return self.record is not NO_RECORD

    @abc.abstractmethod
    def actions(self, config: EnvConfig) -> tuple[str, ...]:
        """List the names of the A actions, in the order of their ids.

        A transfer between tasks matches actions by name.
        """

    @abc.abstractmethod
    def sides(self, config: EnvConfig) -> tuple[int | None, ...]:
        """Return for each action the side after it: 1, -1, 0, or None for an unchanged side.

        The fusion of advice uses it.
        """

    @abc.abstractmethod
    def mask(self, config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
        """Return the legal actions at the close of `state.row` (bool[A]).

        It must not read a later bar.
        """

    @abc.abstractmethod
    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        """Convert a legal action (int32[]) at `state` to its order."""

    @abc.abstractmethod
    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        """List all slots of the observation in order, without those of advice."""

    @abc.abstractmethod
    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        """Return the values of `slots` as parts float32[n], to be concatenated.

        It may read `ref`, the float view of the market at rows up to `ref.row`, and
        constants of `params`.
        """


def register_task(name: str, task: Task) -> Task:
    """Register a task for `env.task=NAME`, and return it.

    Raises ConfigError if another task has this name, TypeError if `task` is not a `Task`.
    """
    if not isinstance(task, Task):
        raise TypeError(
            f"task '{name}' is a {type(task).__name__}; expected an instance of a class derived from "
            "jaxtrade.env.tasks.base.Task"
        )
    TASKS.register(name, task)
    if task.context:
        CONTEXTS.register(name, task.context)
    return task


# The task `advised`: the actions of `manage`; the observation adds context of the bar and the
# trade record.

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
        """Convert BUY and SELL to orders for `config.quantity` contracts with the fixed bracket.

        In a position they are illegal, and the order then keeps the position.
        """
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
    """All actions of `Action`; with `env.actions=seed6` without CLOSE.

    The observation adds three flags to `entry`'s.
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
    """The observation of `manage`, context of the decision bar, and the trade record (5 slots)."""

    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        return (*super().slots(config), *context_slots(self.context), *RISKS)

    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        return (
            *super().observe(config, ref, params),
            context_values(config, self.context, ref, params),
            risk_slots(config.scaling, ref.account, params.account),
        )


ADVISED = AdvisedTask(CONTEXT_FEATURES, RecordKeeper(new_record, add_bar, account_seen))


class JointTask:
    """The row of `allocate` in the table of tasks.

    A task has one symbol; this one has an environment of its own, so that any use of it as a task
    raises ConfigError.
    """

    context = DUAL_FEATURES

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigError(
            "env.task=allocate holds several symbols: its environment is "
            "jaxtrade.env.portfolio.dynamics.PortfolioEnv, not TradingEnv; jaxtrade.make_env makes it "
            "from a whole configuration: make_env(config), not make_env(config.env)"
        )


ALLOCATE = JointTask()
