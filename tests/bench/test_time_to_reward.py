"""The rule that tells when a target is met, the statistics over seeds, and the committed
settings.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bench import sb3, time_to_reward
from bench import time_to_reward_settings as chosen
from bench.catalogue import Options
from bench.harness import Sample
from bench.learning import learning_of
from bench.time_to_reward import (
    Run,
    bootstrap,
    compare,
    config_of,
    summary,
    train_until,
    window_mean,
)
from bench.time_to_reward_settings import Goal
from bench.worker import Reply
from tests.optimum.learner import chain_config, reward_per_step

GOAL = Goal(target=0.5, window=2, updates=5)


def follow(curve: list[float], goal: Goal = GOAL) -> list[float]:
    rest = iter(curve)
    return train_until(lambda: next(rest), goal)


def test_a_run_ends_with_the_update_that_meets_the_target() -> None:
    assert follow([0.0, 0.4, 0.7, 9.0]) == [0.0, 0.4, 0.7]
    assert follow([0.0, 0.3, 0.7, 9.0]) == [0.0, 0.3, 0.7]  # exactly the target
    assert follow([0.0, 0.0, 0.9, 0.2, 0.0]) == [0.0, 0.0, 0.9, 0.2]


def test_one_lucky_update_is_not_enough() -> None:
    assert follow([2.0, 2.0, 9.0]) == [
        2.0,
        2.0,
    ]  # as many as the window has, although the first is past the target
    assert window_mean([2.0], GOAL) == -np.inf


def test_the_budget_ends_a_run_that_misses() -> None:
    rewards = follow([0.0, 0.1, 0.8, 0.0, 0.1, 9.0])
    assert len(rewards) == GOAL.updates
    assert window_mean(rewards, GOAL) < GOAL.target


def test_the_interval_on_hand_numbers() -> None:
    assert bootstrap([200.0] * 8, [100.0] * 8) == (2.0, 2.0)
    low, high = bootstrap([1.0, 3.0], [1.0, 1.0])  # medians 1, 2, 3 with chances 1/4, 1/2, 1/4
    assert (low, high) == (1.0, 3.0)
    assert bootstrap([1.0, 3.0], [1.0, 1.0], level=0.4) == (2.0, 2.0)
    assert bootstrap([1.0, 1.0], [1.0, 2.0]) == (0.5, 1.0)


def runs(*steps: int, seconds_per_step: float = 0.01) -> dict[str, Any]:
    return summary(
        [
            Run(True, count, count * seconds_per_step, count * seconds_per_step * 2, 0.5)
            for count in steps
        ]
    )


def test_ratios_on_hand_numbers() -> None:
    ours, theirs = runs(100, 300, 200, seconds_per_step=0.001), runs(200, 400, 300)
    assert ours["env_steps"] == 200
    assert ours["env_steps_each"] == [100, 300, 200]
    assert ours["seconds_range"] == [0.1, 0.3]
    reported = compare(ours, theirs, Sample(wall=0.8, cpu=1.6))
    assert (reported["wall"], reported["cpu"]) == (15.0, 15.0)
    assert reported["with_compile"] == {"wall": 3.0, "cpu": 3.0}
    assert reported["env_steps"] == pytest.approx(2 / 3, rel=1e-3)
    assert reported["overlaps_band"]
    assert not compare(runs(1, 1, 1), runs(2, 2, 2), Sample(1.0, 1.0))["overlaps_band"]
    assert compare(runs(4, 4, 4), runs(5, 5, 5), Sample(1.0, 1.0))["overlaps_band"]
    assert not compare(runs(5, 5, 5), runs(3, 3, 3), Sample(1.0, 1.0))["overlaps_band"]


def test_a_miss_is_counted_as_the_whole_budget() -> None:
    class Child:
        def __init__(self, curves: list[list[float]]) -> None:
            self.curves = iter(curves)

        def run(self) -> Any:
            return Reply(Sample(3.0, 2.0), 0, next(self.curves))

    met, missed = [0.5, 0.5], [0.0] * 5
    found = time_to_reward.interleave({"a": Child([met, missed])}, GOAL, 2)["a"]  # pyright: ignore
    assert [run.reached for run in found] == [True, False]
    assert [run.steps for run in found] == [2 * chosen.ROLLOUT, 5 * chosen.ROLLOUT]


@pytest.mark.parametrize("count", [*chosen.NUM_ENVS, time_to_reward.OWN_ENVS])
def test_both_learners_get_the_same_settings(count: int) -> None:
    ppo = learning_of(config_of(count))
    assert ppo.num_envs * ppo.num_steps == chosen.ROLLOUT
    reported = sb3.arguments(ppo)  # raises where SB3 cannot do the same
    assert reported["batch_size"] == chosen.ROLLOUT // chosen.PPO["num_minibatches"]
    assert chosen.GOAL.target == 0.9 * chosen.OPTIMUM
    assert len(chosen.SEEDS) >= 8


@pytest.mark.slow
@pytest.mark.long
def test_every_side_runs_and_a_side_that_cannot_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_to_reward, "QUICK", Goal(updates=2, window=1))
    reported = time_to_reward.run(Options(quick=True))
    assert json.dumps(reported)
    sides = {"ours/16", "ours/64", "sb3/16"}
    assert {*reported["sides"], *reported["left_out"]} == sides
    for name, side in reported["sides"].items():
        assert (side["repeats"], side["reached"]) == (2, 0)
        assert side["env_steps_each"] == [2 * chosen.ROLLOUT] * 2
        assert ("compile_seconds" in side) == name.startswith("ours")
        assert min(side["seconds_each"]) > 0
    if "sb3/16" in reported["sides"]:
        assert reported["at_fastest"] == {"num_envs": 16, **reported["ratios"]["16"]}
        assert reported["at_fastest"]["env_steps"] == 1.0


@pytest.mark.slow
@pytest.mark.long  # test_learners.py
def test_the_optimum_is_the_dynamic_programmes() -> None:
    config = config_of(4)
    task = config.env.task
    assert config.data == chain_config(task).data
    assert (config.account, config.env, config.reward) == (lambda c: (c.account, c.env, c.reward))(
        chain_config(task)
    )
    assert reward_per_step(config) == pytest.approx(chosen.OPTIMUM, abs=2e-4)
