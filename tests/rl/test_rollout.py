"""Rollouts: keys, resets, final values, episode counts."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.rl.rollout import (
    add_step,
    episode_metrics,
    start_episodes,
    unroll,
)
from jaxtrade.rl.state import EpisodeTotals, env_keys, reset_all
from jaxtrade.types import Transition
from tests.rl.probes import Probe, probe_params

ENV = Probe((lambda ref, action: 1.0 + ref.time,))
PARAMS = probe_params(length=3, truncates=True)


def random_act(carry, ref, key):
    """Remembers how many observations it has seen."""
    return carry + 1, jax.random.randint(key, (), 0, 2), ref.cue


def roll(num_envs, **keywords):
    """Seven steps."""
    state, ref = reset_all(ENV, jax.random.key(0), PARAMS, num_envs)
    first, carry = jnp.ones(num_envs, bool), jnp.full((num_envs, 1), 7.0)
    key = jax.random.key(1)
    given = {"params": PARAMS, "key": key, "num_steps": 7} | keywords
    return unroll(ENV, random_act, state, ref, first, carry, **given)


def test_episodes_follow_each_other():
    (_, ref, first, carry), seen, tally = roll(5)
    assert tally is None
    np.testing.assert_array_equal(seen.ref.time[:, 0], [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(seen.first[:, 0], [True, False, False, True, False, False, True])
    np.testing.assert_array_equal(
        seen.truncated[:, 0], [False, False, True, False, False, True, False]
    )
    np.testing.assert_array_equal(seen.final_ref.time[:, 0], [1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(ref.time, np.ones(5))
    assert not first.any()
    # forgotten where an episode begins, the 7 of before the rollout too; handed on with the last
    # observation taken in
    np.testing.assert_array_equal(seen.carry[:, 0, 0], [1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(carry, np.ones((5, 1)))


def test_an_environment_draws_the_same_numbers_beside_any_number_of_others():
    _, few, _ = roll(3)
    _, many, _ = roll(11)
    np.testing.assert_array_equal(few.action, many.action[:, :3])
    np.testing.assert_array_equal(few.ref.cue, many.ref.cue[:, :3])
    # of its own, anew in every step and at every reset
    assert len({tuple(column) for column in np.asarray(many.action).T}) > 5
    assert 0.1 < np.asarray(many.action).mean() < 0.9
    assert 0.1 < (np.asarray(many.ref.cue)[np.asarray(many.first)] > 0).mean() < 0.9
    keys = jax.random.key_data(env_keys(jax.random.key(0), 4, first_env=2))
    np.testing.assert_array_equal(keys, jax.random.key_data(env_keys(jax.random.key(0), 6))[2:])


def make_transitions(terminated, truncated, reward):
    terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
    nothing = jnp.zeros(terminated.shape)
    return Transition(
        ref=nothing,
        final_ref=nothing,
        first=nothing,
        action=nothing,
        reward=jnp.array(reward, jnp.float32),
        terminated=jnp.array(terminated),
        truncated=jnp.array(truncated),
        info=None,
    )


def episodes_of(totals, seen):
    tally = start_episodes(totals)
    for reward, done in zip(seen.reward, seen.terminated | seen.truncated, strict=True):
        tally = add_step(tally, reward, done)
    return tally.running, episode_metrics(tally)


def test_a_tally_sees_every_step_and_the_transitions_lose_their_info():
    """The sum of rewards by environment, added up while stepping, is that of the stored ones."""
    _, seen, tally = roll(
        5,
        tally={"reward": jnp.zeros(5), "steps": jnp.zeros(5, jnp.int32)},
        add=lambda tally, now: {
            "reward": tally["reward"] + now.reward,
            "steps": tally["steps"] + 1,
        },
    )
    np.testing.assert_allclose(tally["reward"], seen.reward.sum(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(tally["steps"], np.full(5, 7))
    assert seen.info is None


def test_episode_counts_span_rollouts():
    totals = EpisodeTotals(jnp.array([5.0, 0.0]), jnp.array([2, 0], jnp.int32))
    seen = make_transitions(
        [[0, 0], [1, 0], [0, 0]], [[0, 0], [0, 1], [0, 0]], [[1, 10], [2, 20], [4, 40]]
    )
    totals, figures = episodes_of(totals, seen)
    # env 0: 5 + 1 + 2 = 8 after 2 + 2 steps; env 1: 30 after 2; then 4 and 40 are running
    assert figures["episodes"] == 2
    assert figures["episode_reward"] == 19.0
    assert figures["episode_length"] == 3.0
    np.testing.assert_array_equal(totals.reward, [4, 40])
    np.testing.assert_array_equal(totals.length, [1, 1])


def test_no_episode_ended_is_undefined_not_zero():
    seen = make_transitions(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)))
    _, figures = episodes_of(EpisodeTotals(jnp.zeros(2), jnp.zeros(2, jnp.int32)), seen)
    assert figures["episodes"] == 0
    assert np.isnan(figures["episode_reward"])
    assert np.isnan(figures["episode_length"])
