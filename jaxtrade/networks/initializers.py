"""How weights begin."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.types import Array


def orthogonal(gain: float = 1.0) -> Any:
    """`flax.linen.initializers.orthogonal(gain)`: (key, shape, dtype) -> matrix; Saxe et al. 2014.

    Under `vmap` (several agents, several gates) one matrix is made after the other. jaxlib 0.10 makes a batch of QR
    decompositions inside a worker of the CPU's thread pool and waits there for the other workers: with two such calls
    on two cores each waits for the other for ever.
    """
    init = nn.initializers.orthogonal(gain)

    def make(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.custom_batching.sequential_vmap(lambda key: init(key, shape, dtype))(key)

    return make
