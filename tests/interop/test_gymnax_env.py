"""The gymnax interface: registered, stepped by gymnax's own wrappers, with and without
auto-reset.
"""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.interop.gymnax_env import GymnaxTrading, to_gymnax
from jaxtrade.interop.registration import register_envs
from jaxtrade.interop.world import ENV_ID
from tests.interop.interfaces import ENV, PARAMS

DOOR = to_gymnax(ENV, PARAMS)


def test_registered_and_made_by_name():
    register_envs()
    register_envs()  # harmless
    assert gymnax.registered_envs.count(ENV_ID) == 1
    env, params = gymnax.make(ENV_ID, overrides=("env.window=5", "env.task=entry"))
    assert isinstance(env, GymnaxTrading)
    assert params is env.default_params
    assert (env.num_actions, env.name) == (3, ENV_ID)
    env, params = gymnax.make(
        ENV_ID, overrides=("env.task=advised", "env.actions=seed6", "env.advice=true")
    )
    assert (env.num_actions, env.observation_space(params).shape) == (6, (261 + 7,))
    assert "record" in env.state_space(params).spaces


@pytest.mark.slow
def test_spaces_hold_what_they_describe():
    observation, state = DOOR.reset(jax.random.key(0), PARAMS)
    space = DOOR.observation_space(PARAMS)
    assert (space.shape, space.dtype) == (observation.shape, observation.dtype)
    assert space.contains(observation)
    assert DOOR.action_space(PARAMS).n == ENV.num_actions
    assert DOOR.state_space(PARAMS).contains(state)
    assert (
        not DOOR.state_space(PARAMS)
        .spaces["position"]
        .contains(state.position.replace(quantity=jnp.float32(jnp.inf)))
    )
    np.testing.assert_array_equal(DOOR.get_obs(state, PARAMS), observation)


@pytest.mark.slow
def test_without_auto_reset_the_ended_state_says_so():
    """`step_env` leaves an ended episode as it is; until then both steps lead to the same state."""
    step_env = jax.jit(DOOR.step_env)
    ends = jax.jit(
        lambda state, params: (DOOR.is_terminated(state, params), DOOR.is_truncated(state, params))
    )
    kinds = set()
    for seed in range(12):
        _, ours = DOOR.reset(jax.random.key(seed), PARAMS)
        auto = ours
        for t in range(100):
            action = t % ENV.num_actions if seed % 2 else 0
            observation, ours, reward, terminated, _ = step_env(
                jax.random.key(0), ours, action, PARAMS
            )
            _, auto, same_reward, same_end, truncated, info = DOOR.step(
                jax.random.key(0), auto, action, PARAMS
            )
            np.testing.assert_array_equal(observation, info["final_observation"])
            assert (reward, terminated) == (same_reward, same_end)
            assert ends(ours, PARAMS) == (terminated, truncated)
            if terminated or truncated:
                kinds.add(bool(truncated))
                assert int(auto.episode) == int(ours.episode) + 1
                break
            np.testing.assert_array_equal(auto.row, ours.row)
        else:
            pytest.fail("no end in 100 steps")
    assert kinds == {True, False}
