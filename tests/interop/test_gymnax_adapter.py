"""gymnax environments through the adapter; PPO solves CartPole."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade
from bench.studies.defaults_problems import PROBLEMS, config_of, world_of
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.training.loop import plan_run, train
from tests.messages import refused
from tests.optimum.learner import WANTED

SETTINGS = """
rollout.num_envs=32 rollout.num_steps=64 ppo.num_minibatches=4 ppo.num_epochs=8
ppo.learning_rate=0.002 ppo.learning_rate_end=0.0001 ppo.ent_coef=0.0
train.total_timesteps=150_000 train.chunk_updates=10
"""


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
def test_ppo_solves_cartpole():
    """Mean return >= 475 of the greedy policy over 200 fresh episodes (the environment's own
    definition of solved).
    """
    problem = PROBLEMS["CartPole"]
    config = config_of(problem, "mlp", ("algorithm=ppo", *SETTINGS.split()))
    world = world_of(problem, config)
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    algorithm = make_algorithm(config, world.env, plan.total_updates)
    result = train(algorithm, world.params, config=config.train, key=jax.random.key(0))
    assert all(passed for passed, _ in result.health.values())
    policies = jax.tree.map(lambda x: x[None], algorithm.policy(result.state))
    [score] = world.judge(algorithm, policies)["score"]
    assert score >= WANTED["cartpole"] / 500


class Stepping:
    """What Gymnasium has: an environment that steps in Python."""

    spec = SimpleNamespace(id="Taxi-v3")

    def reset(self):
        """Begin."""

    def step(self):
        """Go on."""


def test_an_environment_that_steps_in_python_is_told_what_to_do():
    for make in (jaxtrade.from_gymnasium, jaxtrade.from_gymnax):
        with refused("from_gymnax("):
            make(Stepping())
    with refused("from_gymnax('Taxi-v3')", "to_gymnasium"):
        jaxtrade.from_gymnasium(Stepping())
    config = jaxtrade.load_config("quickstart")
    for make in (jaxtrade.make_ppo, jaxtrade.make_dqn, jaxtrade.make_pqn):
        with refused("<Stepping>", "observe, action_mask", "from_gymnax"):
            make(config, Stepping(), 1)


class Unnamed(Stepping):
    """An environment that is registered nowhere."""

    spec = None


@pytest.mark.parametrize("env", [Unnamed(), Unnamed])
def test_an_environment_without_a_name_is_named_by_its_class(env):
    for make in (jaxtrade.from_gymnasium, jaxtrade.run, jaxtrade.Trainer, jaxtrade.load_config):
        with refused("Unnamed", "docs/sb3.md") as error:
            make(env)
        assert "from_gymnax" not in str(error.value)


def test_what_is_no_configuration_is_refused_by_its_type():
    with refused("<GymnaxEnv>", "make_ppo"):
        jaxtrade.run(jaxtrade.from_gymnax("CartPole-v1")[0])
    with refused("<int>", "RunConfig"):
        jaxtrade.load_config(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("env", [Stepping(), "Taxi-v3"])
def test_a_run_on_another_environment_is_told_of_the_parts(env):
    for make in (jaxtrade.run, jaxtrade.Trainer):
        with refused("env=", "from_gymnax", "make_ppo"):
            make("quickstart", env=env)
