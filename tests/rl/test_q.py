"""What the Q-learners share: targets by hand, epsilon-greedy acting, the Q-network and its
widening.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.heads import make_q_network
from jaxtrade.rl.q import (
    HEAD,
    QHParams,
    epsilon_at,
    epsilon_greedy,
    epsilon_probs,
    largest,
    of_action,
)
from jaxtrade.rl.returns import next_values, q_lambda
from jaxtrade.rl.transfer import PolicyLabels, copy_hold_weights
from tests.rl.test_returns import column


def targets(reward, value, last, final, terminated, truncated, gamma, weight):
    following = next_values(
        column(*value),
        jnp.array([last], jnp.float32),
        column(*final),
        column(*truncated, dtype=bool),
    )
    return np.asarray(
        q_lambda(
            column(*reward),
            following,
            column(*terminated, dtype=bool),
            column(*truncated, dtype=bool),
            gamma,
            weight,
        )
    )[:, 0]


def test_a_termination_ends_the_sum_without_a_value_and_a_truncation_with_that_of_the_final_reference():
    """gamma 0.5, lambda 1. Step 1 terminates: G_1 = 2. Step 3 is truncated, and its episode's last
    reference is worth 10: G_3 = 4 + 5 = 9. The values of the next episodes' first references (7 and
    9) are read by neither."""
    found = targets(
        [1, 2, 3, 4, 5],
        [8, 4, 7, 6, 9],
        2,
        [0, 0, 0, 10, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0],
        0.5,
        1.0,
    )
    np.testing.assert_array_equal(found, [1 + 0.5 * 2, 2, 3 + 0.5 * 9, 9, 5 + 0.5 * 2])


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_q_lambda_by_a_loop_over_every_step(weight):
    """Against an independent sum: of each step, all n-step targets up to its episode's end,
    weighted.
    """
    rng, steps, envs, gamma = np.random.default_rng(0), 7, 5, 0.9
    reward, value, final = (rng.normal(size=(steps, envs)) for _ in range(3))
    last = rng.normal(size=envs)
    terminated = rng.random((steps, envs)) < 0.2
    truncated = (rng.random((steps, envs)) < 0.2) & ~terminated
    expected = np.empty((steps, envs))
    for n in range(envs):
        for t in range(steps):
            total, left, discounted = 0.0, 1.0, 0.0
            for k in range(t, steps):
                discounted += gamma ** (k - t) * reward[k, n]
                following = value[k + 1, n] if k + 1 < steps else last[n]
                following = (
                    final[k, n] if truncated[k, n] else 0.0 if terminated[k, n] else following
                )
                whole = discounted + gamma ** (k - t + 1) * following
                if terminated[k, n] or truncated[k, n] or k == steps - 1:
                    total += left * whole
                    break
                total, left = total + left * (1 - weight) * whole, left * weight
            expected[t, n] = total
    arrays = [jnp.asarray(x, jnp.float32) for x in (value, last, final)]
    following = next_values(*arrays, jnp.asarray(truncated))
    found = q_lambda(
        jnp.asarray(reward, jnp.float32),
        following,
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        gamma,
        weight,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_largest_q_is_that_of_a_legal_action():
    q, mask = (
        jnp.array([[9.0, -3.0, -2.0], [1.0, 2.0, 3.0]]),
        jnp.array([[False, True, True], [True, False, False]]),
    )
    np.testing.assert_array_equal(largest(q, mask), [-2, 1])
    np.testing.assert_array_equal(of_action(q, jnp.array([2, 0])), [-2, 1])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31 - 1), st.floats(0, 1, width=32))
def test_no_illegal_action_is_ever_taken(seed, epsilon):
    keys = jax.random.split(jax.random.key(seed), 3)
    q = jax.random.normal(keys[0], (500, 5)) * 100
    mask = jax.random.bernoulli(keys[1], 0.4, (500, 5)).at[:, 3].set(True)
    below = [np.nextafter(np.float32(border), np.float32(0)) for border in (1, epsilon)]
    chance = jnp.concatenate([jax.random.uniform(keys[2], (497,)), jnp.float32([0.0, *below])])
    action, probs = both_of_epsilon(jnp.maximum(chance, 0.0), q, mask, jnp.float32(epsilon))
    assert bool(jnp.take_along_axis(mask, action[:, None], 1).all())
    assert not bool(jnp.where(mask, 0.0, probs).any())
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)


@jax.jit
def both_of_epsilon(chance, q, mask, epsilon):
    return epsilon_greedy(chance, q, mask, epsilon), epsilon_probs(q, mask, epsilon)


@pytest.mark.slow
def test_epsilon_greedy_draws_its_own_distribution_from_one_number():
    """Every chance k / 1000 once: of 1000 choices, 200 are random among three legal actions, the
    others greedy.
    """
    q, mask = jnp.array([5.0, 9.0, 1.0, 2.0]), jnp.array([True, False, True, True])
    chance = (jnp.arange(1000) + 0.5) / 1000
    action = epsilon_greedy(
        chance, jnp.broadcast_to(q, (1000, 4)), jnp.broadcast_to(mask, (1000, 4)), jnp.float32(0.2)
    )
    shares = np.bincount(np.asarray(action), minlength=4) / 1000
    np.testing.assert_allclose(shares, epsilon_probs(q, mask, jnp.float32(0.2)), atol=0.001)
    np.testing.assert_array_equal(epsilon_greedy(jnp.float32(0), q, mask, jnp.float32(0)), 0)
    tied = jnp.zeros(4)
    assert (
        int(epsilon_greedy(jnp.float32(0.5), tied, mask, jnp.float32(0))) == 0
    )  # the lowest id of equals


def test_epsilon_falls_up_to_its_share_of_the_run():
    floats = dict.fromkeys(QHParams.__dataclass_fields__, jnp.float32(0))
    hparams = QHParams(
        **floats
        | {
            "epsilon": jnp.float32(1),
            "epsilon_end": jnp.float32(0.2),
            "epsilon_until": jnp.float32(0.5),
        }
    )
    found = [float(epsilon_at(hparams, jnp.float32(x))) for x in (0, 0.25, 0.5, 1)]
    assert found == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_dueling_centres_the_advantages_over_all_actions():
    network = make_q_network(NetworkConfig(hidden=(4,)), 3, dueling=True)
    x = jnp.array([0.3, -1.0])
    params = network.init(jax.random.key(0), None, x)["params"]
    features = jnp.tanh(x @ params["q_torso"]["Dense_0"]["kernel"])
    own, value = features @ params["q_head"]["kernel"], features @ params["value_head"]["kernel"]
    np.testing.assert_allclose(
        network.apply({"params": params}, None, x)[1], value + own - own.mean(), atol=1e-6
    )


@pytest.mark.slow
def test_layer_norm_comes_before_the_activation():
    network = make_q_network(NetworkConfig(hidden=(6,), activation="relu"), 2, layer_norm=True)
    x = jnp.array([[100.0, -7.0], [0.1, 3.0]])
    params = network.init(jax.random.key(1), None, x)["params"]
    hidden = np.asarray(x @ params["q_torso"]["Dense_0"]["kernel"], np.float64)
    normed = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(
        hidden.var(-1, keepdims=True) + 1e-6
    )
    expected = np.maximum(normed, 0) @ np.asarray(params["q_head"]["kernel"], np.float64)
    np.testing.assert_allclose(network.apply({"params": params}, None, x)[1], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dueling", [False, True])
def test_new_actions_are_worth_what_hold_is_and_change_no_other_value(dueling):
    config = NetworkConfig(hidden=(4,))
    source = PolicyLabels(("x",), ("HOLD", "BUY"), "relative", config, HEAD)
    target = PolicyLabels(("x",), ("HOLD", "TRAIL", "BUY", "CLOSE"), "relative", config, HEAD)
    x = jnp.array([[0.5], [-2.0]])
    small, large = (make_q_network(config, n, dueling=dueling) for n in (2, 4))
    params = small.init(jax.random.key(4), None, x)["params"]
    wide = large.init(jax.random.key(5), None, x)["params"]
    copied = {
        part: jnp.zeros_like(wide["q_head"][part])
        .at[..., jnp.array([0, 2])]
        .set(params["q_head"][part])
        for part in ("kernel", "bias")
    }
    carried = copy_hold_weights({**params, "q_head": copied}, params, source, target)
    before = small.apply({"params": params}, None, x)[1]
    after = large.apply({"params": carried}, None, x)[1]
    np.testing.assert_allclose(after[:, [0, 2]], before, atol=1e-6)
    np.testing.assert_allclose(after[:, [1, 3]], before[:, [0, 0]], atol=1e-6)
