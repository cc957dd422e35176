"""Memory of a policy: what it keeps of an episode beside the observation.

A carry is None (a network without memory) or float32[..., H]. Before an episode's first observation it is zero; whoever
runs episodes forgets it there, so the network itself never asks where an episode begins.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.networks.initializers import orthogonal
from jaxtrade.types import Array, PyTree


def orthogonal_gates(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """One orthogonal matrix per gate, side by side: float[H, 3 H]."""
    width, gates = shape[0], shape[1] // shape[0]
    init = orthogonal()
    matrices = jax.vmap(lambda key: init(key, (width, width), dtype))(jax.random.split(key, gates))
    return jnp.concatenate(list(matrices), axis=1)


class GRU(nn.Module):
    """Gated recurrent unit (Cho et al. 2014), in the form of cuDNN and PyTorch: carry float32[..., H] -> the same.

        r, z = sigmoid(W x + U h + b)        n = tanh(W_n x + b_n + r * (U_n h + c_n))        h' = (1 - z) n + z h

    `read` is the input's share of the three gates, float32[..., D] -> float32[..., 3 H]: it does not wait for the
    carry, so a sequence is read at once (flax's own GRUCell has neither this nor a precision). `precision`: as `MLP`.
    """

    width: int
    precision: Any = None

    def setup(self) -> None:
        self.input = nn.Dense(3 * self.width, precision=self.precision)
        self.recurrent = nn.Dense(3 * self.width, kernel_init=orthogonal_gates, precision=self.precision)

    def __call__(self, carry: Array, observation: Array) -> Array:
        return self.step(carry, self.read(observation))

    def read(self, observation: Array) -> Array:
        """float32[..., D] -> float32[..., 3 H]."""
        return self.input(observation)

    def step(self, carry: Array, gates: Array) -> Array:
        """The next carry, from the input's share of the gates."""
        read_r, read_z, read_n = jnp.split(gates, 3, axis=-1)
        own_r, own_z, own_n = jnp.split(self.recurrent(carry), 3, axis=-1)
        reset, update = nn.sigmoid(read_r + own_r), nn.sigmoid(read_z + own_z)
        return (1.0 - update) * jnp.tanh(read_n + reset * own_n) + update * carry


def forget(carry: PyTree, first: Array) -> PyTree:
    """`carry` [..., H], zero where `first` bool[...] says that an episode begins."""
    return jax.tree.map(lambda x: jnp.where(first[..., None], 0.0, x), carry)


def recall(network: Any, parameters: PyTree, carry: PyTree, observations: Array, first: Array) -> PyTree:
    """The carry after each observation of S sequences, as acting one step after the other would have made it.

    Args:
        network: has `read` and `step` as `GRU`; not used where the carry is None.
        carry: float32[S, H] before the first row of each sequence (not yet forgotten where an episode begins there).
        observations, first: float32[L * S, D] and bool[L * S]; row `l * S + s` is step l of sequence s.
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
