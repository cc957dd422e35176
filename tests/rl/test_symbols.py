"""Errors by symbol, the shares that follow from them, and a PPO run whose rollouts use them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.rl.wrappers import symbol_shares, update_errors
from jaxtrade.runs.setup import prepare
from tests.env.sets import synthetic

SMALL = {
    "rollout": {"num_envs": 8, "num_steps": 8},
    "ppo": {"num_minibatches": 2, "num_epochs": 1},
    "network": {"hidden": [8]},
    "train": {"total_timesteps": 64 * 4},
}


def test_the_average_by_hand():
    """Symbol 0: mean (1 + 3) / 2 = 2, moved a quarter from 4 to it: 3.5. Symbol 1: never seen,
    takes its mean 5. Symbol 2 has no step: it keeps 7."""
    found = update_errors(
        jnp.float32([4, 0, 7]), jnp.float32([[1, 5], [3, 5]]), jnp.int8([[0, 1], [0, 1]]), 0.25
    )
    np.testing.assert_array_equal(found, np.float32([3.5, 5.0, 7.0]))


def test_an_error_that_is_not_finite_changes_nothing():
    found = update_errors(jnp.float32([4, 2]), jnp.float32([jnp.nan, 4.0]), jnp.int8([0, 1]), 0.5)
    np.testing.assert_array_equal(found, np.float32([4.0, 3.0]))


def test_shares_by_hand():
    """Errors 1 and 3, and one unknown that counts as their mean 2: 1/6, 3/6, 2/6; 0.3 of it spread
    evenly.
    """
    np.testing.assert_allclose(
        symbol_shares(jnp.float32([1, 3, 0]), 0.0), [1 / 6, 3 / 6, 2 / 6], rtol=1e-6
    )
    np.testing.assert_allclose(
        symbol_shares(jnp.float32([1, 3, 0]), 0.3),
        [0.1 + 0.7 / 6, 0.1 + 0.7 / 2, 0.1 + 0.7 / 3],
        rtol=1e-6,
    )
    np.testing.assert_allclose(symbol_shares(jnp.zeros(4), 0.5), [0.25] * 4)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e6, width=32), min_size=2, max_size=20), st.floats(0, 1))
def test_shares_sum_to_one_and_keep_the_even_part(errors, even):
    found = np.asarray(symbol_shares(jnp.float32(errors), even), np.float64)
    assert abs(found.sum() - 1) < 1e-5
    assert (found >= even / len(errors) - 1e-6).all()


def setup(**sampler):
    return prepare(synthetic(("NQ", "USDJPY"), sampler=sampler, **SMALL))


@pytest.mark.slow
def test_ppo_keeps_an_error_by_symbol_and_draws_by_it():
    """After one update the state holds the mean |advantage| of each symbol that was traded, and the
    next update's rollout uses the shares of them, which are a metric."""
    made = setup(kind="prioritised", even_share=0.5, rate=1.0)
    state = jax.jit(made.algorithm.init)(jax.random.key(0), made.params)
    assert state.errors.tolist() == [0.0, 0.0]
    update = jax.jit(lambda state: made.algorithm.update(state, made.params, None))
    after, metrics = update(state)
    assert metrics["symbol_share"].tolist() == [0.5, 0.5]
    assert (after.errors > 0).any()
    _, metrics = update(after)
    np.testing.assert_allclose(
        metrics["symbol_share"], symbol_shares(after.errors, 0.5), rtol=1e-6
    )  # another program

    assert update._cache_size() == 1


@pytest.mark.slow
def test_a_sampler_without_weights_leaves_no_trace_in_the_state():
    for kind in ("uniform", "balanced", "round_robin"):
        made = setup(kind=kind)
        shape = jax.eval_shape(made.algorithm.init, jax.random.key(0), made.params)
        assert shape.errors is None
        assert made.env.sampler == kind
