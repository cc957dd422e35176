"""A replay of references on the device: a ring of time rows, and n-step samples from it.

Samples are drawn evenly or by priority.

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

import itertools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.rl.packing import Packed, Packing, packing_of
from jaxtrade.rl.returns import n_step
from jaxtrade.types import Array, PyTree, Transition


class StoredTransition(NamedTuple):
    """What the replay keeps of a transition, [..., ...].

    action: uint8, or uint16 of more than 256 actions.

    `final_ref` is the reference before an auto-reset, from which a truncated episode
    is bootstrapped.
    """

    ref: PyTree
    final_ref: PyTree
    action: Array
    reward: Array
    terminated: Array
    truncated: Array


class Ring(NamedTuple):
    """The static part of a replay.

    length: L, rows of the ring.
    num_steps: T, rows that are added at once.
    groups: of environments.
    n_steps: n, steps of a sample.
    actions: type of stored actions.
    packing: of one `StoredTransition`.
    """

    length: int
    num_envs: int
    num_steps: int
    groups: int
    n_steps: int
    actions: Any
    packing: Packing

    @property
    def group_envs(self) -> int:
        """Environments in a group."""
        return self.num_envs // self.groups


class Replay(struct.PyTreeNode):
    """The contents of a replay.

    rows: `StoredTransition` of row t and lane n at place t N + n, [L N, ...]; an array [L, N, ...]
        would be copied whole on a TPU before rows are looked up.
    version: int32[L], of the policy that acted in a row, which is the number of the update that
        wrote it unless the policy acts with a delay (`rl.train_state`).

    position: int32[], the next row to be written.
    filled: int32[], rows that hold data, at most L.
    """

    rows: Packed
    version: Array
    position: Array
    filled: Array


class Sample(NamedTuple):
    """B samples of n steps. m is the number of steps to the first end of an episode, at most n.

    ref, action (int32): of the first step.
    reward: float32, the discounted sum of m rewards.
    final_ref: the reference after the m-th step, before a reset.
    discount: float32, gamma^m, or 0 if the m-th step terminated.
    version: int32, of the policy that acted in the first step.
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
    """Return the static part of a replay.

    Raises AssertionError at trace time unless L is a multiple of T, N of the groups, and a start
    fits beside the rows that one rollout overwrites.

    Args:
        refs: references [N, ...], or their shapes.
    """
    chex.assert_is_divisible(length, num_steps)
    chex.assert_is_divisible(num_envs, groups)
    assert num_steps + n_steps - 1 <= length, (
        f"{length} rows cannot hold {num_steps} steps and samples of {n_steps}"
    )

    actions = jnp.uint8 if num_actions <= 256 else jnp.uint16
    numbers: Any = [
        jax.ShapeDtypeStruct((num_envs,), kind) for kind in (actions, jnp.float32, bool, bool)
    ]
    packing = packing_of(StoredTransition(refs, refs, *numbers))
    return Ring(length, num_envs, num_steps, groups, n_steps, actions, packing)


def empty_replay(ring: Ring) -> Replay:
    """Build a replay without data, of zeros."""
    rows, packing = ring.length * ring.num_envs, ring.packing
    rest = tuple(
        jnp.zeros((rows, *shape), dtype)
        for shape, dtype, bits in zip(packing.shapes, packing.dtypes, packing.bits, strict=True)
        if bits is None
    )
    words = jnp.zeros((rows, packing.count), jnp.uint32)
    return Replay(
        Packed(words, rest), jnp.zeros(ring.length, jnp.int32), jnp.int32(0), jnp.int32(0)
    )


