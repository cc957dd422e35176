"""PPO, DQN and PQN learn probes whose answers are known: each isolates one part of the machinery.

All probes of a learner run through one compiled program: what differs is traced.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.rl.algorithms import make_algorithm
from tests.rl.probes import Probe, ProbeRef, probe_params

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
RATES = {"learning_rate": 1e-2, "learning_rate_end": 1e-3, "normalise_rewards": False}
EPOCHS = {"num_minibatches": 4, "num_epochs": 4}
# learner -> environments, steps and updates of a run, its own keys
RUNS = {
    "ppo": (32, 16, 60, EPOCHS | {"ent_coef": 0.0}),
    "pqn": (32, 16, 60, EPOCHS | {"epsilon_end": 0.1}),
    "dqn": (
        16,
        8,
        150,
        {
            "buffer_size": 4096,
            "batch_size": 64,
            "replay_ratio": 8,
            "learning_starts": 256,
            "target_every": 64,
            "epsilon_end": 0.1,
        },
    ),
}


@functools.cache
def compiled(name):
    """(algorithm, train, greedy)"""
    envs, steps, updates, keys = RUNS[name]
    config = make_config(
        {
            "algorithm": name,
            "rollout": {"num_envs": envs, "num_steps": steps},
            "network": {"hidden": [32]},
            name: keys | RATES,
        }
    )
    algorithm = make_algorithm(config, ENV, updates)

    def train(params, gamma):
        state = algorithm.init(jax.random.key(0), params)
        state = state.replace(hparams=state.hparams.replace(gamma=gamma))
        return jax.lax.scan(
            lambda s, _: algorithm.update(s, params, None), state, None, length=updates
        )

    def greedy(policy, ref, params):
        return algorithm.act(policy, algorithm.carry, ref, params, None, False)[1:]

    return algorithm, jax.jit(train), jax.jit(greedy)


def learn(name, kind, gamma=0.9, **keywords):
    """Train, then tell action, value and mask at (cue, time)."""
    algorithm, train, greedy = compiled(name)
    params = probe_params(kind, **keywords)
    state, metrics = train(params, jnp.float32(gamma))
    assert int(metrics["illegal"].sum()) == 0

    def at(cue, time=0):
        ref = ProbeRef(jnp.float32(cue), jnp.int32(time), jnp.float32(params.shows_time))
        action, extras = greedy(algorithm.policy(state), ref, params)
        return int(action), float(extras.value), np.asarray(extras.mask)

    return at


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("pqn", "dqn")]


@pytest.fixture(params=["ppo", *SLOW])
def name(request):
    return request.param


def test_reward_at_the_end_is_discounted(name):
    """Over three steps: DQN's samples of n = 3 steps and their ends count as they should."""
    at = learn(name, LATE, length=3)
    for time in range(3):
        assert at(1, time)[1] == pytest.approx(0.9 ** (2 - time), abs=0.05)


def test_action_that_the_observation_asks_for(name):
    at = learn(name, ASKED)
    for cue in (-1, 1):
        action, value, _ = at(cue)
        assert action == 1 + (cue > 0)
        assert value == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_a_masked_action_is_neither_chosen_nor_bootstrapped(name):
    """Action 0 pays best and is illegal while cue > 0; action 3 would pay most and is never legal.
    With episodes of two steps, gamma 0.9: the second value is 2 or 1 by the cue, the first 1.9
    times that."""
    at = learn(name, PAID, length=2)
    assert (at(1)[0], at(-1)[0]) == (2, 0)
    np.testing.assert_array_equal(at(1)[2], [False, True, True, False])
    for time, factor in ((1, 1.0), (0, 1.9)):
        assert at(1, time)[1] == pytest.approx(1.0 * factor, abs=0.15)
        assert at(-1, time)[1] == pytest.approx(2.0 * factor, abs=0.15)


@pytest.mark.slow
def test_truncation_bootstraps_and_termination_does_not(name):
    """Reward 1 for ever, gamma 0.5: the value is 2, also where a time limit that is not observed
    cuts episodes.

    A real end after 2 steps makes it 1.5 and then 1; a learner that confuses the two gives
    something between these.
    """
    at = learn(name, CONSTANT, gamma=0.5, length=2, truncates=True, shows_time=False)
    assert [at(cue)[1] for cue in (-1, 1)] == pytest.approx([2.0, 2.0], abs=0.05)
    at = learn(name, CONSTANT, gamma=0.5, length=2)
    assert [at(1, time)[1] for time in (0, 1)] == pytest.approx([1.5, 1.0], abs=0.05)
