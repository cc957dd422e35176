"""A replay of references on the device: a ring of time rows, and n-step samples from it.

A row holds one step of all N environments, as references without observations, packed into words
(`rl.packing`): 56 bytes for a transition of the task `manage`. Time runs along the ring, so a lane
(one environment) is a sequence of steps. The ring has L rows, a multiple of the T steps of a
rollout: adding a rollout is one contiguous write.

A start is a row from which n steps can be read. Row t is one as soon as row t + n - 1 has been
written, and until it is overwritten. So a sample never crosses the write head, after the ring has
wrapped around neither, and never reads a row that nothing was written to.

Environments form groups by their number, as in `rl.epochs`: each group gives the same share of
a batch. A device that holds whole groups needs no rows of another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.rl.packing import Packed, Packing, packing_of
from jaxtrade.rl.returns import n_step
from jaxtrade.types import Array, PyTree, Transition


class Stored(NamedTuple):
    """What the replay keeps of a transition, [..., ...]. action: uint8, or uint16 of more than 256
    actions.

    `final_ref` is the reference before an auto-reset, from which a truncated episode is bootstrapped.
    """

    ref: PyTree
    final_ref: PyTree
    action: Array
    reward: Array
    terminated: Array
    truncated: Array


class Ring(NamedTuple):
    """The static part of a replay. length: L, rows of the ring. num_steps: T, rows that are added
    at once. groups: of environments. n_steps: n, steps of a sample. packing: of one `Stored`."""

    length: int
    num_envs: int
    num_steps: int
    groups: int
    n_steps: int
    num_actions: int
    packing: Packing

    @property
    def group_envs(self) -> int:
        """Environments in a group."""
        return self.num_envs // self.groups


class Replay(struct.PyTreeNode):
    """rows: `Stored` of row t and lane n at place t N + n, [L N, ...]; an array [L, N, ...] would
    be copied whole on a TPU before rows are looked up. version: int32[L], of the policy that acted
    in a row, which is the number of the update that wrote it unless the policy acts with a delay
    (`rl.actor`).

    position: int32[], the next row to be written. filled: int32[], rows that hold data, at most L.
    """

    rows: Packed
    version: Array
    position: Array
    filled: Array


class Sample(NamedTuple):
    """B samples of n steps. m is the number of steps to the first end of an episode, at most n.

    ref, action (int32): of the first step. reward: float32, the discounted sum of m rewards.
        final_ref: the reference
    after the m-th step, before a reset. discount: float32, gamma^m, or 0 if the m-th step
    terminated. version: int32, of the policy that acted in the first step.
    """

    ref: PyTree
    action: Array
    reward: Array
    final_ref: PyTree
    discount: Array
    version: Array


def ring_of(
    refs: PyTree,
    num_actions: int,
    length: int,
    num_envs: int,
    num_steps: int,
    groups: int,
    n_steps: int,
) -> Ring:
    """The static part of a replay. refs: references [N, ...], or their shapes.

    Raises AssertionError at trace time unless L is a multiple of T, N of the groups, and a start
    fits beside the rows that one rollout overwrites.
    """
    chex.assert_is_divisible(length, num_steps)
    chex.assert_is_divisible(num_envs, groups)
    assert num_steps + n_steps - 1 <= length, (
        f"{length} rows cannot hold {num_steps} steps and samples of {n_steps}"
    )

    def number(dtype: jnp.dtype) -> Any:
        return jax.ShapeDtypeStruct((num_envs,), dtype)

    ends = number(jnp.dtype(bool))
    one = Stored(
        refs, refs, number(_action_type(num_actions)), number(jnp.dtype(jnp.float32)), ends, ends
    )
    return Ring(length, num_envs, num_steps, groups, n_steps, num_actions, packing_of(one))


def _action_type(num_actions: int) -> jnp.dtype:
    return jnp.dtype(jnp.uint8 if num_actions <= 256 else jnp.uint16)


def empty_replay(ring: Ring, refs: PyTree) -> Replay:
    """A replay without data, of zeros. refs: as in `ring_of`."""
    rest = jax.tree.map(
        lambda x: jnp.zeros((ring.length * ring.num_envs, *x.shape[1:]), x.dtype),
        tuple(
            leaf
            for leaf, bits in zip(jax.tree.leaves((refs, refs)), ring.packing.bits, strict=False)
            if bits is None
        ),
    )
    words = jnp.zeros((ring.length * ring.num_envs, ring.packing.count), jnp.uint32)
    return Replay(
        Packed(words, rest), jnp.zeros(ring.length, jnp.int32), jnp.int32(0), jnp.int32(0)
    )


def add(ring: Ring, replay: Replay, seen: Transition, version: Array) -> Replay:
    """The replay after a rollout [T, N, ...] was written over its oldest rows. version: int32[], of
    the policy that acted."""
    stored = Stored(
        seen.ref,
        seen.final_ref,
        seen.action.astype(_action_type(ring.num_actions)),
        seen.reward,
        seen.terminated,
        seen.truncated,
    )
    block = ring.packing.pack(stored, axis=2)

    def written(whole: Array, new: Array) -> Array:
        new = new.reshape(ring.num_steps * ring.num_envs, *new.shape[2:])
        return jax.lax.dynamic_update_slice_in_dim(
            whole, new, replay.position * ring.num_envs, axis=0
        )

    versions = jnp.full(ring.num_steps, version, jnp.int32)
    return Replay(
        jax.tree.map(written, replay.rows, block),
        jax.lax.dynamic_update_slice_in_dim(replay.version, versions, replay.position, axis=0),
        (replay.position + ring.num_steps) % ring.length,
        jnp.minimum(replay.filled + ring.num_steps, ring.length),
    )


def starts(ring: Ring, replay: Replay) -> Array:
    """int32[]: rows from which n steps can be read, the same in all lanes."""
    return jnp.maximum(replay.filled - ring.n_steps + 1, 0)


def ages(ring: Ring, replay: Replay, row: Array) -> Array:
    """int32[...]: age of each row; 1 is the one that was written last, L the next to be
    overwritten.
    """
    return (replay.position - 1 - row) % ring.length + 1


def draw_uniform(
    ring: Ring, replay: Replay, key: Array, batch: int, first_group: int | Array = 0
) -> tuple[Array, Array]:
    """(row, lane) int32[batch] each: starts drawn uniformly with replacement, an equal share from
    each group. Without any start the rows mean nothing. Each group draws by its global number,
    counted from `first_group`.

    Raises AssertionError at trace time unless `batch` is a multiple of the groups.
    """
    chex.assert_is_divisible(batch, ring.groups)
    valid = jnp.maximum(starts(ring, replay), 1)
    share = batch // ring.groups

    def of_group(group: Array) -> tuple[Array, Array]:
        key_row, key_lane = jax.random.split(jax.random.fold_in(key, first_group + group))
        nth = jax.random.randint(key_row, (share,), 0, valid)
        lane = jax.random.randint(key_lane, (share,), 0, ring.group_envs)
        return (replay.position - replay.filled + nth) % ring.length, group * ring.group_envs + lane

    row, lane = jax.vmap(of_group)(jnp.arange(ring.groups))
    return row.reshape(-1), lane.reshape(-1)


def sample(ring: Ring, replay: Replay, row: Array, lane: Array, gamma: Array | float) -> Sample:
    """The samples that begin at `row` and `lane`, int32[B] each."""
    steps = (row[:, None] + jnp.arange(ring.n_steps)) % ring.length
    flat = steps * ring.num_envs + lane[:, None]
    # One look-up takes the whole packed row of a step: a loop over rows would be slow on a TPU.
    picked = jax.tree.map(lambda x: x[flat], replay.rows)
    stored: Stored = ring.packing.unpack(picked, axis=2)
    reward, discount, last = n_step(stored.reward, stored.terminated, stored.truncated, gamma)

    def at_last(x: Array) -> Array:
        found = x[:, 0]
        for k in range(1, ring.n_steps):
            found = jnp.where((last == k).reshape(-1, *(1,) * (x.ndim - 2)), x[:, k], found)
        return found

    first = jax.tree.map(lambda x: x[:, 0], (stored.ref, stored.action))
    return Sample(
        first[0],
        first[1].astype(jnp.int32),
        reward,
        jax.tree.map(at_last, stored.final_ref),
        discount,
        replay.version[row],
    )