def add(ring: Ring, replay: Replay, seen: Transition, version: Array) -> Replay:
    """Write a rollout [T, N, ...] over the oldest rows of the replay.

    Args:
        version: int32[], of the policy that acted.
    """
    stored = StoredTransition(
        seen.ref,
        seen.final_ref,
        seen.action.astype(ring.actions),
        seen.reward,
        seen.terminated,
        seen.truncated,
    )
    block = ring.packing.pack(stored, axis=2)

    def write(whole: Array, new: Array) -> Array:
        new = new.reshape(ring.num_steps * ring.num_envs, *new.shape[2:])
        return jax.lax.dynamic_update_slice_in_dim(
            whole, new, replay.position * ring.num_envs, axis=0
        )

    versions = jnp.full(ring.num_steps, version, jnp.int32)
    return Replay(
        jax.tree.map(write, replay.rows, block),
        jax.lax.dynamic_update_slice_in_dim(replay.version, versions, replay.position, axis=0),
        (replay.position + ring.num_steps) % ring.length,
        jnp.minimum(replay.filled + ring.num_steps, ring.length),
    )


def starts(ring: Ring, replay: Replay) -> Array:
    """Return the rows from which n steps can be read, the same in all lanes (int32[])."""
    return jnp.maximum(replay.filled - ring.n_steps + 1, 0)


def ages(ring: Ring, replay: Replay, row: Array) -> Array:
    """Return the age of each row (int32[...]).

    The row that was written last has age 1, the next one to be overwritten L.
    """
    return (replay.position - 1 - row) % ring.length + 1


