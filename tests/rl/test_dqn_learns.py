"""DQN learns: probes whose answers are known, CartPole, Acrobot, and the mean-reverting market."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learners import ROWS
from bench.studies.defaults_problems import PROBLEMS, config_of, world_of
from jaxtrade.config import make_config
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.dqn import make_dqn
from jaxtrade.rl.q import policy_of
from jaxtrade.training.loop import train
from jaxtrade.training.plan import plan_run
from tests.optimum.learner import WANTED
from tests.rl.probes import ProbeRef, probe_params
from tests.rl.test_probes import ASKED, CONSTANT, CUE, ENV, LATE, PAID

UPDATES = 150
CONFIG = make_config(
    {
        "algorithm": "dqn",
        "rollout": {"num_envs": 16, "num_steps": 8},
        "network": {"hidden": [32]},
        "dqn": {
            "buffer_size": 4096,
            "batch_size": 64,
            "replay_ratio": 8,
            "learning_starts": 256,
            "target_every": 64,
            "learning_rate": 1e-2,
            "learning_rate_end": 1e-3,
            "epsilon_end": 0.1,
            "normalise_rewards": False,
        },
    }
)
LEARNER = make_dqn(CONFIG, ENV, UPDATES)


@functools.cache
def compiled():
    def learn(params, gamma):
        state = LEARNER.init(jax.random.key(0), params)
        state = state.replace(hparams=state.hparams.replace(gamma=gamma))
        return jax.lax.scan(
            lambda s, _: LEARNER.update(s, params, None), state, None, length=UPDATES
        )

    return jax.jit(learn), jax.jit(
        lambda policy, ref, params: LEARNER.act(policy, None, ref, params, None, False)[1:]
    )


def learn(kind, gamma=0.9, **keywords):
    """Train, then tell action, value and mask at (cue, time). All probes share one compiled
    program.
    """
    run, greedy = compiled()
    params = probe_params(kind, **keywords)
    state, metrics = run(params, jnp.float32(gamma))
    assert int(metrics["illegal"].sum()) == 0

    def at(cue, time=0):
        ref = ProbeRef(jnp.float32(cue), jnp.int32(time), jnp.float32(params.shows_time))
        action, extras = greedy(policy_of(state), ref, params)
        return int(action), float(extras.value), np.asarray(extras.mask)

    return at


@pytest.mark.slow
def test_the_value_of_a_reward_that_the_observation_tells():
    at = learn(CUE)
    for cue in (-1, 1):
        assert at(cue)[1] == pytest.approx(cue, abs=0.05)


@pytest.mark.slow
def test_a_reward_at_the_end_is_discounted():
    """Over three steps: the samples of n = 3 steps and their ends count as they should."""
    at = learn(LATE, length=3)
    for time in range(3):
        assert at(1, time)[1] == pytest.approx(0.9 ** (2 - time), abs=0.05)


@pytest.mark.slow
def test_the_action_that_the_observation_asks_for():
    at = learn(ASKED)
    for cue in (-1, 1):
        assert at(cue)[0] == 1 + (cue > 0)
        assert at(cue)[1] == pytest.approx(1.0, abs=0.05)


def test_a_masked_action_is_neither_chosen_nor_bootstrapped():
    """Action 0 pays best and is illegal while cue > 0; action 3 would pay most and is never legal.
    With episodes of two steps, gamma 0.9: the second value is 2 or 1 by the cue, the first 1.9
    times that."""
    at = learn(PAID, length=2)
    assert (at(1)[0], at(-1)[0]) == (2, 0)
    np.testing.assert_array_equal(at(1)[2], [False, True, True, False])
    for time, factor in ((1, 1.0), (0, 1.9)):
        assert at(1, time)[1] == pytest.approx(1.0 * factor, abs=0.15)
        assert at(-1, time)[1] == pytest.approx(2.0 * factor, abs=0.15)


def test_truncation_bootstraps_and_termination_does_not():
    """Reward 1 for ever, gamma 0.5: the value is 2, also where a time limit that is not observed
    cuts episodes. A real end after 2 steps makes it 1.5 and then 1."""
    at = learn(CONSTANT, gamma=0.5, length=2, truncates=True, shows_time=False)
    assert [at(cue)[1] for cue in (-1, 1)] == pytest.approx([2.0, 2.0], abs=0.05)
    at = learn(CONSTANT, gamma=0.5, length=2)
    assert [at(1, time)[1] for time in (0, 1)] == pytest.approx([1.5, 1.0], abs=0.05)


def solved(task, name, seeds):
    """The scores of `seeds` seeds (two or more) with the bench's settings, each over 200 greedy
    episodes or 100 unseen sessions."""
    problem = PROBLEMS[name]
    config = config_of(problem, "mlp", ("algorithm=dqn", *ROWS[task, "dqn"].split()))
    world = world_of(problem, config)
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    algorithm = make_algorithm(config, world.env, plan.total_updates)
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds, dtype=jnp.uint32))
    result = train(algorithm, world.params, config=config.train, key=keys, num_seeds=seeds)
    assert all(passed for passed, _ in result.health.values()), result.health
    return world.judge(algorithm, jax.vmap(policy_of)(result.state))


@pytest.mark.slow
def test_the_mean_reverting_market_is_learnt_to_within_15_percent_of_its_optimum():
    found = solved("chain", "reversion", seeds=2)["score"]
    print(f"{found} of the optimum")
    assert np.min(found) >= WANTED["chain"]
