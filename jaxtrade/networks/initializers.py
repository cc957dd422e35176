"""Initial weights."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.types import Array


def orthogonal(gain: float = 1.0) -> Any:
    """Orthogonal initialisation (Saxe et al. 2014): (key, shape, dtype) -> matrix W with W^T W =
    gain^2 I (or W W^T).

    It is `flax.linen.initializers.orthogonal(gain)`, but under `vmap` (several agents, several
    gates) it computes one matrix after the other. jaxlib 0.10 computes a batch of QR decompositions
    inside a worker of the CPU's thread pool, and waits there for other workers. Two such calls on
    two cores then wait for each other forever (a deadlock).
    """
    init = nn.initializers.orthogonal(gain)

    def make(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.custom_batching.sequential_vmap(lambda key: init(key, shape, dtype))(key)

    return make