def draw_uniform(
    ring: Ring, replay: Replay, key: Array, batch: int, first_group: int | Array = 0
) -> tuple[Array, Array]:
    """Draw starts uniformly with replacement, an equal share from each group.

    Without any start the rows mean nothing. Each group draws by its global number, counted
    from `first_group`.

    Raises AssertionError at trace time unless `batch` is a multiple of the groups.

    Returns:
        (row, lane) int32[batch] each.
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
    """Return the samples that begin at `row` and `lane`, int32[B] each."""
    steps = (row[:, None] + jnp.arange(ring.n_steps)) % ring.length
    flat = steps * ring.num_envs + lane[:, None]
    # One look-up takes the whole packed row of a step: a loop over rows would be slow on a TPU.
    picked = jax.tree.map(lambda x: x[flat], replay.rows)
    stored: StoredTransition = ring.packing.unpack(picked, axis=2)
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


# Prioritised replay (Schaul et al. 2016, proportional variant) over the starts of a `Ring`.
#
# Every start i has p_i = (|TD error| + OFFSET)^alpha; other rows have 0 and are never drawn. A
# start that was never drawn has the highest p so far. Each group of environments has a sum tree of
# its own, over its lanes: leaf = row * lanes of the group + lane of the group.

# A binary sum tree in which a leaf is drawn with a probability proportional to its value.
#
# Level 0 holds the leaves. Level k + 1 has m = ceil(n / 2) nodes over the n of level k, and node i
# is the sum of nodes i and i + m below it (of node i alone, if there is no node i + m). The halves
# lie side by side in memory, so a whole level is computed by one vector addition. All levels follow
# each other in one array, about 8 n bytes for n leaves.
#
# A parent is always recomputed from its two children. Trees that add the difference of a leaf to
# all nodes above it drift by rounding, until they draw leaves of value 0
# (https://github.com/instadeepai/flashbax/issues/52).


class SumTree(struct.PyTreeNode):
    """A sum tree.

    nodes: float32[..., M], the levels one after the other; the values are not negative.
    count: n, leaves (static).
    """

    nodes: Array
    count: int = struct.field(pytree_node=False)

    @property
    def leaves(self) -> Array:
        """float32[..., n]."""
        return self.nodes[..., : self.count]

    @property
    def total(self) -> Array:
        """float32[...]: the sum of all leaves, in the order of the tree."""
        return self.nodes[..., -1]

    @property
    def levels(self) -> list[Array]:
        """float32[..., n], float32[..., ceil(n / 2)], ..., float32[..., 1]."""
        sizes = _sizes(self.count)
        ends = list(itertools.accumulate(sizes))
        return [self.nodes[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


class _Level(NamedTuple):
    """Places of a level above the leaves, int32 each.

    They are of its first node, of the first node below it, and how many nodes both levels have.
    """

    start: Array
    below: Array
    half: Array
    size: Array


def _sizes(count: int) -> list[int]:
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    return sizes


def _levels(count: int) -> _Level:
    """Return the levels above the leaves, from the bottom (int32[levels] each)."""
    sizes = _sizes(count)
    starts = [0, *itertools.accumulate(sizes)][:-1]
    return _Level(
        *(jnp.array(x, jnp.int32) for x in (starts[1:], starts[:-1], sizes[1:], sizes[:-1]))
    )


def tree_of(leaves: Array) -> SumTree:
    """Build the tree over leaves float32[n], n at least 1.

    It reads each leaf once, which is less work than `with_leaves` where many leaves change.
    """
    chex.assert_rank(leaves, 1)
    chex.assert_type(leaves, jnp.float32)
    levels = [leaves]
    while len(below := levels[-1]) > 1:
        half = (len(below) + 1) // 2
        right = (
            below[half:] if len(below) % 2 == 0 else jnp.concatenate([below[half:], jnp.zeros(1)])
        )
        levels.append(below[:half] + right)
    return SumTree(jnp.concatenate(levels), len(leaves))


def with_leaves(tree: SumTree, index: Array, value: Array) -> SumTree:
    """Set leaves `index` int32[B] of the tree to `value` float32[B].

    Of several values for one leaf it keeps the largest, so that the result does not depend on the
    order in which a device writes.
    """
    chex.assert_rank([index, value], 1)
    chex.assert_equal_shape([index, value])

    # A loop over the levels, not one operation after the other: it compiles once, whatever the
    # number of levels.
    def up(now: tuple[Array, Array], level: _Level) -> tuple[tuple[Array, Array], None]:
        nodes, index = now
        index = jnp.where(index < level.half, index, index - level.half)
        total = nodes[level.below + index] + _right(nodes, index, level)
        return (nodes.at[level.start + index].set(total), index), None

    nodes = tree.nodes.at[index].set(0.0).at[index].max(value)
    (nodes, _), _ = jax.lax.scan(up, (nodes, index), _levels(tree.count))
    return tree.replace(nodes=nodes)


def draw_leaves(tree: SumTree, chance: Array) -> Array:
    """Draw leaves by stratified sampling (int32[B]; Schaul et al. 2016, appendix B.2.1).

    Entry j is drawn from the j-th of B equal ranges of the total. A leaf of value 0 is never drawn,
    unless all are 0: then every entry is 0.

    Args:
        chance: float32[B] in [0, 1), where in its range each entry is drawn.
    """
    chex.assert_rank(chance, 1)
    count = chance.shape[0]

    def down(now: tuple[Array, Array], level: _Level) -> tuple[tuple[Array, Array], None]:
        index, left_over = now
        left, right = tree.nodes[level.below + index], _right(tree.nodes, index, level)
        # Rounding can leave more than the left sum where nothing is on the right: then stay on the
        # left.
        goes_right = (left_over >= left) & (right > 0.0)
        return (
            jnp.where(goes_right, index + level.half, index),
            jnp.where(goes_right, left_over - left, left_over),
        ), None

    start = (jnp.arange(count, dtype=jnp.float32) + chance) / count * tree.total
    (index, _), _ = jax.lax.scan(
        down, (jnp.zeros(count, jnp.int32), start), _levels(tree.count), reverse=True
    )
    return index


def _right(nodes: Array, index: Array, level: _Level) -> Array:
    """Return the right children of nodes `index` of a level, 0 where there is none (float32[B])."""
    other = index + level.half
    return jnp.where(
        other < level.size, nodes[level.below + jnp.minimum(other, level.size - 1)], 0.0
    )


OFFSET = 1e-6  # keeps transitions without an error drawable, as in OpenAI Baselines


class Priorities(struct.PyTreeNode):
    """The priorities of a replay.

    trees: a `SumTree` of each group, [G, ...].
    highest: float32[], the highest p so far.
    """

    trees: SumTree
    highest: Array


class DrawnRows(NamedTuple):
    """Starts that were drawn, int32[B]: row, lane.

    leaf: int32[G, B / G].
    probability: float32[B], of each start in one draw from its group, divided by the
        number of groups.
    """

    row: Array
    lane: Array
    leaf: Array
    probability: Array


def no_priorities(ring: Ring) -> Priorities:
    """Return the priorities of an empty replay."""
    leaves = jnp.zeros((ring.groups, ring.length * ring.group_envs))
    return Priorities(jax.vmap(tree_of)(leaves), jnp.float32(1.0))


def renew_priorities(ring: Ring, priorities: Priorities, replay: Replay) -> Priorities:
    """Update the priorities after a rollout was added.

    Rows that became starts get the highest priority. The newest n - 1 rows get 0, because their
    samples are not complete. All other rows keep theirs.

    Args:
        replay: after `replay.add`.
    """
    age = ages(ring, replay, jnp.arange(ring.length * ring.group_envs) // ring.group_envs)
    is_start = (age >= ring.n_steps) & (age <= replay.filled)
    is_new = age < ring.num_steps + ring.n_steps
    leaves = jnp.where(
        is_start, jnp.where(is_new, priorities.highest, priorities.trees.leaves), 0.0
    )
    return priorities.replace(trees=jax.vmap(tree_of)(leaves))


def draw_chances(ring: Ring, key: Array, batch: int, first_group: int | Array = 0) -> Array:
    """Draw the random numbers of one `draw` (float32[G, batch / G] in [0, 1)).

    Raises AssertionError at trace time unless `batch` is a multiple of the groups.

    Args:
        first_group: as of `replay.draw_uniform`.
    """
    chex.assert_is_divisible(batch, ring.groups)
    share = batch // ring.groups
    return jax.vmap(
        lambda group: jax.random.uniform(jax.random.fold_in(key, first_group + group), (share,))
    )(jnp.arange(ring.groups))


def draw(ring: Ring, priorities: Priorities, chance: Array) -> DrawnRows:
    """Draw starts by `draw_chances`, an equal share from each group.

    Without any start the result means nothing.
    """
    leaf = jax.vmap(draw_leaves)(priorities.trees, chance)
    value = jnp.take_along_axis(priorities.trees.leaves, leaf, axis=1)
    total = priorities.trees.total[:, None]
    probability = value / jnp.where(total > 0.0, total, 1.0) / ring.groups
    lane = jnp.arange(ring.groups)[:, None] * ring.group_envs + leaf % ring.group_envs
    return DrawnRows(
        (leaf // ring.group_envs).reshape(-1), lane.reshape(-1), leaf, probability.reshape(-1)
    )


def importance_weights(ring: Ring, replay: Replay, drawn: DrawnRows, beta: Array | float) -> Array:
    """Return (number of starts * probability)^-beta (float32[B]).

    The learner divides them by the largest of the batch.
    """
    count = starts(ring, replay).astype(jnp.float32) * ring.num_envs
    return jnp.maximum(count * drawn.probability, jnp.finfo(jnp.float32).tiny) ** -beta


def td_priorities(error: Array, alpha: Array | float) -> Array:
    """Return the priorities p of starts with TD errors float32[B] (float32[B])."""
    chex.assert_rank(error, 1)
    return (jnp.abs(error) + OFFSET) ** alpha


def update_priorities(
    priorities: Priorities, drawn: DrawnRows, found: Array, highest: Array, applied: Array
) -> Priorities:
    """Update the priorities after a gradient step.

    Args:
        found: float32[B], of `td_priorities` for the drawn starts.
        highest: float32[], the largest of them on all devices.
        applied: bool[], False leaves all priorities as they are.
    """
    found = found.reshape(drawn.leaf.shape)
    value = jnp.where(
        applied, found, jnp.take_along_axis(priorities.trees.leaves, drawn.leaf, axis=1)
    )
    highest = jnp.where(applied, jnp.maximum(priorities.highest, highest), priorities.highest)
    return Priorities(jax.vmap(with_leaves)(priorities.trees, drawn.leaf, value), highest)
