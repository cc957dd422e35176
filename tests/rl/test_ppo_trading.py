"""PPO on the trading environment and real bars: the ratio, illegal actions, seeds, resumption, and
planted faults.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.env.summary import summarise
from jaxtrade.rl import collecting
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.setup import prepare
from jaxtrade.storage import checkpoint

UPDATES = 4
SMALL = (
    "rollout.num_envs=16",
    "rollout.num_steps=64",
    "ppo.num_minibatches=4",
    "ppo.num_epochs=2",
    "network.hidden=[16]",
    "ppo.learning_rate=0.01",
    "episode.max_steps=25",
)


@functools.cache
def setup():
    """Environment, parameters and configuration; bars are read when the first test asks."""
    return prepare(load_config("quickstart", SMALL))


class Learner:
    def __init__(self, env=None):
        self.traces = 0
        self.algorithm = make_ppo(setup().config, env or setup().env, UPDATES, summarise=summarise)

        def update(state, params):
            self.traces += 1
            return self.algorithm.update(state, params, None)

        self.init, self.update = jax.jit(self.algorithm.init), jax.jit(update)

    def start(self):
        return self.init(jax.random.key(0), setup().params)

    def run(self, state, updates=UPDATES):
        history = []
        for _ in range(updates):
            state, metrics = self.update(state, setup().params)
            history.append(jax.device_get(metrics))
        return state, history


@pytest.fixture(scope="module")
def learner():
    return Learner()


@pytest.fixture(scope="module")
def trained(learner):
    return learner.run(learner.start())


def leaves(state):
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(state)
    ]


@pytest.mark.slow
def test_ratio_is_one_after_resets_with_masks(trained):
    """Rollouts of 64 steps, episodes of at most 25: every rollout holds resets; masks differ from
    bar to bar.
    """
    _, history = trained
    assert max(m["ratio_error"] for m in history) <= 1e-5
    assert all(m["episodes"] >= setup().config.rollout.num_envs for m in history)
    assert all(m["approx_kl"] > 0 for m in history)
    assert all(0 < m["entropy"] < np.log(setup().env.num_actions) for m in history)


@pytest.mark.slow
def test_ratio_is_one_where_the_account_is_in_sight():
    """What `advised` shows of the account changes after acting: the reference must hold it as it
    was.
    """
    advised = prepare(load_config("quickstart", (*SMALL, "env.task=advised", "env.advice=true")))
    learner = Learner(advised.env)
    state, history = learner.init(jax.random.key(0), advised.params), []
    for _ in range(UPDATES):
        state, metrics = learner.update(state, advised.params)
        history.append(jax.device_get(metrics))
    assert max(m["ratio_error"] for m in history) <= 1e-5
    assert sum(m["illegal"] for m in history) == 0
    assert all(m["approx_kl"] > 0 for m in history)


@pytest.mark.slow
def test_no_illegal_action_and_every_action_taken(trained):
    _, history = trained
    assert sum(m["illegal"] for m in history) == 0
    assert np.all(np.sum([m["action_share"] for m in history], axis=0) > 0)


@pytest.mark.slow
def test_references_that_come_a_step_late_break_the_ratio(monkeypatch):
    unroll = collecting.unroll

    def late(*arguments, **options):
        carry, seen, tally = unroll(*arguments, **options)
        ref = jax.tree.map(
            lambda now, end: jnp.concatenate([now[1:], end[None]]), seen.ref, carry[1]
        )
        return carry, seen._replace(ref=ref), tally

    monkeypatch.setattr(collecting, "unroll", late)
    learner = Learner()
    _, history = learner.run(learner.start(), 2)
    assert max(m["ratio_error"] for m in history) > 1e-3


@pytest.mark.slow
def test_one_trace_and_the_same_bits_after_save_and_load(learner, trained, tmp_path):
    half, _ = learner.run(learner.start(), 2)
    checkpoint.save(tmp_path, 2, half, {})
    like = jax.eval_shape(learner.algorithm.init, jax.random.key(0), setup().params)
    resumed, _ = learner.run(checkpoint.restore_latest(tmp_path, like).state, 2)
    for a, b in zip(leaves(resumed), leaves(trained[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert learner.traces == 1
