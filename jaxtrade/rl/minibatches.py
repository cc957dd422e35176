"""Choose the rows of a rollout that form each minibatch.

Environments form fixed groups by their number. Each group is permuted on its own, and a minibatch
joins the same slice of every group's permutation. A device that holds whole groups therefore never
needs rows of another device. With the same groups, the minibatches are the same for any number of
devices.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array


def permutation(key: Array, count: int) -> Array:
    """int32[count]: a random order of 0 .. count - 1 (count < 2^31).

    The function sorts random words that hold their position in the low bits. On a CPU, sorting
    integers is far faster than sorting pairs, as `jax.random.permutation` does. Words with equal
    random bits keep the order of their positions. A second round with new words therefore permutes
    the result of the first.
    """
    low = jnp.uint32((1 << max(count - 1, 1).bit_length()) - 1)

    def mixed(key: Array) -> Array:
        words = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
        return (jax.lax.sort(words, is_stable=False) & low).astype(jnp.int32)

    first, second = jax.random.split(key)
    return mixed(first)[mixed(second)]


def minibatch_rows(
    key: Array,
    num_steps: int,
    num_envs: int,
    num_groups: int,
    num_minibatches: int,
    length: int = 1,
    first_group: int | Array = 0,
) -> Array:
    """Row numbers `t * num_envs + n`, int32[num_minibatches, T * N / num_minibatches]. Each row
    occurs once.

    The function permutes sequences of `length` consecutive steps of one environment; T is a
    multiple of `length`. In a minibatch of S sequences, entry `l * S + s` is step l of sequence s.
    Each group draws by its global number, counted from `first_group`. Row numbers count the
    environments of this device.

    Raises AssertionError at trace time if the counts do not divide evenly.
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
