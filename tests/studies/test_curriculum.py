"""The curriculum's comparison: the rule that counts steps, and that the bench runs."""

import numpy as np
import pytest

from bench.studies import curriculum, interval
from bench.time_to_reward import ROLLOUT


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(curriculum, "TARGET", 1.0)
    monkeypatch.setattr(curriculum, "WINDOW", 2)


def test_steps_are_counted_to_the_first_window_at_the_target():
    found = curriculum.updates_to_target
    assert found([0.0, 3.0, 0.0, 2.0, 2.0]) == (2, True)  # (0 + 3) / 2 is past it
    assert found([0.0, 1.5, 0.0, 1.9, 0.2]) == (5, True)  # (1.9 + 0.2) / 2
    assert found([0.0, 1.5, 0.0, 1.9, 0.0]) == (5, False)
    assert found([0.0] * 5) == (5, False)


def test_earlier_phases_count_along():
    rewards = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    alone, both = curriculum.summary(rewards, 0), curriculum.summary(rewards, 10)
    assert alone["env_steps_each"] == [2 * ROLLOUT, 4 * ROLLOUT]
    assert both["env_steps_each"] == [12 * ROLLOUT, 14 * ROLLOUT]
    assert alone["reached"] == both["reached"] == 1


def test_the_interval_on_hand_numbers():
    over = curriculum.over
    assert over([200.0] * 8, [100.0] * 8) == 2.0
    assert interval(over, [200.0] * 8, [100.0] * 8) == [2.0, 2.0]
    # medians 1, 2, 3 with chances 1/4, 1/2, 1/4
    assert interval(over, [1.0, 3.0], [1.0, 1.0]) == [1.0, 3.0]
    assert interval(over, [1.0, 1.0], [1.0, 2.0]) == [0.5, 1.0]


def test_tasks_share_everything_else():
    first, *others = [curriculum.config_of(task) for task in curriculum.TASKS]
    for config in others:
        assert config.model_copy(update={"env": first.env}) == first
