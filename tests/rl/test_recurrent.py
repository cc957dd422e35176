"""PPO with a memory: it learns what cannot be learnt without, and values an episode's end with it."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.errors import ConfigError
from jaxtrade.rl import rollout
from jaxtrade.rl.ppo import make_ppo
from tests.rl.probes import Recall, probe_params

UPDATES = 80
LENGTH = 5
RECALL, CUE = range(2)
ENV = Recall(
    (
        lambda ref, action: jnp.where(
            ref.time == LENGTH - 1, jnp.where(action == 1 + (ref.cue > 0), 1.0, -1.0), 0.0
        ),
        lambda ref, action: ref.cue,
    )
)
SEEDS = jax.random.split(jax.random.key(0), 3)


def config(network, **keywords):
    return Learning(
        **{
            "kind": network,
            "rnn_width": 8,
            "num_envs": 32,
            "num_steps": 16,
            "num_minibatches": 4,
            "num_epochs": 4,
            "hidden": (16,),
            "learning_rate": 1e-2,
            "learning_rate_end": 1e-3,
            "ent_coef": 0.0,
        }
        | keywords
    )


@pytest.mark.slow
@pytest.mark.parametrize(("network", "low", "high"), [("mlp", -0.15, 0.15), ("gru", 0.9, 1.0)])
def test_a_cue_seen_four_steps_ago(network, low, high):
    """Reward 1 or -1 for the last action alone: without a memory no policy does better than 0 on
    average.
    """
    algorithm = make_ppo(config(network).run, ENV, UPDATES)
    params = probe_params(RECALL, length=LENGTH)

    def train(key):
        state = algorithm.init(key, params)
        return jax.lax.scan(
            lambda s, _: algorithm.update(s, params, None), state, None, length=UPDATES
        )[1]

    metrics = jax.jit(jax.vmap(train))(SEEDS)
    late = np.asarray(metrics["episode_reward"])[:, -10:].mean(
        axis=1
    )  # about a thousand episodes of each seed
    assert np.all((late >= low) & (late <= high)), late
    assert not metrics["illegal"].any()
    assert np.all(metrics["param_delta"] > 0)
    # action 0 is legal at odd times alone, action 3 never
    assert not np.asarray(metrics["action_share"])[..., -1].any()


@pytest.mark.slow
def test_final_values_by_a_slow_loop(monkeypatch):
    """The second rollout: it begins inside episodes, and ends inside others. Against one step of
    acting after the other.
    """
    small = config("gru", num_envs=3, num_steps=7, num_minibatches=1, num_epochs=1, num_shards=1)
    algorithm = make_ppo(small.run, ENV, 3)
    params = probe_params(CUE, length=LENGTH, truncates=True)
    state, _ = jax.jit(algorithm.update)(algorithm.init(jax.random.key(0), params), params, None)
    real, caught = rollout.final_values, []

    def catching(value, seen):
        caught.append((real(value, seen), seen))
        return caught[0][0]

    monkeypatch.setattr(rollout, "final_values", catching)
    algorithm.update(state, params, None)  # not jitted: what is caught are numbers
    ours, seen = jax.device_get(caught[0])
    assert state.carry.any(axis=1).all()
    assert seen.truncated.sum() == 3
    assert not seen.first[0].any()
    policy, carry, expected = algorithm.policy(state), state.carry, []
    acted = jax.jit(jax.vmap(lambda *at: algorithm.act(policy, *at, params, None, False)))
    for t, first in enumerate(seen.first):
        now, end = (
            jax.tree.map(operator.itemgetter(t), each) for each in (seen.ref, seen.final_ref)
        )
        carry = acted(jnp.where(first[:, None], 0, carry), now)[0]
        expected.append(np.where(seen.truncated[t], acted(carry, end)[2].value, 0))
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_a_minibatch_must_hold_whole_rollouts():
    with pytest.raises(
        ConfigError,
        match=r"kind=gru: .*\(4\) .*\(8\)",
    ):
        make_ppo(config("gru", num_minibatches=8).run, ENV, 1)
