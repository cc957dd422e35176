"""Which rows of a rollout form a minibatch.

Environments are cut into fixed groups by their id. A minibatch joins the same slice of a permutation inside each group,
so a device that holds whole groups never needs rows of another, and layouts can agree.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array, PyTree


def permutation(key: Array, count: int) -> Array:
    """int32[count], a random order of 0 .. count - 1 (count < 2^31).

    Random words that carry their position in the low bits are sorted: on a CPU plain integers sort far faster than the
    pairs that `jax.random.permutation` sorts. Words whose random bits are equal keep the order of their
    positions, hence a second round, over positions that the first one has mixed.
    """
    low = jnp.uint32((1 << max(count - 1, 1).bit_length()) - 1)

    def mixed(key: Array) -> Array:
        words = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
        return (jax.lax.sort(words, is_stable=False) & low).astype(jnp.int32)

    first, second = jax.random.split(key)
    return mixed(first)[mixed(second)]


def minibatch_rows(key: Array, num_steps: int, num_envs: int, num_groups: int, num_minibatches: int,
                   length: int = 1, first_group: int | Array = 0) -> Array:
    """Row numbers `t * num_envs + n`, int32[num_minibatches, T * N / num_minibatches]; each row occurs once.

    What is permuted are sequences of `length` consecutive steps of one environment (T is a multiple of it). Of the S
    sequences in a minibatch, entry `l * S + s` is step l of sequence s. Groups draw by their global number, which
    begins at `first_group`; rows count the environments that are here.
    """
    chex.assert_is_divisible(num_envs, num_groups)
    chex.assert_is_divisible(num_steps, length)
    group_envs = num_envs // num_groups
    group_sequences = num_steps // length * group_envs
    chex.assert_is_divisible(group_sequences, num_minibatches)

    def permute(group: Array) -> Array:
        picked = permutation(jax.random.fold_in(key, first_group + group), group_sequences)
        return picked // group_envs * (length * num_envs) + group * group_envs + picked % group_envs

    permuted = jax.vmap(permute)(jnp.arange(num_groups))
    slices = permuted.reshape(num_groups, num_minibatches, group_sequences // num_minibatches)
    starts = slices.swapaxes(0, 1).reshape(num_minibatches, 1, -1)
    return (starts + num_envs * jnp.arange(length)[:, None]).reshape(num_minibatches, -1)


def take_rows(tree: PyTree, rows: Array) -> PyTree:
    """Rows of arrays [T, N, ...] -> [len(rows), ...]."""
    chex.assert_rank(rows, 1)
    chex.assert_type(rows, int)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[rows], tree)
