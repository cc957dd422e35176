"""Generalised advantage estimation, worked out by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.rl.returns import gae, next_values

GAMMA, LAMBDA = 0.9, 0.5


def column(*values, dtype=jnp.float32):
    return jnp.array(values, dtype)[:, None]


NO = column(False, False, False, dtype=bool)
SECOND = column(False, True, False, dtype=bool)


@pytest.mark.parametrize(
    ("terminated", "truncated", "behind", "expected"),
    [
        # deltas: 1 + 18 - 10 = 9; 2 + 27 - 20 = 9; 3 + 36 - 30 = 9. decay 0.45: 9; 9 + 4.05;
        # 9 + 0.45 * 13.05
        (NO, NO, [20, 30, 40], [14.8725, 13.05, 9.0]),
        # nothing is behind a termination. t=1: delta = 2 - 20 = -18 and nothing from t=2;
        # t=0: 9 + 0.45 * -18 = 0.9
        (SECOND, NO, [20, 30, 40], [0.9, -18.0, 9.0]),
        # a truncation bootstraps from the final observation and cuts the sum. t=1: delta =
        # 2 + 45 - 20 = 27 and nothing from t=2; t=0: 9 + 0.45 * 27 = 21.15
        (NO, SECOND, [20, 50, 40], [21.15, 27.0, 9.0]),
        # both at once counts as termination
        (SECOND, SECOND, [20, 50, 40], [0.9, -18.0, 9.0]),
    ],
)
def test_advantages_by_hand(terminated, truncated, behind, expected):
    reward, value = column(1, 2, 3), column(10, 20, 30)
    following = next_values(value, jnp.array([40.0]), column(0, 50, 0), truncated)
    np.testing.assert_array_equal(following, column(*behind))
    found = gae(reward, value, following, terminated, truncated, GAMMA, LAMBDA)
    np.testing.assert_allclose(found, column(*expected), rtol=1e-6)


def test_nan_behind_a_termination_is_not_read():
    terminated = column(False, False, True, dtype=bool)
    following = column(20, 30, jnp.nan)
    result = gae(column(1, 2, 3), column(10, 20, 30), following, terminated, NO, GAMMA, LAMBDA)
    assert np.isfinite(result).all()
