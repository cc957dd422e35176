"""The masked categorical, against NumPy in float64 and at the edges of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.networks import distributions as d

SIZES = st.integers(1, 9)


@st.composite
def logits_and_mask(draw, low=-30.0, high=30.0):
    size = draw(SIZES)
    logits = draw(st.lists(st.floats(low, high, width=32), min_size=size, max_size=size))
    legal = draw(st.integers(0, size - 1))
    mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    mask[legal] = True
    # padded to one size, so that everything below compiles once; padding is illegal
    pad = 9 - size
    return np.array(logits + [50.0] * pad, np.float32), np.array(mask + [False] * pad)


def reference(logits, mask):
    """Probabilities in float64; illegal actions are simply left out."""
    z = logits[mask].astype(np.float64)
    p = np.exp(z - z.max())
    out = np.zeros(len(logits))
    out[mask] = p / p.sum()
    return out


log_probs, entropy, mode = jax.jit(d.log_probs), jax.jit(d.entropy), jax.jit(d.mode)
pick = jax.jit(jax.vmap(d.sample_by_inverse_cdf, (0, None, None)))
CHANCES = jax.random.uniform(jax.random.key(0), (256,))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(logits_and_mask())
def test_matches_float64(case):
    logits, mask = case
    p = reference(logits, mask)
    np.testing.assert_allclose(np.exp(log_probs(logits, mask)), p, atol=1e-6)
    assert np.all(np.asarray(d.probs(logits, mask))[~mask] == 0.0)
    np.testing.assert_allclose(log_probs(logits, mask)[mask], np.log(p[mask]), rtol=1e-5, atol=1e-5)
    positive = p[p > 0]
    np.testing.assert_allclose(
        entropy(logits, mask), -(positive * np.log(positive)).sum(), atol=2e-5
    )
    assert mask[mode(logits, mask)]
    # XLA flushes subnormal numbers to zero, so logits closer than that are equal to it
    assert logits[mode(logits, mask)] >= logits[mask].max() - np.finfo(np.float32).tiny


@settings(max_examples=100, deadline=None)
@given(logits_and_mask(low=-3.4028234663852886e38, high=3.4028234663852886e38))
def test_never_illegal_at_the_edges_of_float(case):
    logits, mask = case
    assert mask[mode(logits, mask)]
    assert mask[np.asarray(pick(CHANCES, logits, mask))].all()
    assert np.isfinite(entropy(logits, mask))


@pytest.mark.parametrize("special", [np.nan, -np.inf])
def test_never_illegal_with_special_values(special):
    mask = np.array([False, True, False, True, False])
    for where in ([1], [3], [1, 3]):
        logits = np.zeros(5, np.float32)
        logits[where] = special
        assert mask[mode(logits, mask)]
        assert mask[np.asarray(pick(CHANCES, logits, mask))].all()


def test_the_largest_uniform_number_selects_the_last_supported_action():
    largest = jnp.nextafter(jnp.float32(1), jnp.float32(0))
    mask = jnp.array([True, True, True, False])
    logits = jnp.array([0.0, 0.0, -200.0, 5.0])  # the third action's probability underflows to 0
    assert d.sample_by_inverse_cdf(largest, logits, mask) == 1
    assert d.sample_by_inverse_cdf(largest, jnp.zeros(4), mask) == 2


def test_gradients_are_finite_and_none_reaches_illegal_logits():
    mask = jnp.array([True, False, True, False])
    logits = jnp.array([0.3, jnp.inf, -0.2, 1e30])

    def objective(z):
        return d.log_prob(z, mask, jnp.int32(2)) + d.entropy(z, mask)

    grad = jax.grad(objective)(logits)
    assert np.isfinite(grad).all()
    assert np.all(np.asarray(grad)[[1, 3]] == 0)
    step = 1e-3
    for i in (0, 2):
        bump = jnp.zeros(4).at[i].set(step)
        clean = jnp.where(mask, logits, 0.0)
        numeric = (objective(clean + bump) - objective(clean - bump)) / (2 * step)
        np.testing.assert_allclose(grad[i], numeric, atol=1e-3)


def test_one_legal_action_is_certain():
    found = d.log_probs(jnp.array([9.0, -9.0]), jnp.array([False, True]))
    assert found.tolist() == [d.ILLEGAL, 0.0]


@pytest.mark.parametrize(
    ("chance", "action"), [(0.0, 0), (0.24, 0), (0.25, 2), (0.5, 3), (0.74, 3), (0.75, 4)]
)
def test_a_chance_at_the_border_picks_the_action_that_begins_there(chance, action):
    """Each of four equal actions has the chances from its border up to, and without, the next
    one's.
    """
    mask = np.array([True, False, True, True, True])
    assert d.sample_by_inverse_cdf(jnp.float32(chance), jnp.zeros(5), mask) == action
