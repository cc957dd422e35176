"""Arrays of a run on the host, and on its devices, whichever processes hold them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxtrade.types import PyTree


def is_key(leaf: Any) -> bool:
    """Return whether a leaf holds typed random keys."""
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_host(tree: PyTree) -> PyTree:
    """Copy the arrays to NumPy arrays; typed keys stay keys of JAX.

    With several processes, all of them must call this at the same place: what other processes hold
    is sent.
    """
    if jax.process_count() == 1:
        return jax.tree.map(lambda x: x if is_key(x) else np.asarray(jax.device_get(x)), tree)
    return jax.tree.map(_leaf_to_host, tree)


def _leaf_to_host(leaf: Any) -> Any:
    if is_key(leaf):
        data = _leaf_to_host(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=jax.random.key_impl(leaf))
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(jax.device_get(leaf))
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def to_devices(tree: PyTree, shardings: PyTree) -> PyTree:
    """Copy the arrays to the devices of `shardings`, in memory of their own.

    All processes hold the same values.
    """
    return jax.tree.map(_leaf_to_devices, tree, shardings)


def _leaf_to_devices(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    if is_key(leaf):
        data = jax.random.key_data(leaf)
        wider = NamedSharding(
            sharding.mesh,
            PartitionSpec(*sharding.spec, *(None,) * (data.ndim - len(sharding.spec))),
        )
        return jax.random.wrap_key_data(
            _leaf_to_devices(data, wider), impl=jax.random.key_impl(leaf)
        )
    if jax.process_count() == 1:
        return jax.device_put(leaf, sharding, may_alias=False)
    values = _leaf_to_host(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
