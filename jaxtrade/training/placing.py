"""Where a run's program runs: on one device, or divided over several (`rl.sharding.Spread`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from jaxtrade.training.population import Stack
from jaxtrade.types import Algorithm, PyTree


class Place(Protocol):
    """The devices of a run."""

    def wrap(self, algorithm: Algorithm, stack: Stack) -> Algorithm:
        """The learner of all agents: its `init` is over all devices, its `update` is what one
        device computes.
        """
        ...

    def program(self, run: Callable[..., Any], state: PyTree, params: PyTree) -> Any:
        """The jitted chunk, which donates the state. run(state, params, inputs) -> (state, metrics,
        news), of one device. state, params: arrays, or their shapes."""
        ...

    def put(self, state: PyTree) -> PyTree:
        """A state in the form of checkpoints, as the program takes it."""
        ...

    def settled(self, state: PyTree) -> PyTree:
        """A state as the program takes it, after the host has changed some of its arrays."""
        ...

    def copied(self, state: PyTree) -> PyTree:
        """The same arrays in memory of their own, because the program donates what it is given."""
        ...

    def put_params(self, params: PyTree) -> PyTree:
        """The environment's parameters on the devices."""
        ...

    def joined(self, state: PyTree) -> PyTree:
        """A state in the form of checkpoints and hooks, which is the same for any number of
        devices. With several processes, all of them must call this together."""
        ...


class OneDevice:
    """A run on the default device."""

    def wrap(self, algorithm: Algorithm, stack: Stack) -> Algorithm:
        return stack.wrap(algorithm)

    def program(self, run: Callable[..., Any], state: PyTree = None, params: PyTree = None) -> Any:
        del state, params
        return jax.jit(run, donate_argnums=0)

    def put(self, state: PyTree) -> PyTree:
        return state

    def settled(self, state: PyTree) -> PyTree:
        return state

    def copied(self, state: PyTree) -> PyTree:
        return copied(state)

    def put_params(self, params: PyTree) -> PyTree:
        return params

    def joined(self, state: PyTree) -> PyTree:
        return state


def copied(state: PyTree) -> PyTree:
    """The same arrays in memory of their own. Unlike `jnp.copy`, this compiles nothing."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=False), state)


ONE_DEVICE = OneDevice()
