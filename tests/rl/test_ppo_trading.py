"""PPO on the trading environment and real bars: the ratio, illegal actions, resumption, and a
planted fault.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.env.monitor import summarise
from jaxtrade.rl import rollout
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.setup import prepare
from jaxtrade.storage import checkpoint
from tests.rl.test_train import assert_same

pytestmark = pytest.mark.slow

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


class Learner:
    """PPO on the bundled week. Bars are read when the first test asks."""

    def __init__(self, *overrides):
        self.made = made = prepare(load_config("quickstart", (*SMALL, *overrides)))
        self.algorithm = make_ppo(made.config, made.env, UPDATES, summarise=summarise)
        self.update = jax.jit(lambda state: self.algorithm.update(state, made.params, None))
        self.init = jax.jit(lambda: self.algorithm.init(jax.random.key(0), made.params))

    def run(self, state=None, updates=UPDATES):
        state, history = self.init() if state is None else state, []
        for _ in range(updates):
            state, metrics = self.update(state)
            history.append(jax.device_get(metrics))
        return state, history


@functools.cache
def trained(*overrides):
    learner = Learner(*overrides)
    return learner, *learner.run()


@pytest.mark.parametrize("overrides", [(), ("env.task=advised", "env.advice=true")])
def test_ratio_is_one_after_resets_with_masks(overrides):
    """Rollouts of 64 steps, episodes of at most 25: every rollout holds resets; masks differ from
    bar to bar. What `advised` shows of the account changes after acting: the reference must hold it
    as it was.
    """
    learner, _, history = trained(*overrides)
    assert max(m["ratio_error"] for m in history) <= 1e-5
    assert all(m["episodes"] >= 16 for m in history)
    assert all(m["approx_kl"] > 0 for m in history)
    assert all(0 < m["entropy"] < np.log(learner.made.env.num_actions) for m in history)
    assert sum(m["illegal"] for m in history) == 0
    assert np.all(np.sum([m["action_share"] for m in history], axis=0) > 0)


def test_references_that_come_a_step_late_break_the_ratio(monkeypatch):
    unroll = rollout.unroll

    def late(*arguments, **options):
        carry, seen, tally = unroll(*arguments, **options)
        ref = jax.tree.map(
            lambda now, end: jnp.concatenate([now[1:], end[None]]), seen.ref, carry[1]
        )
        return carry, seen._replace(ref=ref), tally

    monkeypatch.setattr(rollout, "unroll", late)
    _, history = Learner().run(updates=2)
    assert max(m["ratio_error"] for m in history) > 1e-3


def test_one_program_and_the_same_bits_after_save_and_load(tmp_path):
    learner, whole, _ = trained()
    half, _ = learner.run(updates=2)
    checkpoint.save(tmp_path, 2, half, {})
    resumed, _ = learner.run(checkpoint.restore_latest(tmp_path, half).state, 2)
    assert_same(resumed, whole)
    assert learner.update._cache_size() == 1
