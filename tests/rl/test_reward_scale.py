"""Rewards over the running standard deviation of the discounted return: by hand, and what it does
to a learner.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.rl.train_state import discount_rewards, init_scale, scale_rewards
from tests.rl.test_returns import NO, SECOND, column


def test_returns_by_hand():
    running, returns = discount_rewards(jnp.array([10.0]), column(1, 2, 3), SECOND, 0.5)
    np.testing.assert_array_equal(
        returns, column(6.0, 5.0, 3.0)
    )  # 10/2 + 1; 6/2 + 2; a new episode
    np.testing.assert_array_equal(running, [3.0])
    running, _ = discount_rewards(
        jnp.array([10.0]), column(1, 2, 3), column(False, False, True, dtype=bool), 0.5
    )
    np.testing.assert_array_equal(running, [0.0])


@pytest.mark.slow
def test_the_divisor_by_hand():
    """Returns 1, 2.5, 4.25 with gamma 0.5: mean 31/12, variance 1.7639."""
    scale, rewards, divisor = scale_rewards(init_scale(1), column(1, 2, 3), NO, 0.5)
    assert divisor == pytest.approx(np.std([1.0, 2.5, 4.25]))
    np.testing.assert_allclose(
        rewards, np.array([[1], [2], [3]]) / np.std([1.0, 2.5, 4.25]), rtol=1e-6
    )
    np.testing.assert_allclose(scale.running, [4.25])
    # the next rollout: all six returns count alike
    _, _, divisor = scale_rewards(scale, column(0, 0, 0), NO, 0.5)
    assert divisor == pytest.approx(np.std([1.0, 2.5, 4.25, 2.125, 1.0625, 0.53125]))


@pytest.mark.slow
def test_rewards_of_zero_are_not_scaled():
    _, rewards, divisor = scale_rewards(
        init_scale(2), jnp.zeros((4, 2)), jnp.zeros((4, 2), bool), 0.99
    )
    assert divisor == 1.0
    assert not rewards.any()
