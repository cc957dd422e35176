"""PPO learns five probes whose answers are known: each isolates one part of the machinery."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import PPOConfig
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.state import policy_of
from tests.rl.probes import Probe, ProbeRef

CONFIG = PPOConfig(num_envs=32, num_steps=16, num_minibatches=4, num_epochs=4, hidden=(32,), learning_rate=1e-2,
                   learning_rate_end=1e-3, ent_coef=0.0, gamma=0.9)


def learn(env, updates=60, config=CONFIG):
    """Train, then tell value, action and mask at (cue, time)."""
    algorithm = make_ppo(config, env, updates)
    state = jax.jit(algorithm.init)(jax.random.key(0), ())

    @jax.jit
    def all_updates(state):
        return jax.lax.scan(lambda s, _: algorithm.update(s, (), ()), state, None, length=updates)

    state, metrics = all_updates(state)
    assert int(metrics["illegal"].sum()) == 0
    act = jax.jit(lambda ref: algorithm.act(policy_of(state), (), ref, (), None, False)[1:])

    def at(cue, time=0):
        action, extras = act(ProbeRef(jnp.float32(cue), jnp.int32(time)))
        return int(action), float(extras.value), extras

    return at


def test_constant_reward_is_the_value():
    at = learn(Probe(lambda ref, action: 1.0))
    for cue in (-1, 1):
        assert at(cue)[1] == pytest.approx(1.0, abs=0.02)


def test_value_depends_on_the_observation():
    at = learn(Probe(lambda ref, action: ref.cue))
    for cue in (-1, 1):
        assert at(cue)[1] == pytest.approx(cue, abs=0.05)


def test_reward_at_the_end_is_discounted():
    at = learn(Probe(lambda ref, action: ref.time == 2, length=3))
    for time in range(3):
        assert at(1, time)[1] == pytest.approx(0.9 ** (2 - time), abs=0.05)


def test_action_that_the_observation_asks_for():
    at = learn(Probe(lambda ref, action: jnp.where(action == (ref.cue > 0), 1.0, -1.0)))
    for cue in (-1, 1):
        action, value, _ = at(cue)
        assert action == (cue > 0)
        assert value == pytest.approx(1.0, abs=0.05)


def test_masked_action_is_never_chosen_however_well_it_pays():
    # action 0 pays best and is illegal while cue > 0; action 3 would pay most and is never legal
    at = learn(Probe(lambda ref, action: jnp.array([2.0, 0.0, 1.0, 9.0])[action], masked=True, num_actions=4))
    action, value, extras = at(1)
    assert action == 2
    assert value == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(extras.mask, [False, True, True, False])
    action, value, _ = at(-1)
    assert action == 0
    assert value == pytest.approx(2.0, abs=0.1)


def test_truncation_bootstraps_and_termination_does_not():
    """Reward 1 for ever, gamma 0.5: cut after 2 steps the value is 2 at every step; ended after 2 it is 1.5, then 1."""
    config = CONFIG.model_copy(update={"gamma": 0.5})
    at = learn(Probe(lambda ref, action: 1.0, length=2, truncates=True), config=config)
    assert [at(1, time)[1] for time in (0, 1)] == pytest.approx([2.0, 2.0], abs=0.1)
    at = learn(Probe(lambda ref, action: 1.0, length=2), config=config)
    assert [at(1, time)[1] for time in (0, 1)] == pytest.approx([1.5, 1.0], abs=0.1)
