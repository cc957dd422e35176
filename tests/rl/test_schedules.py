"""Schedules reach their ends exactly, and the optimiser is Adam with clipped gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrade.rl.optim import clipped_adam, linear, optimiser, progress
from tests.rl.test_train import assert_close


@pytest.mark.slow
@pytest.mark.parametrize("total", [2, 7, 3051])
def test_start_and_end_are_exact(total):
    start, end = jnp.float32(3e-4), jnp.float32(3e-5)
    values = jax.vmap(lambda u: linear(start, end, progress(u, jnp.int32(total))))(
        jnp.arange(total)
    )
    assert values[0] == start
    assert values[-1] == end
    assert np.all(np.diff(values) < 0)
    assert np.all(np.asarray(values) > 0)


def test_halfway_and_beyond():
    assert linear(1.0, 0.0, progress(jnp.int32(5), jnp.int32(11))) == 0.5
    assert linear(1.0, 0.25, progress(jnp.int32(50), jnp.int32(11))) == 0.25
    assert linear(1.0, 0.25, progress(jnp.int32(0), jnp.int32(1))) == 1.0


def adam(*gradients, norm=1.0):
    """Directions and last state of `clipped_adam` from a new state, for one gradient after the
    other.
    """
    state, directions = optimiser().init(jnp.zeros_like(gradients[0])), []
    for gradient in gradients:
        direction, state = clipped_adam(
            gradient, jnp.linalg.norm(gradient), state, jnp.float32(norm)
        )
        directions.append(direction)
    return np.array(directions), state


def test_adam_with_clipped_gradients_by_hand():
    """One step: gradient (3, 4) clipped to norm 1 is (0.6, 0.8); Adam's first direction is g / (|g|
    + eps).
    """
    (direction,), state = adam(jnp.array([3.0, 4.0]))
    np.testing.assert_allclose(state[1].mu, [0.06, 0.08], rtol=1e-6)  # 0.1 of the clipped gradient
    assert state[1].count == 1
    _, unclipped = adam(jnp.array([0.3, 0.4]))
    np.testing.assert_allclose(unclipped[1].mu, [0.03, 0.04], rtol=1e-6)
    np.testing.assert_allclose(direction, [0.6 / (0.6 + 1e-5), 0.8 / (0.8 + 1e-5)], rtol=1e-5)


def test_adams_epsilon_is_ppos_custom():
    """Where a gradient is as small as 1e-5, epsilon decides: g / (|g| + eps) is 3/4 of a step for
    3e-5.
    """
    (direction,), _ = adam(jnp.array([3e-5, -1e-5, 4e-6]))
    np.testing.assert_allclose(direction, [0.75, -0.5, 4 / 14], rtol=1e-4)


@pytest.mark.slow
def test_the_step_is_optaxs():
    """Thirty steps with gradients of very different sizes, below and above the largest norm."""
    gradients = jnp.asarray(
        np.random.default_rng(0).normal(size=(30, 50)) * 10.0 ** np.linspace(-4, 1, 30)[:, None],
        jnp.float32,
    )
    optimise = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5))
    theirs = optimise.init(gradients[0])
    found, ours = adam(*gradients, norm=0.5)
    for direction, gradient in zip(found, gradients, strict=True):
        expected, theirs = optimise.update(gradient, theirs)
        np.testing.assert_allclose(direction, expected, rtol=1e-5, atol=1e-7)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert_close(ours, theirs, rtol=1e-5, atol=1e-12)
