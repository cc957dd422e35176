from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from bench import learners
from bench import learners_settings as chosen
from bench.catalogue import Options
from bench.learners_settings import Goal
from bench.recent import Recent
from jaxtrade.config import load_config
from tests.optimum.learner import reward_per_step


def test_a_mean_of_steps_is_read_once_the_window_is_full():
    recent = Recent(Goal("step", 1.0, 4))
    recent.add(2, 4.0, 0, 0.0)
    assert (recent.reached, recent.mean) == (False, float("-inf"))
    recent.add(2, 2.0, 0, 0.0)
    assert (recent.reached, recent.mean) == (True, 1.5)
    recent.add(2, 1.0, 0, 0.0)  # the first entry is no longer needed to fill the window
    assert (recent.reached, recent.mean) == (False, 0.75)
    assert recent.result(100) == {"reached": False, "steps": 100, "last": 0.75}


def test_a_mean_of_episodes_counts_episodes_and_not_steps():
    recent = Recent(Goal("episode", 10.0, 3))
    recent.add(8, 8.0, 1, 6.0)
    recent.add(8, 8.0, 2, 24.0)
    assert (recent.mean, recent.reached) == (10.0, True)
    assert recent.result(100) == {"reached": True, "steps": 16, "last": 10.0}
    recent.add(8, 8.0, 0, 0.0)
    assert recent.mean == 10.0  # an update without an end changes nothing
    assert Recent(Goal("episode", 10.0, 3)).result(50) == {
        "reached": False,
        "steps": 50,
        "last": None,
    }


def test_the_interval_of_five_scores_by_hand():
    found = learners.figures(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    half = 2.776 * np.sqrt(2.5 / 5)  # t(4) at 97.5 %
    assert (found["mean"], found["least"]) == (3.0, 1.0)
    np.testing.assert_allclose(found["interval"], [3 - half, 3 + half], rtol=1e-3)


def test_every_learner_has_settings_for_every_task():
    for task in chosen.TASKS:
        for learner in chosen.LEARNERS:
            assert learners.config_of(task, learner).algorithm == learner
    assert set(chosen.SB3) == set(chosen.GOALS) <= set(chosen.TASKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "optimum"), [((), chosen.OPTIMUM), (chosen.FRESH, chosen.OPTIMUM_FRESH)]
)
def test_the_optimum_is_the_dynamic_programmes(keys, optimum):
    """Expected reward of all episodes over their expected steps: starts are drawn from all decision
    bars.
    """
    assert reward_per_step(load_config(None, [*chosen.CHAIN, *keys])) == pytest.approx(
        optimum, abs=2e-4
    )


@pytest.mark.slow
def test_a_greedy_return_is_that_of_one_episode():
    """A policy that always pushes CartPole to one side falls after 8 to 11 steps, and nothing after
    that counts.
    """
    algorithm, params = learners.algorithm_of(
        "cartpole", learners.config_of("cartpole", "ppo", 2_048)
    )
    state = algorithm.init(jax.random.key(0), params)
    left = algorithm._replace(
        act=lambda policy, carry, ref, params, key, explore: (carry, jax.numpy.int32(0), None)
    )
    returns = learners.episode_returns(left, algorithm.policy(state), params, jax.random.key(1), 64)
    assert 7 <= float(returns.min()) <= float(returns.max()) <= 12


@pytest.mark.slow
@pytest.mark.long
def test_the_bench_runs():
    found = learners.run(Options(quick=True))
    assert json.dumps(found)
    assert set(found["race"]) == set(chosen.GOALS)
    for task in chosen.TASKS:
        assert set(found["ends"][task]) == set(chosen.LEARNERS)
