"""Minibatches cover every row once and join the same slice of every group."""

import jax
import numpy as np
import pytest

from jaxtrade.rl import epochs

# As one program: operation by operation each shape would compile forty of them.
minibatch_rows = jax.jit(epochs.minibatch_rows, static_argnums=(1, 2, 3, 4, 5))


def test_a_groups_permutation_does_not_depend_on_the_other_groups():
    """Twice the environments in twice the groups: the first groups draw the same."""
    small = np.asarray(minibatch_rows(jax.random.key(2), 6, 8, 4, 3))
    large = np.asarray(minibatch_rows(jax.random.key(2), 6, 16, 8, 3))

    def as_pairs(rows, num_envs):
        return np.stack([rows // num_envs, rows % num_envs])

    np.testing.assert_array_equal(as_pairs(small, 8), as_pairs(large, 16)[:, :, :16])


def test_every_group_has_an_order_of_its_own():
    """Four groups of one environment each: their 16 steps come in four different orders."""
    rows = np.asarray(minibatch_rows(jax.random.key(3), 16, 4, 4, 1)).reshape(4, 16)
    np.testing.assert_array_equal(rows % 4, np.repeat(np.arange(4), 16).reshape(4, 16))
    assert len({tuple(steps) for steps in rows // 4}) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_steps", "num_envs", "groups", "count", "length"),
    [(4, 8, 4, 2, 1), (6, 16, 4, 4, 6), (6, 16, 4, 2, 3), (4, 6, 1, 3, 4)],
)
def test_sequences_stay_together(num_steps, num_envs, groups, count, length):
    rows = np.asarray(minibatch_rows(jax.random.key(1), num_steps, num_envs, groups, count, length))
    np.testing.assert_array_equal(np.sort(rows.ravel()), np.arange(num_steps * num_envs))
    step, env = np.divmod(rows.reshape(count, length, -1), num_envs)
    np.testing.assert_array_equal(env, np.broadcast_to(env[:, :1], env.shape))
    np.testing.assert_array_equal(step, step[:, :1] + np.arange(length)[:, None])
    assert np.all(step[:, 0] % length == 0)
    owner = env[:, 0] // (num_envs // groups)
    np.testing.assert_array_equal(
        owner, np.tile(np.repeat(np.arange(groups), owner.shape[1] // groups), (count, 1))
    )
    others = np.asarray(
        minibatch_rows(jax.random.key(2), num_steps, num_envs, groups, count, length)
    )
    assert not np.array_equal(rows, others)
