"""What the training loop calls at every chunk border: hooks with the changes that they ask for, and an exchange with
the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.errors import ConfigError
from jaxtrade.types import Algorithm, Array, PyTree

Memories = dict[str, dict[str, Any]]  # of hooks, by name


class Change(NamedTuple):
    """What a hook changes. `Change()` changes nothing.

    stop: the run ends here. hparams: hyper-parameters from here on, by name; a float for all agents, or an array with
    one value for each. state: takes the place of the whole training state, before `hparams` are set in it (copy one
    agent's parameters over another's, say).
    """

    stop: bool = False
    hparams: Mapping[str, float | Array | np.ndarray] = MappingProxyType({})
    state: PyTree | None = None


# (state, updates done) -> Change. The state is valid during the call alone: the next chunk takes its arrays over.
Hook = Callable[[PyTree, int], Change]


@runtime_checkable
class StatefulHook(Protocol):
    """A hook whose decisions follow from earlier ones. Its memory is saved in each checkpoint's metadata, as
    `hooks.<name>`, and set back where the run rolls back. A resumed run hands it the memory of its checkpoint."""

    @property
    def name(self) -> str: ...

    def __call__(self, state: PyTree, update: int) -> Change: ...

    def memory(self) -> dict[str, Any]:
        """JSON values; asked for when the run begins and just before each checkpoint is written."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None: ...


def memories(hooks: Sequence[Hook]) -> Memories:
    """The memory of every stateful hook."""
    return {hook.name: hook.memory() for hook in hooks if isinstance(hook, StatefulHook)}


def recall(hooks: Sequence[Hook], saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Set the memory of every stateful hook back."""
    for hook in hooks:
        if isinstance(hook, StatefulHook):
            hook.recall(saved[hook.name])


def changed(state: PyTree, change: Change) -> PyTree:
    """The training state after a hook's change. Raises ConfigError for hyper-parameters that do not exist or have
    another shape, ValueError for a state that the compiled program could not take."""
    if change.state is not None:
        _check_replacement(state, change.state)
        state = jax.tree.map(jnp.copy, change.state)  # the next chunk takes its input over; the hook keeps its arrays
    return set_hparams(state, change.hparams)


def _check_replacement(old: Any, new: Any) -> None:
    shapes = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state) for state in (old, new)]
    if shapes[0] != shapes[1]:
        raise ValueError("a hook's Change.state has other arrays than the training state; it must keep the tree, and "
                         "the shape and dtype of every leaf")
    if not np.array_equal(old.update, new.update):
        raise ValueError(f"a hook's Change.state is at update {new.update}, the run at {old.update}; keep `update`")


def set_hparams(state: PyTree, values: Mapping[str, float | Array | np.ndarray]) -> PyTree:
    """`state` with some hyper-parameters changed, for good: they are part of the state.

    values: by name, a float for all agents, or an array of the shape that the state's own have, [N] for N agents.
    Raises ConfigError for an unknown name or another shape.
    """
    if not values:
        return state
    hparams: Any = state.hparams
    known = {} if hparams is None else {name: getattr(hparams, name) for name in hparams.__dataclass_fields__}
    new: dict[str, Array] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"'{name}' is not a tunable float of this run (there are: {', '.join(known) or 'none'})")
        old = known[name]
        if np.shape(value) not in ((), old.shape):
            raise ConfigError(f"hyper-parameter '{name}' has shape {np.shape(value)}; give one number, or one for each "
                              f"agent {old.shape}")
        new[name] = jnp.copy(jnp.broadcast_to(jnp.asarray(value, old.dtype), old.shape))
    return state.replace(hparams=hparams.replace(**new))  # pyright: ignore[reportOptionalMemberAccess] (it has names)


class Exchange(Protocol):
    """What a run exchanges with the host. The host's methods (`inputs`, `receive`) neither wait nor raise."""

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm (of one agent or a population) with what the exchange adds to its state; static."""
        ...

    def close_chunk(self, state: Any) -> tuple[Any, PyTree]:
        """Pure, compiled as the end of a chunk: the state, and news for the host."""
        ...

    def inputs(self, update: int, updates: int) -> PyTree:
        """NumPy arrays [updates, ...]: the inputs of the chunk's updates, of constant shapes; None where there are
        none."""
        ...

    def receive(self, update: int, news: PyTree) -> None:
        """The news that `close_chunk` gave at the end of the chunk that ended with `update`, as NumPy arrays."""
        ...
