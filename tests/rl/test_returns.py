"""Generalised advantage estimation, worked out by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxtrade.rl.returns import gae, next_values

GAMMA, LAMBDA = 0.9, 0.5


def column(*values, dtype=jnp.float32):
    return jnp.array(values, dtype)[:, None]


NO = column(False, False, False, dtype=bool)


def test_no_episode_end():
    reward, value, last = column(1, 2, 3), column(10, 20, 30), jnp.array([40.0])
    following = next_values(value, last, jnp.zeros((3, 1)), NO)
    np.testing.assert_array_equal(following, column(20, 30, 40))
    # deltas: 1 + 18 - 10 = 9; 2 + 27 - 20 = 9; 3 + 36 - 30 = 9. decay 0.45: 9; 9 + 4.05; 9 + 0.45 *
    # 13.05
    np.testing.assert_allclose(
        gae(reward, value, following, NO, NO, GAMMA, LAMBDA), column(14.8725, 13.05, 9.0), rtol=1e-6
    )


def test_termination_has_no_value_behind_it():
    reward, value, last = column(1, 2, 3), column(10, 20, 30), jnp.array([40.0])
    terminated = column(False, True, False, dtype=bool)
    following = next_values(value, last, jnp.zeros((3, 1)), NO)
    # t=1: delta = 2 - 20 = -18 and nothing from t=2; t=0: 9 + 0.45 * -18 = 0.9
    np.testing.assert_allclose(
        gae(reward, value, following, terminated, NO, GAMMA, LAMBDA),
        column(0.9, -18.0, 9.0),
        rtol=1e-6,
    )


def test_truncation_bootstraps_from_the_final_observation_and_cuts_the_sum():
    reward, value, last = column(1, 2, 3), column(10, 20, 30), jnp.array([40.0])
    truncated = column(False, True, False, dtype=bool)
    following = next_values(value, last, column(0, 50, 0), truncated)
    np.testing.assert_array_equal(following, column(20, 50, 40))
    # t=1: delta = 2 + 45 - 20 = 27 and nothing from t=2; t=0: 9 + 0.45 * 27 = 21.15
    np.testing.assert_allclose(
        gae(reward, value, following, NO, truncated, GAMMA, LAMBDA),
        column(21.15, 27.0, 9.0),
        rtol=1e-6,
    )


def test_both_at_once_counts_as_termination():
    both = column(False, True, False, dtype=bool)
    reward, value = column(1, 2, 3), column(10, 20, 30)
    following = next_values(value, jnp.array([40.0]), column(0, 50, 0), both)
    np.testing.assert_allclose(gae(reward, value, following, both, both, GAMMA, LAMBDA)[1], [-18.0])


def test_truncation_in_the_last_step_does_not_see_the_next_episode():
    truncated = column(False, False, True, dtype=bool)
    value = column(10, 20, 30)
    following = next_values(value, jnp.array([1000.0]), column(0, 0, 7), truncated)
    np.testing.assert_array_equal(following, column(20, 30, 7))


def test_nan_behind_a_termination_is_not_read():
    terminated = column(False, False, True, dtype=bool)
    following = column(20, 30, jnp.nan)
    result = gae(column(1, 2, 3), column(10, 20, 30), following, terminated, NO, GAMMA, LAMBDA)
    assert np.isfinite(result).all()


def test_lambda_one_is_the_discounted_return_minus_the_value():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 6, 3)).astype(np.float32)
    last = rng.normal(size=3).astype(np.float32)
    zeros = jnp.zeros((6, 3), bool)
    advantage = gae(
        reward, value, next_values(value, last, jnp.zeros((6, 3)), zeros), zeros, zeros, 0.97, 1.0
    )
    expected = last.astype(np.float64)
    for t in reversed(range(6)):
        expected = reward[t] + 0.97 * expected
        np.testing.assert_allclose(advantage[t], expected - value[t], rtol=1e-4, atol=1e-5)
