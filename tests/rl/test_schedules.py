"""Schedules reach their ends exactly, and the optimiser is Adam with clipped gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.rl.schedules import linear, optimiser, progress


@pytest.mark.parametrize("total", [2, 3, 7, 610, 3051])
def test_start_and_end_are_exact(total):
    start, end = jnp.float32(3e-4), jnp.float32(3e-5)
    values = jax.vmap(lambda u: linear(start, end, progress(u, jnp.int32(total))))(jnp.arange(total))
    assert values[0] == start
    assert values[-1] == end
    assert np.all(np.diff(values) < 0)
    assert np.all(np.asarray(values) > 0)


def test_halfway_and_beyond():
    assert linear(1.0, 0.0, progress(jnp.int32(5), jnp.int32(11))) == 0.5
    assert linear(1.0, 0.25, progress(jnp.int32(50), jnp.int32(11))) == 0.25
    assert linear(1.0, 0.25, progress(jnp.int32(0), jnp.int32(1))) == 1.0


def test_adam_with_clipped_gradients_by_hand():
    """One step: gradient (3, 4) clipped to norm 1 is (0.6, 0.8); Adam's first direction is g / (|g| + eps)."""
    optimise = optimiser(jnp.float32(1.0))
    params = jnp.zeros(2)
    direction, state = optimise.update(jnp.array([3.0, 4.0]), optimise.init(params))
    np.testing.assert_allclose(state[1].mu, [0.06, 0.08], rtol=1e-6)  # 0.1 of the clipped gradient
    _, unclipped = optimise.update(jnp.array([0.3, 0.4]), optimise.init(params))
    np.testing.assert_allclose(unclipped[1].mu, [0.03, 0.04], rtol=1e-6)
    np.testing.assert_allclose(direction, [0.6 / (0.6 + 1e-5), 0.8 / (0.8 + 1e-5)], rtol=1e-5)


def test_adams_epsilon_is_ppos_custom():
    """Where a gradient is as small as 1e-5, epsilon decides: g / (|g| + eps) is 3/4 of a step for 3e-5."""
    optimise = optimiser(jnp.float32(1.0))
    gradient = jnp.array([3e-5, -1e-5, 4e-6])
    direction, _ = optimise.update(gradient, optimise.init(gradient))
    np.testing.assert_allclose(direction, [0.75, -0.5, 4 / 14], rtol=1e-4)
