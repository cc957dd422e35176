"""V-trace: numbers worked out by hand, its definition in NumPy, and what it is on fresh steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.rl.returns import gae, next_values, vtrace
from tests.rl.test_returns import NO, SECOND, column

T, N = 5, 2
by_jit = jax.jit(vtrace)
gae_by_jit = jax.jit(gae)


@pytest.mark.parametrize(
    ("keys", "target", "advantage"),
    [
        # Ratios are clipped at one. delta: 1 x 9, 0.5 x 9, 1 x 9. c: 0.5, 0.25, 0.5;
        # 0.9 c: 0.45, 0.225, 0.45. v - V: 9; 4.5 + 0.225 x 9 = 6.525;
        # 9 + 0.45 x 6.525 = 11.93625. A: 9; 0.5 (9 + 0.45 x 9) = 6.525; 9 + 0.45 x 6.525.
        ({}, [21.93625, 26.525, 39.0], [11.93625, 6.525, 9.0]),
        # Each clip has its own level. rho at most 1.5: delta_0 = 1.5 x 9 = 13.5. c at most 2:
        # 0.9 c_0 = 0.9, so v_0 - V = 13.5 + 0.9 x 6.525 and A_0 = 1.5 (9 + 0.45 x 6.525).
        ({"rho_clip": 1.5, "c_clip": 2.0}, [29.3725, 26.525, 39.0], [17.904375, 6.525, 9.0]),
        # A termination has nothing behind it. Step 1: 0.5 (2 - 20) = -9. Step 0: 9 + 0.45 x -9.
        ({"terminated": SECOND}, [14.95, 11.0, 39.0], [4.95, -9.0, 9.0]),
        # A truncation has its last value behind it and nothing of the next episode.
        # Step 1: delta = 0.5 (2 + 45 - 20) = 13.5. Step 0: 9 + 0.45 x 13.5 = 15.075.
        ({"truncated": SECOND}, [25.075, 33.5, 39.0], [15.075, 13.5, 9.0]),
    ],
)
def test_targets_by_hand(keys, target, advantage):
    """Rewards 1, 2, 3, values 10, 20, 30, 40 behind them (50 at the end of an episode), gamma 0.9,
    lambda 0.5, ratios 2, 0.5, 1.
    """
    keys = {"terminated": NO, "truncated": NO} | keys
    value, ratio = column(10, 20, 30), column(2.0, 0.5, 1.0)
    following = next_values(value, jnp.array([40.0]), column(0, 50, 0), keys["truncated"])
    found = vtrace(column(1, 2, 3), value, following, ratio=ratio, gamma=0.9, weight=0.5, **keys)
    np.testing.assert_allclose(found.target, column(*target), rtol=1e-6)
    np.testing.assert_allclose(found.advantage, column(*advantage), rtol=1e-6)


def test_nan_behind_a_termination_is_not_read():
    end = column(False, False, True, dtype=bool)
    found = vtrace(
        column(1, 2, 3),
        column(10, 20, 30),
        column(20, 30, jnp.nan),
        end,
        NO,
        column(1, 1, 1),
        0.9,
        0.5,
    )
    assert np.isfinite(np.stack(found)).all()


def drawn(seed):
    """Rewards, values, the value after the last step, final values, ends and ratios, float64 of
    float32 bits.
    """
    rng = np.random.default_rng(seed)
    floats = rng.normal(size=(4, T, N)).astype(np.float32).astype(np.float64)
    ends = rng.random((2, T, N)) < 0.3
    ratio = np.exp(rng.normal(size=(T, N))).astype(np.float32).astype(np.float64)
    return (*floats[:2], floats[2, 0], floats[3], *ends, ratio)


def computed(seed, gamma, weight, rho, c, ratio=None):
    reward, value, last, final, terminated, truncated, drawn_ratio = drawn(seed)
    following = next_values(
        jnp.float32(value), jnp.float32(last), jnp.float32(final), jnp.asarray(truncated)
    )
    arguments = (jnp.float32(reward), jnp.float32(value), following, terminated, truncated)
    return arguments, by_jit(
        *arguments, jnp.float32(drawn_ratio if ratio is None else ratio), gamma, weight, rho, c
    )


def defined(seed, gamma, weight, rho, c):
    """The sums and products of the definition, episode by episode, in float64."""
    reward, value, last, final, terminated, truncated, ratio = drawn(seed)
    target, advantage = np.zeros((T, N)), np.zeros((T, N))
    for n in range(N):

        def behind(t, n=n):  # what the step's own error reads: V after step t
            if terminated[t, n]:
                return 0.0
            return final[t, n] if truncated[t, n] else (value[t + 1, n] if t + 1 < T else last[n])

        def error(t, n=n, behind=behind):
            return min(rho, ratio[t, n]) * (reward[t, n] + gamma * behind(t) - value[t, n])

        for s in range(T):
            end = next((t for t in range(s, T) if terminated[t, n] or truncated[t, n]), T - 1)
            target[s, n] = value[s, n] + sum(
                gamma ** (k - s)
                * np.prod([weight * min(c, ratio[i, n]) for i in range(s, k)])
                * error(k)
                for k in range(s, end + 1)
            )
        for s in range(T):
            goes_on = s + 1 < T and not (terminated[s, n] or truncated[s, n])
            mixed = (1 - weight) * behind(s) + weight * (target[s + 1, n] if goes_on else behind(s))
            advantage[s, n] = min(rho, ratio[s, n]) * (reward[s, n] + gamma * mixed - value[s, n])
    return target, advantage


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    weight=st.sampled_from([0.0, 0.6, 1.0]),
    rho=st.sampled_from([0.5, 1.0, 3.0]),
    c=st.sampled_from([0.5, 1.0, 3.0]),
)
@settings(max_examples=60, deadline=None)
def test_it_is_the_sum_of_its_definition(seed, gamma, weight, rho, c):
    _, found = computed(seed, gamma, weight, rho, c)
    for ours, theirs in zip(found, defined(seed, gamma, weight, rho, c), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


@given(
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([0.5, 0.99, 1.0]),
    weight=st.sampled_from([0.0, 0.95, 1.0]),
    clip=st.sampled_from([1.0, 7.0]),
)
@settings(max_examples=60, deadline=None)
def test_on_fresh_steps_it_is_gae(seed, gamma, weight, clip):
    """Every ratio is 1, and no clip is below it."""
    arguments, found = computed(seed, gamma, weight, clip, clip, np.ones((T, N)))
    advantage = gae_by_jit(*arguments, gamma, weight)
    np.testing.assert_allclose(found.advantage, advantage, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.target, advantage + arguments[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_a_step_that_the_policy_would_not_take_teaches_nothing(weight):
    """Ratio 0: its target is its value, its advantage 0, and no later error passes it."""
    ratio = column(1.0, 0.0, 5.0)
    found = vtrace(
        column(1, 2, 3), column(10, 20, 30), column(20, 30, 40), NO, NO, ratio, 0.9, weight
    )
    assert found.target[:2, 0].tolist() == [19.0, 20.0]
    assert found.advantage[:2, 0].tolist() == [9.0, 0.0]
