"""A run on several devices: the chunk's program, divided by agents and by environments.

The devices form a mesh of two axes. Agents of a population are divided over the first one, without
communication. The environments of each agent are divided over the second one: a device computes a
rollout of its own environments, and the devices add their gradients once for each minibatch
(`networks.reductions`). Parameters are the same on all devices.

Everything inside `Spread.around` is the program of one device: `jax.shard_map` goes around a whole
chunk of updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxtrade.config.running import divide_devices
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce, one_by_one
from jaxtrade.rl.train_state import Kind, TrainState, all_of, kinds_of
from jaxtrade.storage.host_arrays import to_devices, to_host
from jaxtrade.text import several
from jaxtrade.training.population import RunDevices, Stack, map_axes
from jaxtrade.types import Learner, PyTree

AGENTS, ENVS = "agent_devices", "env_devices"  # axes of the mesh
PARTS = "parts"  # mapped axis of the groups on one device, for strict sums


class MeshShape(NamedTuple):
    """The layout of a run on a mesh.

    agents, envs: devices along both axes of the mesh.
    groups: parts of an agent's environments for strict sums, over all devices; 0: as many as
        devices, and sums as the devices compute them.
    """

    agents: int
    envs: int
    groups: int = 0

    @property
    def parts(self) -> int:
        """Parts of an agent's environments, over all devices."""
        return self.groups or self.envs

    @property
    def reduce(self) -> Reduce:
        """How a learner adds up metrics over its parts."""
        if self.groups:
            return Reduce(ENVS, PARTS)
        return LOCAL if self.envs == 1 else Reduce(ENVS)

    @property
    def is_plain(self) -> bool:
        """Whether a run needs no mesh: one device, and plain sums."""
        return self == MeshShape(1, 1)


def plan_mesh(devices: int, agents: int, groups: int, strict: bool) -> MeshShape:
    """Plan the layout of a run (`config.running.divide_devices`).

    Raises ConfigError if the groups cannot be shared evenly.

    Args:
        groups: of the environments of an agent.
    """
    try:
        along, envs = divide_devices(devices, agents, groups)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return MeshShape(along, envs, groups if strict else 0)


def mesh_of(layout: MeshShape, devices: Any = None) -> Mesh:
    """Build the mesh of a layout.

    Raises ConfigError if there are too few devices, or, for several processes, too many: each of
    them must train.

    Args:
        devices: default: the first ones of all processes.
    """
    found, needed = jax.devices() if devices is None else devices, layout.agents * layout.envs
    if len(found) < needed:
        raise ConfigError(
            f"parallel.devices={needed}: JAX sees {len(found)} ({found[0].platform}); use at most so "
            "many, or start more processes (docs/scale.md)"
        )
    if devices is None and jax.process_count() > 1 and needed < len(found):
        raise ConfigError(
            f"parallel.devices={needed}: the {jax.process_count()} processes of this run have "
            f"{len(found)} devices, and each of them must be used; set parallel.devices=all"
        )
    chosen = np.array(found[:needed]).reshape(layout.agents, layout.envs)
    return Mesh(chosen, (AGENTS, ENVS), axis_types=(AxisType.Auto, AxisType.Auto))


