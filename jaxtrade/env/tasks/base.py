"""The interface of a task: the actions of an agent, their meaning, and the observation.

Each task has one module and one row in `parts`. To add a task from outside the package, register
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
from typing import NamedTuple

from jaxtrade.config import EnvConfig
from jaxtrade.env.state import (
    ContractParams,
    EnvParams,
    EnvState,
    Event,
    ObservationRef,
    Order,
    Slot,
)
from jaxtrade.parts import CONTEXTS, TASKS
from jaxtrade.types import Array, PyTree

HOLD = 0  # in every task, the id of the action that changes nothing


class RecordKeeper(NamedTuple):
    """The record of a task: data of an episode besides position, account and statistics.

    All are pure functions of one environment. new() -> `EnvState.record` at the start of an
    episode. add_bar(record, state before, state after, event, contract) -> record after a bar; the
    contract is that of the bar. seen(state) -> the part that a stored reference holds
    (`ObservationRef.account`).
    """

    new: Callable[[], PyTree]
    add_bar: Callable[[PyTree, EnvState, EnvState, Event, ContractParams], PyTree]
    seen: Callable[[EnvState], PyTree]


@dataclass(frozen=True)
class Task(abc.ABC):
    """A task with one symbol; frozen and hashable. Its methods are pure functions of one
    environment; batch with vmap.

    Action 0 (`HOLD`) is always legal and changes nothing. An illegal action is executed as HOLD.
    The environment executes an `Order`; it does not know the actions.

    context: names of the features of the decision bar that the market prepares
        (`observation.context_values`).
    record: None if the task keeps no record.
    """

    context: tuple[str, ...] = ()
    record: RecordKeeper | None = None

    @abc.abstractmethod
    def actions(self, config: EnvConfig) -> tuple[str, ...]:
        """Names of the A actions, in the order of their ids. A transfer between tasks matches
        actions by name.
        """

    @abc.abstractmethod
    def sides(self, config: EnvConfig) -> tuple[int | None, ...]:
        """For each action the side after it: 1, -1, 0, or None for an unchanged side. The fusion of
        advice uses it.
        """

    @abc.abstractmethod
    def mask(self, config: EnvConfig, state: EnvState, params: EnvParams) -> Array:
        """bool[A]: the legal actions at the close of `state.row`. It must not read a later bar."""

    @abc.abstractmethod
    def decode(self, config: EnvConfig, action: Array, state: EnvState, params: EnvParams) -> Order:
        """The order of a legal action (int32[]) at `state`."""

    @abc.abstractmethod
    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        """All slots of the observation in order, without those of advice."""

    @abc.abstractmethod
    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        """The values of `slots` as parts float32[n], to be concatenated.

        It may read `ref`, the float view of the market at rows up to `ref.row`, and constants of
        `params`.
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


def task_of(config: EnvConfig) -> Task:
    """The task that a configuration names."""
    return TASKS[config.task]


def action_names(config: EnvConfig) -> tuple[str, ...]:
    """Names of the actions of the configured task, in the order of their ids."""
    return task_of(config).actions(config)
