"""Every interface is the same environment: native, gymnax, gymnasium Env and VectorEnv agree bit
for bit.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from jaxtrade.interop.gymnasium_env import to_gymnasium, to_gymnasium_vec
from jaxtrade.interop.gymnax_env import to_gymnax
from tests.interop.interfaces import (
    ENDS,
    ENV,
    NUM_ENVS,
    PARAMS,
    SEED,
    STEPS,
    Trajectory,
    assert_equal_bits,
    native,
)


@pytest.fixture(scope="module")
def truth():
    return native()


def assert_same(interface, truth):
    for name, ours, theirs in zip(Trajectory._fields, interface, truth, strict=True):
        assert_equal_bits(ours, theirs, name)


def stacked(rows):
    return Trajectory(*(np.stack(column) for column in zip(*rows, strict=True)))


@pytest.mark.slow
def test_the_trajectory_is_worth_comparing(truth):
    """4000 steps, every kind of end, forbidden actions, positions taken."""
    assert truth.reward.size == STEPS * NUM_ENVS == 4000
    assert all((truth.end == end).sum() >= 3 for end in ENDS), np.bincount(truth.end.ravel())
    assert truth.illegal.sum() > 20
    assert (truth.reward != 0).mean() > 0.3
    done = truth.terminated | truth.truncated
    following = truth.observation[1:][done[:-1]]
    assert (following != truth.final_observation[:-1][done[:-1]]).any(axis=1).all(), (
        "a reset shows another start"
    )


@pytest.mark.slow
def test_gymnax_is_equal(truth):
    interface = to_gymnax(ENV, PARAMS)

    @jax.jit
    def run(params, actions):
        keys = jax.vmap(jax.random.key)(SEED + jnp.arange(NUM_ENVS))
        observation, state = jax.vmap(interface.reset, (0, None))(keys, params)
        mask = jax.vmap(interface.action_mask, (0, None))(state, params)

        def step(carry, action):
            observation, mask, state = carry
            following, state, reward, terminated, truncated, info = jax.vmap(
                interface.step, (0, 0, 0, None)
            )(keys, state, action, params)
            seen = Trajectory(
                observation,
                mask,
                action,
                reward,
                terminated,
                truncated,
                info["end_reason"],
                info["equity"],
                info["illegal"],
                info["final_observation"],
            )
            return (following, info["action_mask"], state), (
                seen,
                info["terminated"],
                info["truncated"],
            )

        return jax.lax.scan(step, (observation, mask, state), actions)[1]

    door_run, terminated, truncated = run(PARAMS, jnp.asarray(truth.action))
    assert_same(door_run, truth)
    assert_equal_bits(terminated, truth.terminated, "info['terminated']")
    assert_equal_bits(truncated, truth.truncated, "info['truncated']")


@pytest.mark.slow
def test_gymnasium_env_is_equal(truth):
    env, columns = to_gymnasium(ENV, PARAMS), []
    for i in range(NUM_ENVS):
        observation, info = env.reset(seed=SEED + i)
        rows = []
        for action in truth.action[:, i]:
            assert_equal_bits(info["action_mask"], env.action_masks(), "info['action_mask']")
            before = [observation, env.action_masks(), action]
            observation, reward, terminated, truncated, info = env.step(action)
            rows.append(
                [
                    *before,
                    np.float32(reward),
                    terminated,
                    truncated,
                    info["end_reason"],
                    info["equity"],
                    info["illegal"],
                    observation,
                ]
            )
            if terminated or truncated:
                observation, info = env.reset()
        columns.append(stacked(rows))
    assert_same(Trajectory(*(np.stack(x, axis=1) for x in zip(*columns, strict=True))), truth)


def same_info(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, dict):
            same_info(ours[key], value)
        elif value.dtype == object:
            for a, b in zip(ours[key], value, strict=True):
                np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_equal(ours[key], value, err_msg=key)


@pytest.mark.slow
def test_vector_env_packs_as_gymnasiums_own(truth):
    """Observations, ends and every entry of the infos equal those of SyncVectorEnv(SAME_STEP) over
    our Env.
    """
    ours = to_gymnasium_vec(ENV, PARAMS, NUM_ENVS)
    theirs = SyncVectorEnv(
        [lambda: to_gymnasium(ENV, PARAMS)] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    assert ours.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert ours.single_observation_space == theirs.single_observation_space
    assert (ours.observation_space, ours.action_space) == (
        theirs.observation_space,
        theirs.action_space,
    )
    (a, infos_a), (b, infos_b) = ours.reset(seed=SEED), theirs.reset(seed=SEED)
    np.testing.assert_array_equal(a, b)
    same_info(infos_a, infos_b)
    ends = 0
    for actions in truth.action:
        *a, infos_a = ours.step(actions)
        *b, infos_b = theirs.step(actions)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
        same_info(infos_a, infos_b)
        masks = ours.call("action_masks")
        np.testing.assert_array_equal(masks, theirs.call("action_masks"))
        ends += "final_obs" in infos_a
    assert ends > 5
