"""PPO learns probes whose answers are known: each isolates one part of the machinery.

All run through one compiled program: what differs is traced.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo.act import policy_of
from tests.rl.probes import Probe, ProbeRef, probe_params

UPDATES = 60
CONFIG = Learning(
    num_envs=32,
    num_steps=16,
    num_minibatches=4,
    num_epochs=4,
    hidden=(32,),
    learning_rate=1e-2,
    learning_rate_end=1e-3,
    ent_coef=0.0,
)
CONSTANT, CUE, LATE, ASKED, PAID = range(5)
ENV = Probe(
    (
        lambda ref, action: 1.0,
        lambda ref, action: ref.cue,
        lambda ref, action: ref.time == 2,
        lambda ref, action: jnp.where(action == 1 + (ref.cue > 0), 1.0, -1.0),
        lambda ref, action: jnp.array([2.0, 0.0, 1.0, 9.0])[action],
    )
)
PPO = make_ppo(CONFIG.run, ENV, UPDATES)


@functools.cache
def compiled():
    def train(params, gamma):
        state = PPO.init(jax.random.key(0), params)
        state = state.replace(hparams=state.hparams.replace(gamma=gamma))
        return jax.lax.scan(lambda s, _: PPO.update(s, params, None), state, None, length=UPDATES)

    def greedy(policy, ref, params):
        return PPO.act(policy, (), ref, params, None, False)[1:]

    return jax.jit(train), jax.jit(greedy)


def learn(kind, gamma=0.9, **keywords):
    """Train, then tell action, value and mask at (cue, time)."""
    train, greedy = compiled()
    params = probe_params(kind, **keywords)
    state, metrics = train(params, jnp.float32(gamma))
    assert int(metrics["illegal"].sum()) == 0

    def at(cue, time=0):
        ref = ProbeRef(jnp.float32(cue), jnp.int32(time), jnp.float32(params.shows_time))
        action, extras = greedy(policy_of(state), ref, params)
        return int(action), float(extras.value), np.asarray(extras.mask)

    return at


@pytest.mark.slow
def test_constant_reward_is_the_value():
    at = learn(CONSTANT)
    for cue in (-1, 1):
        assert at(cue)[1] == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_value_depends_on_the_observation():
    at = learn(CUE)
    for cue in (-1, 1):
        assert at(cue)[1] == pytest.approx(cue, abs=0.05)


def test_reward_at_the_end_is_discounted():
    at = learn(LATE, length=3)
    for time in range(3):
        assert at(1, time)[1] == pytest.approx(0.9 ** (2 - time), abs=0.05)


def test_action_that_the_observation_asks_for():
    at = learn(ASKED)
    for cue in (-1, 1):
        action, value, _ = at(cue)
        assert action == 1 + (cue > 0)
        assert value == pytest.approx(1.0, abs=0.05)


def test_masked_action_is_never_chosen_however_well_it_pays():
    """Action 0 pays best and is illegal while cue > 0; action 3 would pay most and is never
    legal.
    """
    at = learn(PAID)
    action, value, mask = at(1)
    assert action == 2
    assert value == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(mask, [False, True, True, False])
    action, value, _ = at(-1)
    assert action == 0
    assert value == pytest.approx(2.0, abs=0.1)


@pytest.mark.slow
def test_truncation_bootstraps_and_termination_does_not():
    """Reward 1 for ever, gamma 0.5: the value is 2, also where a time limit that is not observed
    cuts episodes.

    A real end after 2 steps makes it 1.5 and then 1; a learner that confuses the two gives
    something between these.
    """
    at = learn(CONSTANT, gamma=0.5, length=2, truncates=True, shows_time=False)
    assert [at(cue)[1] for cue in (-1, 1)] == pytest.approx([2.0, 2.0], abs=0.05)
    at = learn(CONSTANT, gamma=0.5, length=2)
    assert [at(1, time)[1] for time in (0, 1)] == pytest.approx([1.5, 1.0], abs=0.05)
    at = learn(CONSTANT, gamma=0.5, length=2, shows_time=False)
    assert 1.0 < at(1)[1] < 1.5
