import pytest

from bench import learners, time_to_reward
from bench.time_to_reward import Goal, Recent
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


def test_every_learner_has_settings_for_every_task():
    for task, learner in learners.ROWS:
        assert learners.config_of(task, learner).algorithm == learner
    assert {learner for _, learner in learners.ROWS} == set(learners.LEARNERS)
    assert set(learners.SB3) == set(learners.GOALS)


@pytest.mark.slow
def test_the_optimum_is_the_dynamic_programmes():
    """Expected reward of all episodes over their expected steps: starts are drawn from all decision
    bars.
    """
    found = reward_per_step(load_config(None, learners.CHAIN.split()))
    assert found == pytest.approx(time_to_reward.OPTIMUM, abs=2e-4)
