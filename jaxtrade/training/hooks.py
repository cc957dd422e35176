"""Hooks, which the training loop calls at every chunk border.

Also the exchange of data with the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, Learner, PyTree

Hparams = Mapping[
    str, float | Array | np.ndarray
]  # tunable floats by name: one for all agents, or one for each
NO_HPARAMS: Hparams = MappingProxyType({})
Memories = dict[str, dict[str, Any]]  # memory of each stateful hook, by the hook's name


class Change(NamedTuple):
    """The changes that a hook requests. `Change()` requests none.

    stop: end the run here.
    hparams: new hyper-parameters by name; a float for all agents, or an array with one value
        per agent.
    state: a new training state, for example with the parameters of one agent copied to another.
        `hparams` are set after the state is replaced.
    save: write a checkpoint of the state after the change, to which an agent or the run goes back
        when it diverges later.
    """

    stop: bool = False
    hparams: Hparams = NO_HPARAMS
    state: PyTree | None = None
    save: bool = False


# (state, updates done) -> Change. The state is valid only during the call, because the next chunk
# donates its arrays.
Hook = Callable[[PyTree, int], Change]


@runtime_checkable
class StatefulHook(Protocol):
    """A hook with a memory of its own.

    The metadata of each checkpoint holds the memory as `hooks.<name>`. A rollback restores the
    memory too, and a resumed run gives the hook the memory of its checkpoint.
    """

    @property
    def name(self) -> str:
        """The name under which checkpoints keep the memory."""
        ...

    def __call__(self, state: PyTree, update: int) -> Change: ...

    def memory(self) -> dict[str, Any]:
        """Return the memory as JSON values.

        It is read at the start of the run and just before each checkpoint.
        """
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Take over a memory that `memory` returned."""
        ...


def memories(hooks: Sequence[Hook]) -> Memories:
    """Collect the memory of every stateful hook."""
    return {hook.name: hook.memory() for hook in hooks if isinstance(hook, StatefulHook)}


def recall(hooks: Sequence[Hook], saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore the memory of every stateful hook."""
    for hook in hooks:
        if isinstance(hook, StatefulHook):
            hook.recall(saved[hook.name])


def apply_change(state: PyTree, change: Change) -> PyTree:
    """Apply a hook's change to the training state.

    Raises:
        ConfigError: a hyper-parameter does not exist or has another shape.
        ValueError: the new state does not fit the compiled program.
    """
    if change.state is not None:
        _check_replacement(state, change.state)
        state = jax.tree.map(
            jnp.copy, change.state
        )  # the next chunk donates its input; the hook keeps its own arrays
    return set_hparams(state, change.hparams)


def _check_replacement(old: Any, new: Any) -> None:
    shapes = [
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
        for state in (old, new)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "a hook's Change.state has other arrays than the training state; it must keep the tree, and "
            "the shape and dtype of every leaf"
        )
    if not np.array_equal(old.update, new.update):
        raise ValueError(
            f"a hook's Change.state is at update {new.update}, the run at {old.update}; keep `update`"
        )


def set_hparams(state: PyTree, values: Hparams) -> PyTree:
    """Return `state` with new hyper-parameters.

    They are part of the state, so they stay until the next change. Raises ConfigError for an
    unknown name or another shape.

    values: by name, a float for all agents, or an array with the shape of the state's own ([N] for
        N agents).
    """
    if not values:
        return state
    hparams: Any = state.hparams
    known: dict[str, Any] = {} if hparams is None else vars(hparams)
    new: dict[str, Array] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"'{name}' is not a tunable float of this run (there are: {', '.join(known) or 'none'})"
            )
        old = known[name]
        if np.shape(value) not in ((), old.shape):
            raise ConfigError(
                f"hyper-parameter '{name}' has shape {np.shape(value)}; give one number, or one for each "
                f"agent {old.shape}"
            )
        new[name] = jnp.copy(jnp.broadcast_to(jnp.asarray(value, old.dtype), old.shape))
    return state.replace(hparams=hparams.replace(**new))  # pyright: ignore[reportOptionalMemberAccess] (it has names)


class Exchange(Protocol):
    """Exchange of data between a run and the host.

    `inputs` and `receive` run on the host; they never wait or raise.
    """

    def wrap(self, algorithm: Learner) -> Learner:
        """Add the exchange's own part to the algorithm's state (of one agent or a population)."""
        ...

    def close_chunk(self, state: Any) -> tuple[Any, PyTree]:
        """Close a chunk -> (state, news for the host). A pure function, compiled into the chunk."""
        ...

    def inputs(self, update: int, updates: int) -> PyTree:
        """Return the inputs of the chunk's updates, or None.

        They are NumPy arrays [updates, ...] with constant shapes.
        """
        ...

    def receive(self, update: int, news: PyTree) -> None:
        """Take the news that `close_chunk` returned, as NumPy arrays.

        update: last update of that chunk.
        """
        ...
