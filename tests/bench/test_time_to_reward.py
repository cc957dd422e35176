"""The rule that tells when a target is met, the statistics over seeds, and the committed
settings.
"""

import pytest

from bench import sb3, time_to_reward
from bench.harness import Sample
from bench.learning import learning_of
from bench.time_to_reward import compare, config_of, summary
from bench.worker import Reply


def runs(*steps, seconds_per_step=0.01, compiling=0.0):
    def reply(count):
        answer = {"reached": True, "steps": count, "last": 0.5}
        return Reply(Sample(count * seconds_per_step, count * seconds_per_step * 2), 0, answer)

    told = {"compile_seconds": compiling, "compile_cpu_seconds": 2 * compiling}
    return summary([reply(count) for count in steps]) | told


def test_ratios_on_hand_numbers():
    ours = runs(100, 300, 200, seconds_per_step=0.001, compiling=0.8)
    theirs = runs(200, 400, 300)
    assert ours["env_steps"] == 200
    assert ours["env_steps_each"] == [100, 300, 200]
    assert ours["seconds_range"] == [0.1, 0.3]
    reported = compare(ours, theirs)
    assert (reported["wall"], reported["cpu"]) == (15.0, 15.0)
    assert reported["with_compile"] == {"wall": 3.0, "cpu": 3.0}
    assert reported["env_steps"] == pytest.approx(2 / 3, rel=1e-3)


@pytest.mark.parametrize("count", time_to_reward.NUM_ENVS)
def test_both_learners_get_the_same_settings(count):
    ppo = learning_of(config_of(count))
    assert ppo.num_envs * ppo.num_steps == time_to_reward.ROLLOUT
    reported = sb3.arguments(ppo)  # raises where SB3 cannot do the same
    assert reported["batch_size"] == time_to_reward.ROLLOUT // time_to_reward.PPO["num_minibatches"]
    assert time_to_reward.GOAL.target == 0.9 * time_to_reward.OPTIMUM
    assert len(time_to_reward.SEEDS) >= 8
