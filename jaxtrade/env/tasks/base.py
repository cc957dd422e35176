"""What a task is: what an agent may do, what its actions mean, what it sees. One module per task, one row in `parts`.

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
from typing import TYPE_CHECKING, NamedTuple

from jaxtrade.config import EnvConfig
from jaxtrade.env.state import ContractParams, EnvParams, EnvState, Event, Order
from jaxtrade.parts import TASKS
from jaxtrade.types import Array, PyTree

if TYPE_CHECKING:
    from jaxtrade.env.observation import ObservationRef, Slot


HOLD = 0  # the id, in every task, of the action that leaves everything as it is


class RecordKeeper(NamedTuple):
    """What a task remembers of an episode beside position, account and statistics. Pure functions of one environment.

    new() -> `EnvState.record` as an episode begins. add_bar(record, state before, state after, event, contract) -> the
    record after a bar; contract: of that bar. seen(state) -> what a stored reference keeps of it
    (`ObservationRef.account`).
    """

    new: Callable[[], PyTree]
    add_bar: Callable[[PyTree, EnvState, EnvState, Event, ContractParams], PyTree]
    seen: Callable[[EnvState], PyTree]


@dataclass(frozen=True)
class Task(abc.ABC):
    """A task of one symbol; frozen and hashable. Methods are pure and of one environment; batch with vmap.

    Action 0 (`HOLD`) is always legal and leaves everything as it is; an illegal action is executed as it. What the
    environment executes is an `Order`, whatever task it comes from.

    context: features of the bar decided on that the market prepares (`observation.context_values`), by name.
    record: None where nothing is remembered.
    """

    context: tuple[str, ...] = ()
    record: RecordKeeper | None = None

    @abc.abstractmethod
    def actions(self, config: EnvConfig) -> tuple[str, ...]:
        """The A action names in id order. A policy is carried from task to task by them."""

    @abc.abstractmethod
    def sides(self, config: EnvConfig) -> tuple[int | None, ...]:
        """For each action the side held after it: 1, -1, 0, or None for the side held before. Advice needs it."""

    @abc.abstractmethod
    def mask(self, config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
        """bool[A]: the actions that are legal at the close of `state.row`. Reads no later bar."""

    @abc.abstractmethod
    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        """The order that a legal action (int32[]) means at `state`."""

    @abc.abstractmethod
    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        """Every slot of the observation in order, advice apart."""

    @abc.abstractmethod
    def observe(self, config: EnvConfig, ref: ObservationRef, params: EnvParams) -> tuple[Array, ...]:
        """Parts, float32[n] each, that one after the other are the values of `slots`. Read `ref` and, of `params`, the
        market's float view at rows up to `ref.row` and what never changes."""


def register_task(name: str, task: Task) -> Task:
    """Make `env.task=NAME` known and return the task. Raises ConfigError where another task has the name, TypeError
    where `task` is none."""
    if not isinstance(task, Task):
        raise TypeError(f"task '{name}' is a {type(task).__name__}; expected an instance of a class derived from "
                        "jaxtrade.env.tasks.base.Task")
    return TASKS.register(name, task)


def task_of(config: EnvConfig) -> Task:
    """The task that a configuration names."""
    return TASKS[config.task]


def action_names(config: EnvConfig) -> tuple[str, ...]:
    """The actions of the configured task, in id order."""
    return task_of(config).actions(config)