@dataclass(frozen=True)
class MeshDevices(RunDevices):
    """A run on the devices of a mesh.

    layout, mesh: as of `mesh_of`.
    part: the learner of one part, made with `layout.reduce`.
    stack: all agents of the run.
    num_envs: environments of an agent, over all devices.
    """

    layout: MeshShape
    mesh: Mesh
    part: Learner
    stack: Stack
    num_envs: int

    @property
    def local(self) -> Stack:
        """The agents on one device."""
        if self.layout.agents == 1:
            return self.stack
        return Stack((self.stack.count // self.layout.agents,), self.stack.axes)

    def describe(self) -> str:
        """Describe the devices of a run in one line."""
        agents, envs, groups = self.layout
        shares = [
            f"{self.stack.count} agents over {agents}" if agents > 1 else "",
            f"the {self.num_envs} environments of an agent over {envs}" if envs > 1 else "",
        ]
        how = "the same bits on any number of devices" if groups else ""
        return f"{several(agents * envs, 'device')}: {'; '.join(part for part in (*shares, how) if part)}"

    # --- how the arrays of a state lie -------------------------------------------------------------------------------

    def kinds(self, state: PyTree) -> PyTree:
        """Return the `Kind` of every array.

        Args:
            state: of all agents, arrays or shapes.
        """
        return kinds_of(state) if isinstance(state, TrainState) else all_of(state, Kind.WHOLE)

    def specs(self, state: PyTree) -> PyTree:
        """Return the `PartitionSpec` of every array of a state as it lies on the devices.

        A ring is [L, N, ...] there instead of [L N, ...], so that one axis holds the environments.
        """
        lead = (AGENTS,) * len(self.stack.shape)

        def spec(kind: Kind) -> PartitionSpec:
            rest = {Kind.WHOLE: (), Kind.LANES: (ENVS,), Kind.RING: (None, ENVS)}[kind]
            return PartitionSpec(*lead, *rest)

        found = jax.tree.map(spec, self.kinds(state))
        if getattr(state, "advice", None) is None:
            return found
        return found.replace(
            advice=jax.tree.map(lambda _: PartitionSpec(), state.advice)
        )  # all agents share it

    def shardings(self, state: PyTree) -> PyTree:
        """Return the `NamedSharding` of every array of a state as of `specs`."""
        return self._name_shardings(self.specs(state))

    # --- the program of one device -----------------------------------------------------------------------------------

    def program(self, run: Callable[..., Any], state: PyTree, params: PyTree) -> Any:
        """Implement `Place.program`: `run` is of one part and the agents of one device.

        The inputs and news are the same on all devices; metrics [updates, agents, ...] lie with
        their agents.
        """
        specs, given = self.specs(state), self.params_specs(params)
        agents = PartitionSpec(None, *(AGENTS,) * len(self.stack.shape))
        shared = jax.shard_map(
            self._on_device(run, state),
            mesh=self.mesh,
            in_specs=(specs, given, PartitionSpec()),
            out_specs=(specs, agents, PartitionSpec()),
            check_vma=False,
        )

        def program(state: PyTree, params: PyTree, inputs: PyTree = None) -> Any:
            return shared(state, params, inputs)

        everywhere = NamedSharding(self.mesh, PartitionSpec())
        return jax.jit(
            program,
            donate_argnums=0,
            in_shardings=(self.shardings(state), self._name_shardings(given), everywhere),
        )

    def params_specs(self, params: PyTree) -> PyTree:
        """Return the `PartitionSpec` of the environment's parameters.

        Those that differ between agents lie with them.
        """
        own = map_axes(self.stack.axes[0].params if self.stack.axes else None, params)
        return jax.tree.unflatten(
            jax.tree.structure(params),
            [PartitionSpec(AGENTS) if each else PartitionSpec() for each in own],
        )

    def _name_shardings(self, specs: PyTree) -> PyTree:
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec),
            specs,
            is_leaf=lambda x: isinstance(x, PartitionSpec),
        )

    @property
    def _of_agents(self) -> Learner:
        """The learner of one part, for all agents of a device.

        With strict sums they are computed one after the other, so that results are bit-identical
        for any number of them on a device.
        """
        if not self.layout.groups or not self.stack.shape:
            return self.local.wrap(self.part)
        axes = self.stack.axes[0]
        return self.part._replace(
            init=self._each(self.part.init, (axes.key, axes.params)),
            update=self._each(self.part.update, (0, axes.params, axes.inputs)),
        )

    def _each(self, function: Callable[..., Any], in_axes: tuple[Any, ...]) -> Callable[..., Any]:
        """Apply `function` of one agent as one of the agents of a device.

        Args:
            in_axes: as of `jax.vmap`, 0 or None.
        """

        def each(*args: Any) -> Any:
            treedef = jax.tree.structure(args)
            flags = [
                flag
                for axes, arg in zip(in_axes, args, strict=True)
                for flag in map_axes(axes, arg)
            ]
            one = jax.tree.unflatten(
                treedef,
                [x[0] if flag else x for x, flag in zip(jax.tree.leaves(args), flags, strict=True)],
            )
            result = jax.tree.structure(jax.eval_shape(function, *one))

            def run(*arrays: Any) -> list[Any]:
                return jax.tree.leaves(function(*jax.tree.unflatten(treedef, arrays)))

            leaves, _ = one_by_one(run, self.local.count, flags, *jax.tree.leaves(args))
            return jax.tree.unflatten(result, leaves)

        return each

    def _begin(self, whole: Learner, keys: PyTree, params: PyTree) -> PyTree:
        """Build the first state: each device makes its own environments.

        Args:
            whole: the learner of all environments.
        """
        like = jax.eval_shape(self.stack.wrap(whole).init, keys, params)
        init = self._of_agents.init
        if self.layout.groups:
            init = jax.vmap(
                init,
                (None, None),
                self._axes(like),
                axis_name=PARTS,
                axis_size=self.layout.groups // self.layout.envs,
            )
        given = PartitionSpec(AGENTS) if keys.shape else PartitionSpec()
        return jax.shard_map(
            lambda keys, params: self._outside(init(keys, params), like),
            mesh=self.mesh,
            in_specs=(given, self.params_specs(params)),
            out_specs=self.specs(like),
            check_vma=False,
        )(keys, params)

    # --- `training.population.RunDevices` --------------------------------------------------------------------------

    def wrap(self, algorithm: Learner, stack: Stack) -> Learner:
        """Implement `Place.wrap`.

        The facts about the learner are those of `algorithm`, which has all environments.
        """
        assert stack == self.stack, f"made for {self.stack}, used for {stack}"
        return stack.wrap(algorithm)._replace(
            init=partial(self._begin, algorithm), update=self._of_agents.update
        )

    def put(self, state: PyTree) -> PyTree:
        return self.reshard(
            self._reshape_rings(
                state,
                lambda x, lead: x.reshape(*x.shape[:lead], -1, self.num_envs, *x.shape[lead + 1 :]),
            )
        )

    def reshard(self, state: PyTree) -> PyTree:
        return to_devices(state, self.shardings(state))

    def copy(self, state: PyTree) -> PyTree:
        return self._copy(state)

    @cached_property
    def _copy(self) -> Any:
        return jax.jit(partial(jax.tree.map, jnp.copy))

    def gather(self, state: PyTree) -> PyTree:
        return self._reshape_rings(
            to_host(state), lambda x, lead: x.reshape(*x.shape[:lead], -1, *x.shape[lead + 2 :])
        )

    def _reshape_rings(self, state: PyTree, change: Callable[[Any, int], Any]) -> PyTree:
        """Change the form of the rings of a state."""
        lead = len(self.stack.shape)
        return jax.tree.map(
            lambda kind, x: change(x, lead) if kind == Kind.RING else x, self.kinds(state), state
        )

    def put_params(self, params: PyTree) -> PyTree:
        return to_devices(params, self._name_shardings(self.params_specs(params)))

    def _on_device(self, run: Callable[..., Any], like: PyTree) -> Callable[..., Any]:
        if self.layout.groups:
            axes = self._axes(like)
            run = jax.vmap(run, (axes, None, None), (axes, None, None), axis_name=PARTS)

        def on_device(state: PyTree, params: PyTree, rest: PyTree) -> Any:
            state, *results = run(self._inside(state, like), params, rest)
            return self._outside(state, like), *results

        return on_device

    def _axes(self, like: PyTree) -> PyTree:
        """Return the axis of the parts in each array on one device.

        It is None where all parts have the array.
        """
        lead = len(self.stack.shape)
        return jax.tree.map(lambda kind: None if kind == Kind.WHOLE else lead, self.kinds(like))

    def _inside(self, state: PyTree, like: PyTree) -> PyTree:
        """Convert the arrays of a device to those that the program of a part takes.

        They have an axis of parts in front, and a ring as rows.
        """
        lead, parts = len(self.stack.shape), self.layout.groups // self.layout.envs

        def change(kind: Kind, x: Any) -> Any:
            if kind == Kind.WHOLE:
                return x
            before, ring = x.shape[:lead], kind == Kind.RING
            if not parts:
                return x.reshape(*before, -1, *x.shape[lead + 2 :]) if ring else x
            if not ring:
                return x.reshape(*before, parts, -1, *x.shape[lead + 1 :])
            x = x.reshape(*before, x.shape[lead], parts, -1, *x.shape[lead + 2 :]).swapaxes(
                lead, lead + 1
            )
            return x.reshape(*before, parts, -1, *x.shape[lead + 3 :])

        return jax.tree.map(change, self.kinds(like), state)

    def _outside(self, state: PyTree, like: PyTree) -> PyTree:
        """Invert `_inside`."""
        lead, parts = len(self.stack.shape), self.layout.groups // self.layout.envs
        envs = self.num_envs // self.layout.parts

        def change(kind: Kind, x: Any) -> Any:
            if kind == Kind.WHOLE:
                return x
            before, ring = x.shape[:lead], kind == Kind.RING
            if not parts:
                return x.reshape(*before, -1, envs, *x.shape[lead + 1 :]) if ring else x
            if not ring:
                return x.reshape(*before, -1, *x.shape[lead + 2 :])
            x = x.reshape(*before, parts, -1, envs, *x.shape[lead + 2 :]).swapaxes(lead, lead + 1)
            return x.reshape(*before, x.shape[lead], -1, *x.shape[lead + 3 :])

        return jax.tree.map(change, self.kinds(like), state)
