"""PPO learns `entry` and `manage` as they are, to within a tenth of the exact optimum, on paths it
has never seen.
"""

from __future__ import annotations

import jax
import pytest

from jaxtrade.evaluation.baselines import greedy, random_masked
from jaxtrade.rl.ppo.act import policy_of
from jaxtrade.runs.setup import prepare
from jaxtrade.training.loop import train
from tests.optimum.learner import chain_config, fresh, optimum_of, profits, sessions_of

# Tasks, observation, brackets, costs, network and reward are the defaults; these are the learner's.
BOTH = (
    "rollout.num_envs=64",
    "rollout.num_steps=128",
    "ppo.num_minibatches=4",
    "ppo.learning_rate=0.001",
    "ppo.learning_rate_end=0.0001",
    "ppo.normalise_rewards=false",
)
OF_TASK = {
    "entry": (
        "ppo.gamma=0.998",
        "ppo.gae_lambda=0.95",
        "ppo.ent_coef=0.05",
        "ppo.ent_coef_end=0.003",
        "train.total_timesteps=500_000",
    ),
    "manage": (
        "ppo.gamma=0.95",
        "ppo.gae_lambda=0.9",
        "ppo.ent_coef=0.02",
        "ppo.ent_coef_end=0.002",
        "train.total_timesteps=800_000",
    ),
}


@pytest.mark.slow
def test_the_optimum_is_learned():
    config = chain_config("manage", *BOTH, *OF_TASK["manage"], "network.kind=mlp")
    setup = prepare(config)
    trained = train(
        setup.algorithm, setup.params, config=config.train, key=jax.random.key(config.seed)
    )
    assert all(passed for passed, _ in trained.health.values()), trained.health

    unseen = fresh(config)
    assert unseen.market.fingerprint != setup.market.fingerprint
    sessions = sessions_of(unseen)
    _, expected = optimum_of("manage", sessions)
    agent = greedy(setup.algorithm, policy_of(trained.state), unseen.env)
    made = profits(unseen.env, agent, unseen.params, sessions)
    ratio = made.mean() / expected.mean()
    print(f"{ratio:.3f} of the optimum on {len(made)} fresh sessions")
    assert ratio >= 0.9
    chance = profits(unseen.env, random_masked(unseen.env), unseen.params, sessions)
    assert (
        chance.mean() < 0.1 * expected.mean()
    )  # no easy market: trading at random earns nothing of it
