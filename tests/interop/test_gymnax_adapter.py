"""gymnax environments through the adapter; PPO solves CartPole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.config import TrainConfig
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo.act import policy_of
from jaxtrade.rl.rollout import reset_all
from jaxtrade.training.loop import train
from jaxtrade.training.plan import plan_run


@pytest.fixture(scope="module")
def cartpole():
    return from_gymnax("CartPole-v1")


@pytest.mark.slow
def test_adapter_gives_what_gymnax_gives(cartpole):
    """500 random steps: observations, rewards, ends and final observations equal gymnax's own,
    resets included.
    """
    env, params = cartpole
    key = jax.random.key(0)
    observation, state = env.environment.reset(key, params)
    ours, ref = env.reset(key, params)
    np.testing.assert_array_equal(ref, observation)
    step, theirs = jax.jit(env.step), jax.jit(env.environment.step)
    ends = 0
    for i in range(500):
        key, action = jax.random.fold_in(key, i), jnp.int32(i % 3 > 0)
        observation, state, reward, terminated, truncated, info = theirs(key, state, action, params)
        ours, ref, outcome = step(key, ours, action, params)
        np.testing.assert_array_equal(ref, observation)
        np.testing.assert_array_equal(outcome.final_ref, info["final_observation"])
        assert (outcome.reward, outcome.terminated, outcome.truncated) == (
            reward,
            terminated,
            truncated,
        )
        ends += int(terminated)
    assert ends > 5
    assert step._cache_size() == 1


def test_sizes_types_and_masks(cartpole):
    env, params = cartpole
    assert (env.num_actions, env.observation_size) == (2, 4)
    state, ref = env.reset(jax.random.key(0), params)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, ref, params)))
    assert env.action_mask(ref).all()
    np.testing.assert_array_equal(env.observe(ref, params), ref)


def test_the_time_limit_is_a_truncation(cartpole):
    env, params = cartpole
    params = params.replace(max_steps_in_episode=jnp.int32(3))
    state, _ = env.reset(jax.random.key(0), params)
    for t in range(3):
        state, ref, outcome = env.step(jax.random.key(t), state, jnp.int32(t % 2), params)
    assert outcome.truncated
    assert not outcome.terminated
    assert not np.array_equal(ref, outcome.final_ref)


def test_continuous_actions_are_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1.*discrete .*Box"):
        from_gymnax("Pendulum-v1")


@pytest.mark.slow
def test_ppo_solves_cartpole(cartpole):
    """Mean return >= 475 of the greedy policy over 200 fresh episodes (the environment's own
    definition of solved).
    """
    env, params = cartpole
    config = Learning(
        num_envs=32,
        num_steps=64,
        num_minibatches=4,
        num_epochs=8,
        learning_rate=2e-3,
        learning_rate_end=1e-4,
        ent_coef=0.0,
    )
    run = TrainConfig(total_timesteps=150_000, chunk_updates=10)
    algorithm = make_ppo(
        config.run, env, plan_run(run, config.num_envs, config.num_steps).total_updates
    )
    result = train(algorithm, params, config=run, key=jax.random.key(0))
    assert all(passed for passed, _ in result.health.values())
    assert max(row["ratio_error"] for row in result.history) <= 1e-5
    policy = policy_of(result.state)

    @jax.jit
    def episode_returns(key):
        def step(carry, key):
            state, ref, alive, total = carry
            _, action, _ = jax.vmap(algorithm.act, (None, None, 0, None, None, None))(
                policy, (), ref, params, None, False
            )
            state, ref, outcome = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key, 200), state, action, params
            )
            total += jnp.where(alive, outcome.reward, 0.0)
            return (state, ref, alive & ~(outcome.terminated | outcome.truncated), total), None

        start = (*reset_all(env, key, params, 200), jnp.ones(200, bool), jnp.zeros(200))
        return jax.lax.scan(step, start, jax.random.split(key, 501))[0][2:]

    alive, returns = episode_returns(jax.random.key(123))
    assert not alive.any()
    assert returns.mean() >= 475
