"""The replay against a plain Python list: wrap, write head, ends, n-step returns; its bytes;
prioritised draws.
"""

import functools
from collections import namedtuple
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.rl.replay import (
    add,
    draw,
    draw_chances,
    draw_uniform,
    empty_replay,
    importance_weights,
    no_priorities,
    renew_priorities,
    ring_of,
    sample,
    starts,
    td_priorities,
    tree_of,
    update_priorities,
)
from jaxtrade.rl.returns import n_step
from jaxtrade.types import Transition

LENGTH, STEPS, ENVS, GROUPS, GAMMA = 12, 3, 4, 2, 0.5
ACTIONS = 300  # more than a byte holds


class Ref(struct.PyTreeNode):
    """stamp: int32[], 1 + number of the observation in its lane. wide: float32[70], too wide to be
    packed.
    """

    stamp: jax.Array
    wide: jax.Array
    flag: jax.Array


def refs_of(stamps):
    stamps = jnp.asarray(stamps, jnp.int32)
    return Ref(
        stamps,
        jnp.broadcast_to(stamps[..., None].astype(jnp.float32), (*stamps.shape, 70)),
        stamps % 2 == 1,
    )


# One step of the list model. Stamps are positive, so a row of zeros is nobody's step.
Step = namedtuple("Step", "stamp final action reward terminated truncated version")


def rollout_of(rng, update):
    """(the rollout as arrays, the same as a list of rows of Steps)."""
    rows = [
        [
            Step(
                stamp := 1 + ENVS * (update * STEPS + t) + env,
                -stamp,
                int(rng.integers(ACTIONS)),
                float(rng.integers(-8, 9)),
                bool(rng.random() < 0.2),
                bool(rng.random() < 0.2),
                update,
            )
            for env in range(ENVS)
        ]
        for t in range(STEPS)
    ]

    def field(name, dtype):
        return jnp.asarray([[getattr(step, name) for step in row] for row in rows], dtype)

    seen = Transition(
        refs_of(field("stamp", jnp.int32)),
        refs_of(field("final", jnp.int32)),
        field("stamp", bool),
        field("action", jnp.int32),
        field("reward", jnp.float32),
        field("terminated", bool),
        field("truncated", bool),
        None,
    )
    return seen, rows


def ring(n_steps):
    return ring_of(refs_of(np.zeros(ENVS)), ACTIONS, LENGTH, ENVS, STEPS, GROUPS, n_steps)


@pytest.fixture(scope="module")
def programs():
    """By n: the ring, and its compiled functions. Every row and lane is sampled at once."""
    rows, lanes = (x.ravel() for x in np.indices((LENGTH, ENVS)))

    @functools.cache
    def of(n_steps):
        own = ring(n_steps)

        @jax.jit
        def added(replay, priorities, seen, version):
            replay = add(own, replay, seen, version)
            return replay, renew_priorities(own, priorities, replay)

        everything = jax.jit(
            lambda replay: sample(own, replay, jnp.asarray(rows), jnp.asarray(lanes), GAMMA)
        )

        def by_priority(priorities, key):
            return draw(own, priorities, draw_chances(own, key, 64))

        return (
            own,
            added,
            everything,
            jax.jit(partial(draw_uniform, own, batch=64)),
            jax.jit(by_priority),
        )

    return of


def expected_sample(steps, n_steps):
    """The fields of a `Sample` by the list: `steps` are those of one lane from the start on."""
    total, factor = 0.0, 1.0
    for step in steps[:n_steps]:
        total, factor = total + factor * step.reward, factor * GAMMA
        if step.terminated or step.truncated:
            break
    return (
        steps[0].stamp,
        steps[0].action,
        total,
        step.final,
        0.0 if step.terminated else factor,
        steps[0].version,
    )


@pytest.mark.parametrize(
    ("rollouts", "n_steps"),
    [(6, 3), pytest.param(9, 5, marks=pytest.mark.slow)],
)
def test_samples_of_several_steps_wrap_around_the_end_of_the_ring(programs, rollouts, n_steps):
    assert_newest_rows(programs, 0, rollouts, n_steps)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1), rollouts=st.integers(1, 10), n_steps=st.sampled_from([1, 3, 5])
)
def test_it_is_the_newest_rows_of_a_list(programs, seed, rollouts, n_steps):
    assert_newest_rows(programs, seed, rollouts, n_steps)


