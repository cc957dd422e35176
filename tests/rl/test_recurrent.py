"""PPO with a memory: it learns what cannot be learnt without, and every way to lose the memory is
noticed.
"""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.errors import ConfigError
from jaxtrade.rl.ppo import loss as loss_module
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo import update as rollout
from tests.networks.test_memory import by_hand
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


# an episode's end is overlooked; the rollout is thought to begin with an empty memory; steps come
# in another order
FAULTS = {
    "ends": lambda batch: batch._replace(first=jnp.zeros_like(batch.first)),
    "empty": lambda batch: batch._replace(carry=jnp.zeros_like(batch.carry)),
    "order": lambda batch: jax.tree.map(
        lambda x: jnp.roll(x, len(batch.carry), axis=0), batch._replace(carry=())
    )._replace(carry=batch.carry),
}


@pytest.mark.slow
def test_the_ratio_tells_when_memory_is_lost(monkeypatch):
    """One gradient step an update, so that every figure is of before it; the second rollout begins
    inside episodes.
    """
    real = loss_module.ppo_loss

    def with_faults(parameters, objective, forward, batch, likelihood):
        loss, terms = real(parameters, objective, forward, batch, likelihood)
        errors = {
            name: real(parameters, objective, forward, fault(batch), likelihood)[1]["ratio_error"]
            for name, fault in FAULTS.items()
        }
        return loss, terms | errors

    monkeypatch.setattr(loss_module, "ppo_loss", with_faults)
    algorithm = make_ppo(config("gru", num_minibatches=1, num_epochs=1).run, ENV, 3)
    params = probe_params(RECALL, length=LENGTH)
    state = algorithm.init(jax.random.key(0), params)
    lively = jax.tree.map(lambda x: 4 * x, state.params)
    update = jax.jit(algorithm.update)
    state, _ = update(state.replace(params=lively), params, None)
    assert not state.first.all()
    _, metrics = update(state, params, None)
    assert metrics["ratio_error"] <= 1e-5
    for name in FAULTS:
        assert metrics[name] > 1e-3, name


def slow_values(parameters, normaliser, seen, start):
    """V(final_ref) of truncated steps, one environment and one step after the other, in NumPy."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), parameters)
    mean, deviation = (
        np.asarray(normaliser.mean[0]),
        np.sqrt(np.asarray(normaliser.variance[0], np.float64)),
    )

    def see(ref):
        raw = np.array([ref.cue if ref.time == 0 else 0.0, ref.shown * ref.time / 10], np.float64)
        return np.clip((raw - mean) / deviation, -10, 10)

    def value(h, x):
        torso = p["value_torso"]["Dense_0"]
        hidden = np.tanh(np.concatenate([x, h]) @ torso["kernel"] + torso["bias"])
        return (hidden @ p["value_head"]["kernel"] + p["value_head"]["bias"])[0]

    steps, envs = seen.truncated.shape
    made = np.zeros((steps, envs))
    for n in range(envs):
        h = np.asarray(start[n], np.float64)
        for t in range(steps):
            ref = jax.tree.map(operator.itemgetter((t, n)), seen.ref)
            final = jax.tree.map(operator.itemgetter((t, n)), seen.final_ref)
            h = by_hand(p["gru"], np.zeros_like(h) if seen.first[t, n] else h, see(ref))
            if seen.truncated[t, n]:
                x = see(final)
                made[t, n] = value(by_hand(p["gru"], h, x), x)
    return made


@pytest.mark.slow
def test_final_values_by_a_slow_loop(monkeypatch):
    """The second rollout: it begins inside episodes, and ends inside others."""
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
    np.testing.assert_allclose(
        ours, slow_values(state.params, state.normaliser, seen, state.carry), atol=1e-5
    )


def test_a_minibatch_must_hold_whole_rollouts():
    with pytest.raises(
        ConfigError,
        match=r"kind=gru: .*\(4\) .*\(8\)",
    ):
        make_ppo(config("gru", num_minibatches=8).run, ENV, 1)
    assert config("mlp", num_minibatches=8).sequence == 1
    assert config("gru").sequence == 16
