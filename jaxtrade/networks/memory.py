"""The memory of a recurrent policy.

A carry is float32[..., H], or None for a network without memory. It is zero before the first observation of an episode.
The code that runs episodes resets it there (`forget`), so the network needs no information about episodes.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.networks.initializers import orthogonal
from jaxtrade.types import Array, PyTree


def orthogonal_gates(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """One orthogonal H x H matrix per gate, side by side: float[H, 3 H]. Arguments as a flax initialiser."""
    width, gates = shape[0], shape[1] // shape[0]
    init = orthogonal()
    matrices = jax.vmap(lambda key: init(key, (width, width), dtype))(jax.random.split(key, gates))
    return jnp.concatenate(list(matrices), axis=1)


class GRU(nn.Module):
    """Gated recurrent unit (Cho et al. 2014), in the form of cuDNN and PyTorch: carry h float32[..., H] -> h'.

        r, z = sigmoid(W x + U h + b)        n = tanh(W_n x + b_n + r * (U_n h + c_n))        h' = (1 - z) n + z h

    `read` computes the part of the three gates that depends on the input x alone. It does not need the carry, so one
    matrix product reads a whole sequence. flax's GRUCell offers neither this split nor a precision. precision: as
    `MLP`.
    """

    width: int
    precision: Any = None

    def setup(self) -> None:
        self.input = nn.Dense(3 * self.width, precision=self.precision)
        self.recurrent = nn.Dense(3 * self.width, kernel_init=orthogonal_gates, precision=self.precision)

    def __call__(self, carry: Array, observation: Array) -> Array:
        return self.step(carry, self.read(observation))

    def read(self, observation: Array) -> Array:
        """The input part W x + b of the gates: float32[..., D] -> float32[..., 3 H]."""
        return self.input(observation)

    def step(self, carry: Array, gates: Array) -> Array:
        """The next carry float32[..., H]. gates: float32[..., 3 H] from `read`."""
        read_r, read_z, read_n = jnp.split(gates, 3, axis=-1)
        own_r, own_z, own_n = jnp.split(self.recurrent(carry), 3, axis=-1)
        reset, update = nn.sigmoid(read_r + own_r), nn.sigmoid(read_z + own_z)
        return (1.0 - update) * jnp.tanh(read_n + reset * own_n) + update * carry


def forget(carry: PyTree, first: Array) -> PyTree:
    """Reset the memory: `carry` [..., H], but zero where `first` bool[...], at the start of an episode."""
    return jax.tree.map(lambda x: jnp.where(first[..., None], 0.0, x), carry)


def recall(network: Any, parameters: PyTree, carry: PyTree, observations: Array, first: Array) -> PyTree:
    """The carry after each observation of S sequences, equal to that of acting step by step.

    Args:
        network: has `read` and `step` as `GRU`; not used if the carry is None.
        carry: float32[S, H] before the first row of each sequence, not yet reset where an episode starts there.
        observations, first: float32[L * S, D] and bool[L * S]. Row `l * S + s` is step l of sequence s.
    Returns:
        float32[L * S, H], or None.
    """
    if carry is None:
        return None
    variables = {"params": parameters}

    def by_step(rows: Array) -> Array:
        return rows.reshape(-1, carry.shape[0], *rows.shape[1:])

    def step(carry: Array, now: tuple[Array, Array]) -> tuple[Any, Any]:
        gates, first = now
        carry = network.apply(variables, forget(carry, first), gates, method="step")  # pyright: ignore
        return carry, carry

    gates: Any = network.apply(variables, observations, method="read")
    _, carries = jax.lax.scan(step, carry, (by_step(gates), by_step(first)))
    return carries.reshape(-1, carries.shape[-1])