def assert_newest_rows(programs, seed, rollouts, n_steps):
    own, added, everything, uniform, by_priority = programs(n_steps)
    rng, history = np.random.default_rng(seed), []
    replay, priorities = empty_replay(own), no_priorities(own)
    for update in range(rollouts):
        seen, rows = rollout_of(rng, update)
        history += rows
        replay, priorities = added(replay, priorities, seen, jnp.int32(update))
    kept = range(max(len(history) - LENGTH, 0), len(history))
    valid = [t for t in kept if t + n_steps <= len(history)]
    assert int(starts(own, replay)) == len(valid)

    found = jax.tree.map(
        lambda x: np.asarray(x).reshape(LENGTH, ENVS, *x.shape[1:]), everything(replay)
    )
    for t in valid:
        for env in range(ENVS):
            at = t % LENGTH, env
            got = (
                found.ref.stamp[at],
                found.action[at],
                found.reward[at],
                found.final_ref.stamp[at],
                found.discount[at],
                found.version[at],
            )
            assert got == expected_sample([row[env] for row in history[t:]], n_steps)
            assert (found.ref.wide[at] == got[0]).all()
            assert (found.final_ref.wide[at] == got[3]).all()
            assert (found.ref.flag[at], found.final_ref.flag[at]) == (
                got[0] % 2 == 1,
                got[3] % 2 == 1,
            )

    leaves = np.asarray(priorities.trees.leaves).reshape(GROUPS, LENGTH, ENVS // GROUPS)
    assert {row for row in range(LENGTH) if leaves[:, row].any()} == {t % LENGTH for t in valid}
    if valid:  # every draw is a start, and each group gives its share
        key = jax.random.key(seed % 1000)
        for row, lane in (uniform(replay, key), by_priority(priorities, key)[:2]):
            assert set(np.asarray(row).tolist()) <= {t % LENGTH for t in valid}
            assert (np.asarray(lane) // (ENVS // GROUPS) == np.repeat(np.arange(GROUPS), 32)).all()


@pytest.mark.slow
def test_all_starts_are_drawn_equally_often(programs):
    """64 x 300 draws from 10 rows x 2 lanes in each group, chi-squared below the 0.999 quantile for
    38 degrees.
    """
    own, added, _, uniform, _ = programs(3)
    replay, _ = filled(own, added, 7)
    row, lane = jax.vmap(uniform, (None, 0))(replay, jax.random.split(jax.random.key(0), 300))
    counts = np.bincount(np.asarray(row * ENVS + lane).ravel(), minlength=LENGTH * ENVS).reshape(
        LENGTH, ENVS
    )
    assert sorted(np.flatnonzero(counts.sum(axis=1) == 0)) == [7, 8]  # rows 19 and 20 of the run
    drawn = counts[counts.any(axis=1)]
    expected = 64 * 300 / drawn.size
    assert ((drawn - expected) ** 2 / expected).sum() < 70.7


def test_n_step_returns_by_hand():
    """gamma 1/2, n = 3. Rows: no end; terminated at step 2; truncated at step 1; terminated at the
    last step; both ends at once, where the termination counts."""
    reward = jnp.array([[4.0, 2.0, 8.0]] * 5)
    terminated = jnp.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]], bool)
    truncated = jnp.array([[0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]], bool)
    total, discount, last = n_step(reward, terminated, truncated, 0.5)
    assert total.tolist() == [7, 5, 4, 7, 4]
    assert discount.tolist() == [0.125, 0, 0.5, 0, 0]
    assert last.tolist() == [2, 1, 0, 2, 0]


def test_a_ring_too_short_for_a_rollout_and_a_sample_is_refused():
    with pytest.raises(AssertionError, match=r"6 rows .*3 steps .*samples of 5"):
        ring_of(refs_of(np.zeros(ENVS)), ACTIONS, 6, ENVS, STEPS, GROUPS, 5)


def filled(own, added, rollouts=1):
    replay, priorities = empty_replay(own), no_priorities(own)
    for update in range(rollouts):
        seen, _ = rollout_of(np.random.default_rng(0), update)
        replay, priorities = added(replay, priorities, seen, jnp.int32(update))
    return replay, priorities


def test_importance_weights_by_hand(programs):
    """Group 0 has starts of priority 1 and 3, group 1 two of 1 (n = 3: one start in each of four
    lanes). With beta 1 a weight is 1 / (4 P): P = 1/8, 3/8, 1/4, 1/4 gives 2, 2/3, 1, 1."""
    own, added, _, _, by_priority = programs(3)
    replay, priorities = filled(own, added)
    priorities = priorities.replace(
        trees=jax.vmap(tree_of)(priorities.trees.leaves.at[0, 1].set(3.0))
    )
    drawn = by_priority(priorities, jax.random.key(0))
    weights = importance_weights(own, replay, drawn, 1.0)
    by_lane = dict(zip(np.asarray(drawn.lane).tolist(), np.asarray(weights).tolist(), strict=True))
    assert by_lane == {0: 2.0, 1: pytest.approx(2 / 3), 2: 1.0, 3: 1.0}
    assert np.bincount(drawn.lane).tolist() == [8, 24, 16, 16]  # stratified: exactly the shares


def test_a_step_sets_the_drawn_priorities_and_the_highest(programs):
    own, added, _, _, by_priority = programs(3)
    replay, priorities = filled(own, added)
    drawn = by_priority(priorities, jax.random.key(0))
    error = jnp.where(drawn.lane == 2, -8.0, 2.0)
    found = td_priorities(error, 0.5)
    after = update_priorities(priorities, drawn, found, found.max(), jnp.bool_(True))
    leaves = np.asarray(after.trees.leaves)
    np.testing.assert_allclose(leaves[0, :2], [2**0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(leaves[1, :2], [8**0.5, 2**0.5], rtol=1e-5)
    np.testing.assert_allclose(after.highest, 8**0.5, rtol=1e-5)
    kept = update_priorities(priorities, drawn, found, found.max(), jnp.bool_(False))
    jax.tree.map(np.testing.assert_array_equal, kept, priorities)
    replay, after = added(replay, after, rollout_of(np.random.default_rng(1), 1)[0], jnp.int32(1))
    again = np.asarray(after.trees.leaves)
    np.testing.assert_allclose(again[:, 2:8], 8**0.5, rtol=1e-5)  # rows 1 to 3 are new starts,
    np.testing.assert_array_equal(again[:, :2], leaves[:, :2])  # row 0 keeps what was learned,
    assert not again[:, 8:].any()  # and the newest two rows are no starts yet
