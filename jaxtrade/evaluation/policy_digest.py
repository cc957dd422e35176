"""Which policy a figure is about: a digest of its numbers."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.types import PyTree


def policy_digest(policy: PyTree) -> str:
    """sha256 (hex) of a policy's leaves, with their names, types and shapes. Policies with equal
    bits have equal ones.

    Random keys count as their bits.
    """
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(policy):
        plain = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        values = np.ascontiguousarray(np.asarray(plain))
        found.update(f"{jax.tree_util.keystr(path)} {values.dtype} {values.shape}\n".encode())
        found.update(values.tobytes())
    return found.hexdigest()


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
