"""Loss terms, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.rl import returns

OLD = jnp.log(jnp.array([0.5, 0.5, 0.5, 0.5]))
NEW = jnp.log(jnp.array([0.75, 0.75, 0.25, 0.25]))  # ratios 1.5, 1.5, 0.5, 0.5


def test_clipped_surrogate_in_all_four_corners():
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0])
    # min(1.5, 1.2) = 1.2; min(-1.5, -1.2) = -1.5; min(0.5, 0.8) = 0.5; min(-0.5, -0.8) = -0.8;
    # -mean = 0.15
    np.testing.assert_allclose(
        returns.clipped_surrogate(NEW, OLD, advantage, 0.2).mean(), 0.15, rtol=1e-6
    )


def test_clipped_surrogate_sends_no_gradient_where_clipped():
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0])
    grad = jax.grad(lambda new: returns.clipped_surrogate(new, OLD, advantage, 0.2).mean())(NEW)
    # d/dlogp of -ratio * A / 4 where not clipped
    np.testing.assert_allclose(grad, [0.0, 1.5 / 4, -0.5 / 4, 0.0], rtol=1e-6)


def test_value_loss_clips_around_the_stored_value():
    value, old, target = (
        jnp.array([3.0, 1.1, -2.0]),
        jnp.array([1.0, 1.0, 1.0]),
        jnp.array([2.0, 2.0, -2.0]),
    )
    # plain errors 1, 0.81, 0. Clipped to old +- 0.5: predictions 1.5, 1.1, 0.5, errors 0.25, 0.81,
    # 6.25.
    np.testing.assert_allclose(
        returns.squared_error(value, old, target, 0.5), [1, 0.81, 6.25], rtol=1e-6
    )
    np.testing.assert_allclose(
        returns.squared_error(value, old, target, 0.0), [1, 0.81, 0], rtol=1e-6
    )


def test_approx_kl_by_hand():
    # k3 = ratio - 1 - log ratio: never negative, and its mean is the KL
    k3 = np.array([0.5 - np.log(1.5), 0.5 - np.log(1.5), -0.5 - np.log(0.5), -0.5 - np.log(0.5)])
    np.testing.assert_allclose(returns.approx_kl(NEW, OLD), k3, rtol=1e-6)
    assert not returns.approx_kl(OLD, OLD).any()


def test_clip_fraction():
    new = jnp.log(jnp.array([0.5, 0.59, 0.61, 0.39]))  # ratios 1, 1.18, 1.22, 0.78
    np.testing.assert_allclose(returns.is_clipped(new, OLD, 0.2), [0, 0, 1, 1])


def test_explained_variance():
    target = jnp.array([1.0, 2.0, 3.0])
    assert returns.explained_variance(target, target) == 1.0
    np.testing.assert_allclose(returns.explained_variance(jnp.zeros(3), target), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        returns.explained_variance(jnp.array([3.0, 2.0, 1.0]), target), -3.0, rtol=1e-6
    )
    assert np.isnan(returns.explained_variance(target, jnp.ones(3)))
