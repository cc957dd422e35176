"""Several symbols in one account behind the interfaces of other libraries."""

import warnings

import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from jaxtrade.errors import ConfigError
from jaxtrade.interop.registration import register_envs, to_sb3
from jaxtrade.interop.world import ENV_ID, load_world
from tests.extras import needed
from tests.interop.interfaces import assert_equal_bits

WORLD = {
    "config": "fx_allocate",
    "overrides": ("data.start=2014-01-02", "data.end=2014-12-31"),
}
STEPS, SEED = 120, 3


@pytest.fixture(scope="module")
def world():
    register_envs()
    return load_world(**WORLD)


def native(world):
    """Observations, masks, actions and rewards under random legal actions, NumPy."""
    env, params = world

    def step(carry, key):
        state, ref = carry
        mask = env.action_mask(ref)
        action = jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf)).astype(jnp.int32)
        seen = env.observe(ref, params)
        state, ref, outcome = env.step(key, state, action, params)
        return (state, ref), (seen, mask, action, outcome.reward, outcome.info.equity)

    @jax.jit
    def run(params):
        start = env.reset(jax.random.key(SEED), params)
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(0), STEPS))[1]

    return [np.asarray(each) for each in run(params)]


def test_gymnasium_plays_the_same_episodes(world):
    env = gymnasium.make(ENV_ID, **WORLD, disable_env_checker=True)
    observation, info = env.reset(seed=SEED)
    for seen, mask, action, reward, equity in zip(*native(world), strict=True):
        assert_equal_bits(observation, seen, "observation")
        assert_equal_bits(info["action_mask"], mask, "mask")
        observation, found, terminated, truncated, info = env.step(int(action))
        assert np.float32(found) == reward
        assert info["equity"] == equity
        if terminated or truncated:
            observation, info = env.reset()


def test_gymnasiums_check_finds_nothing(world):
    made = gymnasium.make(ENV_ID, **WORLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped, skip_render_check=True)


def test_many_environments_step_together(world):
    env = gymnasium.make_vec(ENV_ID, 3, **WORLD)
    observations, infos = env.reset(seed=SEED)
    assert observations.shape == (3, world[0].observation_size)
    assert_equal_bits(observations[0], native(world)[0][0], "observation")
    actions = infos["action_mask"].argmax(axis=1)
    assert env.step(actions)[1].shape == (3,)


def test_a_session_is_chosen_by_its_date(world):
    env = gymnasium.make(ENV_ID, **WORLD)
    first, _ = env.reset(seed=0, options={"session": "2014-02-03"})
    again, _ = env.reset(options={"session": "2014-02-03"})
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ConfigError, match="not among"):
        env.reset(options={"session": "2015-02-03"})


def test_gymnax_plays_the_same_episodes(world):
    env, params = gymnax.make(ENV_ID, **WORLD)
    observation, state = env.reset(jax.random.key(SEED), params)
    rows = native(world)
    for seen, mask, action, reward, _ in zip(*(each[:20] for each in rows), strict=True):
        assert_equal_bits(np.asarray(observation), seen, "observation")
        assert_equal_bits(np.asarray(env.action_mask(state, params)), mask, "mask")
        observation, state, found, *_ = env.step(jax.random.key(0), state, int(action), params)
        assert_equal_bits(np.asarray(found), reward, "reward")
    assert env.observation_space(params).contains(observation)


def test_stable_baselines_steps_many(world):
    needed("stable_baselines3")
    env = to_sb3(*world, 2)
    env.seed(SEED)
    observations, rows = env.reset(), native(world)
    for seen, mask, action, reward, _ in zip(*(each[:20] for each in rows), strict=True):
        assert_equal_bits(observations[0], seen, "observation")
        assert_equal_bits(env.env_method("action_masks")[0], mask, "mask")
        observations, rewards, _, _ = env.step(np.array([action, 0]))
        assert rewards[0] == reward


@pytest.mark.slow
def test_maskable_ppo_trains(world):
    contrib = needed("sb3_contrib")
    model = contrib.MaskablePPO(
        "MlpPolicy", to_sb3(*world, 4), seed=0, device="cpu", batch_size=64, n_steps=64
    )
    model.learn(1_000)
    assert model.num_timesteps == 1_024
