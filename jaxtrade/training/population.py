"""Several agents as one program.

These are the algorithm mapped over agents, `Stack`, which knows their number, and the devices that
they train on.

Agent i gets the same result as an agent trained alone from the same key, up to rounding, because
another program may add floats in another order. A single agent is not stacked: its program is that
of the algorithm itself, and its results are bit-identical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.load import SweepAgent, agents_of
from jaxtrade.errors import ConfigError
from jaxtrade.storage.sinks import EACH
from jaxtrade.storage.sizes import tree_bytes
from jaxtrade.types import AGENTS, Array, Learner, LoopState, PyTree, Row

# A function of many agents, computed for a few of them at a time.
#
# On a CPU, many agents side by side are slower than a few: their numbers leave its cache. Then
# groups of agents take turns inside the program.

LARGEST = (
    32 * 2**20
)  # bytes of an agent's state, beyond which a second copy of all states would cost too much


def group_size(count: int, most: int) -> int:
    """Return the largest group size, at most `most`, into which `count` agents divide."""
    return next(size for size in range(min(count, most), 0, -1) if count % size == 0)


def in_turns(
    function: Callable[..., Any], axes: tuple[Any, ...], most: int | None
) -> Callable[..., Any]:
    """Return `jax.vmap(function, axes)`, computed for at most `most` agents side by side.

    Agents whose state is large are computed together, because groups that take turns need a second
    copy of all states.

    Args:
        axes: 0, None or a tree of both for each argument, as `in_axes` of `jax.vmap`; the first one
            is 0.
        most: number of agents; None: all of them.
    """
    together = jax.vmap(function, axes)
    if most is None:
        return together

    def call(*args: Any) -> Any:
        leaves, treedef = jax.tree.flatten(args)
        flags = [flag for axis, arg in zip(axes, args, strict=True) for flag in map_axes(axis, arg)]
        count = leaves[0].shape[0]
        size = group_size(count, most)
        if size == count or tree_bytes(args[0]) > LARGEST * count:
            return together(*args)

        groups = [  # None, which is no array to `map`, where the agents share one
            leaf.reshape(count // size, size, *leaf.shape[1:]) if flag else None
            for leaf, flag in zip(leaves, flags, strict=True)
        ]

        def of_group(own: list[Any]) -> Any:
            taken = [all_ if each is None else each for all_, each in zip(leaves, own, strict=True)]
            return together(*jax.tree.unflatten(treedef, taken))

        return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), jax.lax.map(of_group, groups))

    return call


def map_axes(axis: Any, arg: PyTree) -> list[bool]:
    """Return for every leaf of an argument whether it has an axis of agents.

    axis: one for all of them, or a tree above them.
    """
    found: list[bool] = []
    jax.tree.map(
        lambda own, below: found.extend([own is not None] * len(jax.tree.leaves(below))),
        axis,
        arg,
        is_leaf=lambda x: x is None,
    )
    return found


class Axes(NamedTuple):
    """The arguments that differ between the agents of a population, as `in_axes` of `jax.vmap`.

    key: axis of the key of `init`. 0: one key per agent. None: all agents start from the same key.
    params: axis, or tree of axes, of the environment parameters. None: the agents share them.
    inputs: axis, or tree of axes, of the inputs of `update` (advice). None: the agents share them.
    name: name of the mapped axis, over which the agents may add up numbers (`env.shared`). None:
        they never meet.
    """

    key: int | None = 0
    params: Any = None
    inputs: Any = None
    name: str | None = None


MOST_SHOWN = 16  # agents of a sweep in the opening lines of a run
SEEDS = Axes()  # agents that differ by their keys alone


def population(algorithm: Learner, axes: Axes = SEEDS) -> Learner:
    """Make the algorithm of N agents.

    Its `init` and `update` work on stacked states [N, ...] and return metrics [N, ...]. A
    population is a `Learner` too, so it can be stacked again: states [K, N, ...]. `act` stays that
    of one agent. Agents that never meet may be computed in groups that take
    turns (`LearnerInfo.together`).
    """
    init = jax.vmap(algorithm.init, (axes.key, axes.params), axis_name=axes.name)
    if axes.name is None:
        update = in_turns(algorithm.update, (0, axes.params, axes.inputs), algorithm.info.together)
    else:
        update = jax.vmap(algorithm.update, (0, axes.params, axes.inputs), axis_name=axes.name)
    return algorithm._replace(init=init, update=update, info=algorithm.info._replace(together=None))


@dataclass(frozen=True)
class Stack:
    """The number of agents in one program, and the layout of their arrays.

    shape: leading axes of every array of the state. () means one agent, without a leading axis.
    axes: what differs between the agents along each leading axis, outermost first. Empty: only
        their keys differ (`SEEDS`).
    swept: the agents of a sweep, which have settings of their own. Empty: they differ by their
        seeds alone.

    Agents are counted in row-major order over `shape`. In folders, flags and reports an agent has a
    number: its seed, or in a sweep, where several agents have the same seed, its index.
    """

    shape: tuple[int, ...] = ()
    axes: tuple[Axes, ...] = ()
    swept: tuple[SweepAgent, ...] = ()

    def __post_init__(self) -> None:
        if not self.axes:
            object.__setattr__(self, "axes", (SEEDS,) * len(self.shape))
        if any(size < 1 for size in self.shape) or len(self.axes) != len(self.shape):
            raise ValueError(f"a Stack needs sizes of at least 1 and one Axes for each, got {self}")
        if self.swept and self.shape != (len(self.swept),):
            raise ValueError(
                f"a Stack of {len(self.swept)} agents of a sweep has the shape ({len(self.swept)},), not "
                f"{self.shape}"
            )

    @classmethod
    def of(cls, agents: int | Stack) -> Stack:
        """Make the stack for a number of agents.

        One agent gets the empty shape. A `Stack` is returned unchanged.
        """
        if isinstance(agents, Stack):
            return agents
        return cls() if agents == 1 else cls((agents,))

    @classmethod
    def of_run(cls, config: RunConfig) -> Stack:
        """Make the stack of a run's agents.

        It lacks what those of a sweep have of their own (`Setup.stack`).
        """
        if config.shared.on:
            return cls((config.agents,), (Axes(name=AGENTS),))
        return (
            cls((config.agents,), swept=agents_of(config))
            if config.sweep.on
            else cls.of(config.agents)
        )

    @property
    def meets(self) -> bool:
        """Whether the agents trade in one market, so that none of them can be put back alone."""
        return any(axes.name is not None for axes in self.axes)

    # --- the algorithm -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of agents."""
        return math.prod(self.shape)

    @property
    def key_shape(self) -> tuple[int, ...]:
        """The shape of the keys that `init` takes."""
        return tuple(
            size for size, axes in zip(self.shape, self.axes, strict=True) if axes.key is not None
        )

    def wrap(self, algorithm: Learner) -> Learner:
        """Return the algorithm of all agents. For one agent it is the same object."""
        for axes in reversed(self.axes):
            algorithm = population(algorithm, axes)
        return algorithm

    def map(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of one agent's arrays into a function of all agents' arrays."""
        for _ in self.shape:
            function = jax.vmap(function)
        return function

    def keys(self, seed: int) -> Array:
        """Make typed keys of the seeds `seed`, `seed + 1`, ..., of `key_shape`.

        Of a sweep, they are of the agents' own seeds.
        """
        if not self.key_shape:
            return jax.random.key(seed)
        own = [agent.seed - self.swept[0].seed for agent in self.swept] or np.arange(
            math.prod(self.key_shape)
        )
        seeds = jnp.asarray(own, jnp.uint32) + jnp.uint32(seed)
        return jax.vmap(jax.random.key)(seeds).reshape(self.key_shape)

    def split_key(self, key: Array) -> Array:
        """Return keys of `key_shape`.

        A single key gives `fold_in(key, i)` for agent i; an array of keys is returned as it is.
        Raises ConfigError if `key` holds another number of keys.
        """
        if self.key_shape and key.shape == ():
            numbers = jnp.arange(math.prod(self.key_shape))
            return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers).reshape(self.key_shape)
        if key.shape != self.key_shape:
            raise ConfigError(
                f"{self._describe_request}: got {key.size} keys; give one, or one per agent"
            )
        return key

    # --- their arrays ------------------------------------------------------------------------------------------------

    def check(self, state: LoopState) -> None:
        """Raise ConfigError if `state` is for another number of agents."""
        if state.update.shape != self.shape:
            raise ConfigError(
                f"{self._describe_request}: the given state is of {state.update.size} agent(s); keep the value that "
                "the run was started with"
            )

    @property
    def _describe_request(self) -> str:
        """How the configuration asks for so many agents."""
        return f"sweep of {self.count} agents" if self.swept else f"train.num_seeds={self.count}"

    def like(self, tree: PyTree) -> PyTree:
        """Return shapes and dtypes of all agents' arrays, given one agent's arrays."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((*self.shape, *x.shape), x.dtype), tree)

    def agent(self, tree: PyTree, i: int) -> PyTree:
        """Select agent i's part of a state or a policy."""
        if not self.shape:
            return tree
        where = tuple(int(index) for index in np.unravel_index(i, self.shape))
        return jax.tree.map(lambda x: x[where], tree)

    def agents(self, tree: PyTree) -> list[PyTree]:
        """List every agent's part, in order."""
        return [self.agent(tree, i) for i in range(self.count)]

    def first(self, count: Array) -> int:
        """Return the value of a count that is equal for all agents, as an int."""
        return int(np.asarray(count).reshape(-1)[0])

    # --- their figures -----------------------------------------------------------------------------------------------

    def row(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Convert the metrics of one update to Python numbers and lists.

        With several agents they are as in `mean_and_each`.
        """
        if not self.shape:
            return {name: value.tolist() for name, value in metrics.items()}
        skip = len(self.shape)
        return mean_and_each(
            {
                name: value.reshape(self.count, *value.shape[skip:])
                for name, value in metrics.items()
            }
        )

    def histories(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return for each agent its own rows, as in `agent_rows`."""
        return (
            [list(agent_rows(rows, i)) for i in range(self.count)] if self.shape else [list(rows)]
        )

    def each(self, rows: Sequence[Row], name: str) -> np.ndarray:
        """Return one metric of all agents, float64[len(rows), *shape, ...]."""
        values = np.array([row[name + EACH if self.shape else name] for row in rows], np.float64)
        return values.reshape(len(rows), *self.shape, *values.shape[2:]) if self.shape else values

    # --- their names, folders and messages ----------------------------------------------------------------------------

    def numbers(self, seed: int) -> range:
        """Return the number of every agent, in order. seed: of the run."""
        return range(self.count) if self.swept else range(seed, seed + self.count)

    def index(self, number: int, seed: int) -> int:
        """Return the index of the agent with this number. seed: of the run."""
        return number if self.swept else number - seed

    def folder(self, path: Path, number: int) -> Path:
        """Return the folder of one agent.

        It is `path` for one agent, `path/seed_<n>` for several, `path/agent_<nnn>` in a sweep.
        """
        if self.swept:
            return path / f"agent_{number:03d}"
        return path / f"seed_{number}" if self.shape else path

    def flag(self, number: int) -> list[str]:
        """Return the words of a command line that choose this agent; none for a single agent."""
        return ["--agent" if self.swept else "--seed", str(number)] if self.shape else []

    def provenance(self, number: int) -> dict[str, Any]:
        """Return entries that say which agent a report is about."""
        if self.swept:
            agent = self.swept[number]
            return {
                "agent": agent.index,
                "trained_seed": agent.seed,
                "overrides": dict(agent.overrides),
            }
        return {"trained_seed": number} if self.shape else {}

    def label(self, number: int) -> str:
        """Name the agent in a message: "seed 3", "agent 2 (ppo.learning_rate=0.001, seed 0)".

        It is "" for a single agent.
        """
        if self.swept:
            return f"agent {number} ({self.swept[number].text})"
        return f"seed {number}" if self.shape else ""

    def describe(self, seed: int, steps: int) -> list[str]:
        """Describe the agents at the start of a run; none for a single agent."""
        if not self.shape:
            return []
        each = f"each for {steps:,} steps; figures are means over them"
        if not self.swept:
            return [
                f"{self.count} agents as one program, seeds {seed} .. {seed + self.count - 1}, {each}"
            ]
        more = len(self.swept) - MOST_SHOWN
        return [
            f"{self.count} agents as one program, {each}",
            *(f"  agent {agent.index}: {agent.text}" for agent in self.swept[:MOST_SHOWN]),
            *([f"  and {more} more, in agents.json"] if more > 0 else []),
        ]

    @property
    def mean_label(self) -> str:
        """Suffix for the name of a mean over agents."""
        return (
            f", mean of {self.count} {'agents' if self.swept else 'seeds'}," if self.shape else ""
        )


def mean_and_each(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Combine the metrics of one update, each [N, ...].

    `name`: the mean over the agents where it is not NaN; for a flag, whether it is True for
    all agents.
    `name/each`: a list by agent.
    """
    row: dict[str, Any] = {}
    for name, value in values.items():
        row[name] = bool(value.all()) if value.dtype == np.bool_ else _mean(value).tolist()
        row[name + EACH] = value.tolist()
    return row


def _mean(value: np.ndarray) -> np.ndarray:
    defined = ~np.isnan(value)
    count = defined.sum(axis=0)
    total = np.where(defined, value, 0).sum(axis=0, dtype=np.float64)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)


def agent_rows(rows: Sequence[Row], i: int) -> list[dict[str, Any]]:
    """Return rows as agent i alone would have written them.

    The entries about time (`seconds` and the like) are left out.
    """
    return [
        {name.removesuffix(EACH): value[i] for name, value in row.items() if name.endswith(EACH)}
        for row in rows
    ]


# Where a run's program runs: on one device, or divided over several.


class RunDevices:
    """The devices of a run: here the default one. `rl.sharding.MeshDevices` has several."""

    def wrap(self, algorithm: Learner, stack: Stack) -> Learner:
        """Return the learner of all agents.

        Its `init` is over all devices, its `update` is what one device computes.
        """
        return stack.wrap(algorithm)

    def program(self, run: Callable[..., Any], state: PyTree, params: PyTree) -> Any:
        """Return the jitted chunk, which donates the state.

        Args:
            run: (state, params, inputs) -> (state, metrics, news), of one device.
            state, params: arrays, or their shapes.
        """
        del state, params
        return jax.jit(run, donate_argnums=0)

    def put(self, state: PyTree) -> PyTree:
        """Convert a state in the form of checkpoints to what the program takes."""
        return state

    def reshard(self, state: PyTree) -> PyTree:
        """Return a state as the program takes it, after the host has changed some of its arrays."""
        return state

    def copy(self, state: PyTree) -> PyTree:
        """Copy the arrays to memory of their own, because the program donates what it is given.

        Unlike `jnp.copy`, this compiles nothing.
        """
        return jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=False), state)

    def put_params(self, params: PyTree) -> PyTree:
        """Put the environment's parameters on the devices."""
        return params

    def gather(self, state: PyTree) -> PyTree:
        """Convert a state to the form of checkpoints and hooks.

        The form is the same for any number of devices. With several processes, all of them must
        call this together.
        """
        return state


ONE_DEVICE = RunDevices()
