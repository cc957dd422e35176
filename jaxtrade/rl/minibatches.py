"""Which rows of a rollout form a minibatch.

Environments are cut into fixed groups by their id. A minibatch joins the same slice of a permutation inside each group,
so a device that holds whole groups never needs rows of another, and layouts can agree.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.types import Array, PyTree


def minibatch_rows(key: Array, num_steps: int, num_envs: int, num_groups: int, num_minibatches: int) -> Array:
    """Row numbers `t * num_envs + n`, int32[num_minibatches, T * N / num_minibatches]; each row occurs once."""
    group_envs = num_envs // num_groups
    group_rows = num_steps * group_envs

    def permute(group: Array) -> Array:
        rows = jax.random.permutation(jax.random.fold_in(key, group), group_rows)
        return rows // group_envs * num_envs + group * group_envs + rows % group_envs

    permuted = jax.vmap(permute)(jnp.arange(num_groups))
    slices = permuted.reshape(num_groups, num_minibatches, group_rows // num_minibatches)
    return slices.swapaxes(0, 1).reshape(num_minibatches, -1)


def take_rows(tree: PyTree, rows: Array) -> PyTree:
    """Rows of arrays [T, N, ...] -> [len(rows), ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[rows], tree)
