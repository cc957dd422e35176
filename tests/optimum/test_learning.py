"""PPO learns `entry` and `manage` as they are, to within a tenth of the exact optimum, on paths it
has never seen.
"""

import jax
import pytest

from bench.learners import ROWS
from jaxtrade.evaluation.baselines import greedy, random_masked
from jaxtrade.rl.actor_critic import policy_of
from jaxtrade.runs.setup import prepare
from jaxtrade.training.loop import train
from tests.optimum.learner import chain_config, fresh, optimum_of, profits, sessions_of


@pytest.mark.slow
def test_the_optimum_is_learned():
    config = chain_config("manage", *ROWS["chain", "ppo"].split(), "network.kind=mlp")
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
