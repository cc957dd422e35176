"""New actions: closed they change nothing, opened they begin with a known probability, and PPO sees
the offset.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.networks import distributions
from jaxtrade.rl.state import (
    Policy,
    UnlockPlan,
    UnlockState,
    finish_policy,
    lock_actions,
    unlock_actions,
    unlock_at,
)

NEW = jnp.array([False, False, False, True, True])
LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3)


def opening(probability, fraction):
    return UnlockState(NEW, jnp.float32(probability), jnp.float32(fraction))


@jax.jit
def probabilities(opening, logits, mask):
    return distributions.probs(*unlock_actions(opening, logits, mask))


@settings(deadline=None)
@given(LOGITS, st.lists(st.booleans(), min_size=4, max_size=4))
def test_begins_with_the_stated_probability(old, legal):
    logits = jnp.array([*old, 0.0, 0.0], jnp.float32)
    mask = jnp.array([True, *legal])
    found = probabilities(opening(0.01, 0.0), logits, mask)
    count = sum(legal[2:])
    for i in (3, 4):
        expected = 0.01 / (1 + 0.01 * count) if legal[i - 1] else 0.0
        assert found[i] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    # Among the old actions nothing has changed but the scale.
    before = np.asarray(distributions.probs(logits[:3], mask[:3]))
    np.testing.assert_allclose(found[:3] * (1 + 0.01 * count), before, rtol=1e-4, atol=1e-7)


def test_closed_is_the_old_distribution_bit_for_bit():
    logits = jnp.array([0.3, -1.2, 0.7, 5.0, -3.0])
    shut = lock_actions(opening(0.01, 0.5))
    got, mask = unlock_actions(shut, logits, jnp.ones(5, bool))
    assert mask.tolist() == [True, True, True, False, False]
    np.testing.assert_array_equal(
        distributions.log_probs(got, mask)[:3],
        distributions.log_probs(logits[:3], jnp.ones(3, bool)),
    )
    assert np.isfinite(np.asarray(got)).all()
    entropy = jax.grad(lambda x: distributions.entropy(*unlock_actions(shut, x, jnp.ones(5, bool))))
    assert np.isfinite(np.asarray(entropy(logits))).all()


def test_open_is_the_plain_network():
    logits, mask = (
        jnp.array([0.3, -1.2, 0.7, 5.0, -3.0]),
        jnp.array([True, True, False, True, False]),
    )
    got, legal = unlock_actions(opening(0.01, 1.0), logits, mask)
    np.testing.assert_array_equal(got, logits)
    np.testing.assert_array_equal(legal, mask)
    assert unlock_actions(None, logits, mask) == (logits, mask)


def test_rises_over_the_stated_part_of_the_run():
    plan = UnlockPlan(NEW, jnp.float32(0.01), jnp.float32(0.1))
    logits, mask = jnp.zeros(5), jnp.ones(5, bool)
    found = [
        float(probabilities(unlock_at(plan, jnp.float32(at)), logits, mask)[3])
        for at in (0.0, 0.025, 0.05, 0.075, 0.1, 0.5)
    ]
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.01 / 1.02, rel=1e-5)
    # Half-way: log eps is half of log 0.01 + log 3, so each new weight is (0.03) ** 0.5 beside
    # three of 1.
    assert found[2] == pytest.approx(math.sqrt(0.03) / (3 + 2 * math.sqrt(0.03)), rel=1e-5)
    assert found[4] == found[5] == pytest.approx(0.2)
    done, left = (Policy({}, opening=unlock_at(plan, jnp.float32(at))) for at in (0.1, 0.09))
    assert finish_policy(done).opening is None
    assert finish_policy(left).opening is not None


@pytest.mark.parametrize("z", [-5.0, 0.0, 10.0])
def test_however_sure_the_source_is_it_begins_the_same_and_ends_as_the_network(z):
    plan = UnlockPlan(NEW, jnp.float32(0.01), jnp.float32(1.0))
    logits, mask = jnp.array([z, -60.0, -60.0, 0.0, 0.0]), jnp.ones(5, bool)

    def new_at(fraction):
        return float(probabilities(unlock_at(plan, jnp.float32(fraction)), logits, mask)[3])

    assert new_at(0.0) == pytest.approx(0.01 / 1.02, rel=1e-4)
    assert new_at(1.0) == pytest.approx(1.0 / (2.0 + math.exp(z)), rel=1e-4)


def test_the_gradient_is_that_of_the_opened_policy():
    """Against finite differences: the offset depends on the old logits, and the log-probability
    with it.
    """
    mask, action = jnp.ones(5, bool), jnp.int32(3)

    @jax.jit
    def log_prob(logits):
        return distributions.log_prob(*unlock_actions(opening(0.01, 0.3), logits, mask), action)

    at = jnp.array([0.5, -0.3, 0.2, 0.1, -0.4])
    found = jax.grad(log_prob)(at)
    step = 1e-2
    expected = [
        (log_prob(at.at[i].add(step)) - log_prob(at.at[i].add(-step))) / (2 * step)
        for i in range(5)
    ]
    np.testing.assert_allclose(found, np.array(expected), atol=2e-4)
