"""PQN reaches what is known of three problems with the settings of the bench."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from bench.learners import GYMNAX, ROWS
from jaxtrade.config import load_config
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.rl.pqn import make_pqn
from jaxtrade.runs.setup import prepare
from jaxtrade.training.loop import train
from jaxtrade.training.plan import plan_run
from tests.optimum.learner import WANTED, chain_config, fresh, optimum_of, profits, sessions_of

EPISODES, LONGEST = 200, 500


def greedy_returns(name: str) -> jax.Array:
    """float32[3, 200]: undiscounted returns of greedy episodes of three seeds, trained with the
    bench's settings.
    """
    config = load_config(None, ["algorithm=pqn", *ROWS[name, "pqn"].split()])
    env, params = from_gymnax(GYMNAX[name])
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    learner = make_pqn(config, env, plan.total_updates)
    keys = jax.vmap(jax.random.key)(jnp.arange(3, dtype=jnp.uint32))
    policies = jax.vmap(learner.policy)(
        train(learner, params, config=config.train, key=keys, num_seeds=3).state
    )

    def episode(policy, key):
        state, ref = env.reset(key, params)

        def step(now, key):
            state, ref, alive = now
            _, action, _ = learner.act(policy, None, ref, params, None, False)
            state, ref, outcome = env.step(key, state, action, params)
            ended = outcome.terminated | outcome.truncated
            return (state, ref, alive & ~ended), jnp.where(alive, outcome.reward, 0.0)

        start = (state, ref, jnp.bool_(True))
        return jax.lax.scan(step, start, jax.random.split(key, LONGEST))[1].sum()

    each = jax.vmap(jax.vmap(episode, (None, 0)), (0, None))
    return jax.jit(each)(policies, jax.random.split(jax.random.key(1), EPISODES))


@pytest.mark.slow
def test_cartpole_is_balanced():
    """The median of three seeds: the last rounding of a run, which differs between machines, may
    spoil one.
    """
    assert float(jnp.median(greedy_returns("cartpole").mean(1))) >= WANTED["cartpole"]


@pytest.mark.slow
@pytest.mark.long
def test_acrobot_swings_up():
    assert float(jnp.median(greedy_returns("acrobot").mean(1))) >= WANTED["acrobot"]


@pytest.mark.slow
@pytest.mark.long  # test_dqn_learns.py
def test_the_mean_reverting_market_is_learned_to_within_15_percent_of_its_optimum():
    config = chain_config("manage", "algorithm=pqn", *ROWS["chain", "pqn"].split())
    setup = prepare(config)
    trained = train(
        setup.algorithm, setup.params, config=config.train, key=jax.random.key(config.seed)
    )
    assert all(passed for passed, _ in trained.health.values()), trained.health
    unseen = fresh(config)
    sessions = sessions_of(unseen)
    _, expected = optimum_of("manage", sessions)
    agent = greedy(setup.algorithm, setup.algorithm.policy(trained.state), unseen.env)
    made = profits(unseen.env, agent, unseen.params, sessions)
    ratio = made.mean() / expected.mean()
    print(f"{ratio:.3f} of the optimum on {len(made)} fresh sessions")
    assert ratio >= WANTED["chain"]
