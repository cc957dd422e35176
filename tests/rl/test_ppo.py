"""PPO as a whole: the ratio, traces, resumption, seeds, truncation, faults."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxtrade import checkpoint
from jaxtrade.config import PPOConfig
from jaxtrade.networks.normalize import merge
from jaxtrade.rl import ppo as ppo_module
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.state import policy_of
from tests.rl.probes import Probe

CONFIG = PPOConfig(num_envs=16, num_steps=12, num_minibatches=4, num_epochs=2, hidden=(16,), learning_rate=1e-2,
                   learning_rate_end=1e-3)


def cue_reward(ref, action):
    return ref.cue * action + 0.1 * ref.time


MASKED = Probe(cue_reward, length=5, masked=True, num_actions=4)


def assert_same(a, b) -> None:
    for (path, x), y in zip(jax.tree_util.tree_flatten_with_path(a)[0], jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


def run(algorithm, updates, state=None, params=()):
    update = jax.jit(algorithm.update)
    state = jax.jit(algorithm.init)(jax.random.key(0), params) if state is None else state
    history = []
    for _ in range(updates):
        state, metrics = update(state, params, ())
        history.append(jax.device_get(metrics))
    return state, history


@pytest.fixture(scope="module")
def trained():
    """6 updates on the masked probe; episodes of 5 steps in rollouts of 12, so resets fall inside rollouts."""
    return run(make_ppo(CONFIG, MASKED, 6, precision="highest"), 6)


def test_ratio_is_one_in_the_first_minibatch(trained):
    _, history = trained
    assert max(m["ratio_error"] for m in history) <= 1e-5
    assert all(m["episodes"] > 0 for m in history)
    assert all(m["approx_kl"] > 0 for m in history)


@pytest.mark.parametrize("fault", ["mask", "normaliser"])
def test_planted_faults_break_the_ratio(monkeypatch, fault):
    real = ppo_module.ppo_loss

    def faulty(parameters, normaliser, forward, batch, *rest):
        if fault == "normaliser":  # the statistics of after this rollout instead of those acted with
            observations = jax.vmap(MASKED.observe, (0, None))(batch.ref, ())
            return real(parameters, merge(normaliser, observations), forward, batch, *rest)

        def unmasked(policy, ref, params):
            logits, value, mask = forward(policy, ref, params)
            return logits, value, jnp.ones_like(mask)

        return real(parameters, normaliser, unmasked, batch, *rest)

    monkeypatch.setattr(ppo_module, "ppo_loss", faulty)
    _, history = run(make_ppo(CONFIG, MASKED, 3, precision="highest"), 3)
    assert max(m["ratio_error"] for m in history) > 1e-4


def test_metrics_are_measured(trained):
    _, history = trained
    first, last = history[0], history[-1]
    assert sum(m["illegal"] for m in history) == 0
    for m in history:
        np.testing.assert_allclose(m["action_share"].sum(), 1.0, rtol=1e-6)
        assert m["action_share"][-1] == 0.0  # always illegal
        assert m["param_delta"] > 0
        assert m["grad_norm"] > 0
        assert m["finite"]
        assert m["applied"] == 1.0
        assert m["episode_length"] == 5.0
    # 12 steps of 16 environments whose episodes last 5 steps: ends at steps 5 and 10
    assert first["episodes"] == 32
    assert first["learning_rate"] == np.float32(1e-2)
    assert last["learning_rate"] == np.float32(1e-3)


def test_an_illegal_action_is_counted(monkeypatch):
    monkeypatch.setattr(ppo_module.distributions, "sample", lambda key, logits, mask: jnp.int32(3))
    _, history = run(make_ppo(CONFIG, MASKED, 1), 1)
    assert history[0]["illegal"] == 16 * 12


def test_one_trace_after_warm_up():
    traces = {"init": 0, "update": 0}
    algorithm = make_ppo(CONFIG, MASKED, 8)

    def counted(name, function):
        def wrapper(*args):
            traces[name] += 1
            return function(*args)
        return jax.jit(wrapper)

    init, update = counted("init", algorithm.init), counted("update", algorithm.update)
    state = init(jax.random.key(0), ())
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
    for _ in range(4):
        state, _ = update(state, (), ())
    init(jax.random.key(1), ())
    assert traces == {"init": 1, "update": 1}


def test_2n_updates_equal_n_save_load_n(tmp_path):
    algorithm = make_ppo(CONFIG, MASKED, 6)
    whole, _ = run(algorithm, 6)
    half, _ = run(algorithm, 3)
    checkpoint.save(tmp_path, 3, half, {})
    like = jax.eval_shape(algorithm.init, jax.random.key(9), ())
    resumed, _ = run(algorithm, 3, checkpoint.restore_latest(tmp_path, like).state)
    assert_same(whole, resumed)


def test_same_key_same_bits_and_another_key_others():
    algorithm = make_ppo(CONFIG, MASKED, 2)
    a, b = run(algorithm, 2)[0], run(algorithm, 2)[0]
    assert_same(a, b)
    other = jax.jit(algorithm.init)(jax.random.key(1), ())
    assert not np.array_equal(other.params["policy_torso"]["Dense_0"]["kernel"],
                              a.params["policy_torso"]["Dense_0"]["kernel"])


class Scale(struct.PyTreeNode):
    """Environment parameters: what a market would be."""

    reward: jax.Array


def test_vmap_over_seeds_equals_single_runs():
    class Scaled(Probe):
        def step(self, key, state, action, params):
            state, ref, outcome = super().step(key, state, action, params)
            return state, ref, outcome.replace(reward=outcome.reward * params.reward[0])

    algorithm = make_ppo(CONFIG, Scaled(cue_reward, length=5, masked=True, num_actions=4), 4)
    params = Scale(jnp.array([2.0, 0.0]))
    keys = jax.random.split(jax.random.key(5), 8)
    states = jax.jit(jax.vmap(algorithm.init, (0, None)))(keys, params)
    many = jax.jit(jax.vmap(algorithm.update, (0, None, None)))
    stacked, metrics = many(states, params, ())
    assert metrics["approx_kl"].shape == (8,)
    text = many.lower(states, params, ()).as_text()
    assert "tensor<2xf32>" in text  # the parameters are one argument,
    assert "tensor<8x2xf32>" not in text.split("->")[0]  # not one copy per seed
    one = jax.jit(algorithm.update)
    for i in range(8):
        single, _ = one(jax.tree.map(lambda x, i=i: x[i], states), params, ())
        for x, y in zip(jax.tree.leaves(single.params), jax.tree.leaves(stacked.params), strict=True):
            np.testing.assert_allclose(x, y[i], atol=1e-6)
        np.testing.assert_array_equal(single.env_state.time, stacked.env_state.time[i])


def test_hyper_parameters_are_leaves_of_the_state():
    """One program, eight learning rates: a rate of 0 leaves the parameters alone."""
    algorithm = make_ppo(CONFIG, MASKED, 4)
    state = jax.jit(algorithm.init)(jax.random.key(0), ())
    rates = jnp.linspace(0.0, 1e-2, 8)

    def update_with(rate):
        hparams = state.hparams.replace(learning_rate=rate, learning_rate_end=rate)
        return algorithm.update(state.replace(hparams=hparams), (), ())[1]["param_delta"]

    deltas = np.asarray(jax.jit(jax.vmap(update_with))(rates))
    assert deltas[0] == 0.0
    assert np.all(np.diff(deltas) > 0)


def test_target_kl_stops_the_epochs():
    config = CONFIG.model_copy(update={"learning_rate": 0.1, "learning_rate_end": 0.1, "num_epochs": 8})
    free, stopped = (run(make_ppo(config.model_copy(update={"target_kl": kl}), MASKED, 2), 1)[1][0]
                     for kl in (0.0, 0.01))
    assert free["applied"] == 1.0
    assert 0.0 < stopped["applied"] < 1.0
    assert stopped["approx_kl"] <= 0.01  # averaged over the steps taken, each of which was below
    assert stopped["param_delta"] < free["param_delta"]


def test_a_number_that_is_not_finite_is_flagged_and_not_learnt_from():
    algorithm = make_ppo(CONFIG, Probe(lambda ref, action: jnp.where(ref.time > 3, jnp.nan, 1.0), length=5), 2)
    state, history = run(algorithm, 1)
    assert not history[0]["finite"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


def test_act_masked_mode_and_sample():
    algorithm = make_ppo(CONFIG, MASKED, 1)
    state = jax.jit(algorithm.init)(jax.random.key(0), ())
    policy = policy_of(state)
    carry, action, extras = algorithm.act(policy, (), jax.tree.map(lambda x: x[0], state.ref), (), None, False)
    assert carry == ()
    assert extras.mask[action]
    legal = np.where(extras.mask, extras.logits, -np.inf)
    assert action == legal.argmax()
    keys = jax.random.split(jax.random.key(1), 500)
    ref = jax.tree.map(lambda x: x[0], state.ref)
    _, actions, _ = jax.vmap(algorithm.act, (None, None, None, None, 0, None))(policy, (), ref, (), keys, True)
    assert len(set(np.asarray(actions).tolist())) == int(extras.mask.sum())
    assert np.asarray(extras.mask)[np.asarray(actions)].all()


def test_rollout_stores_references_and_no_observations():
    """Nothing of shape [T * N, D] or [T, N, D] exists in the program, except the rows of one minibatch."""
    wide = 37

    class Wide(Probe):
        def observe(self, ref, params):
            return jnp.broadcast_to(ref.cue, (wide,))

    algorithm = make_ppo(CONFIG, Wide(cue_reward, length=5, observation_size=wide), 1)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), ())
    text = jax.jit(algorithm.update).lower(state, (), ()).as_text()
    rows = CONFIG.num_envs * CONFIG.num_steps
    assert f"tensor<{rows // CONFIG.num_minibatches}x{wide}xf32>" in text
    assert f"tensor<{rows}x{wide}xf32>" not in text
    assert f"tensor<{CONFIG.num_steps}x{CONFIG.num_envs}x{wide}xf32>" not in text


def test_summaries_join_the_metrics_and_may_not_hide_any():
    algorithm = make_ppo(CONFIG, MASKED, 1, summarise=lambda seen: {"mean_reward": seen.reward.mean()})
    assert np.isfinite(run(algorithm, 1)[1][0]["mean_reward"])
    clash = make_ppo(CONFIG, MASKED, 1, summarise=lambda seen: {"entropy": seen.reward.mean()})
    with pytest.raises(ValueError, match="entropy"):
        run(clash, 1)


def test_wrong_arguments_are_named():
    algorithm = make_ppo(CONFIG, MASKED, 1)
    with pytest.raises(TypeError, match="typed key"):
        algorithm.init(jax.random.PRNGKey(0), ())
    state = jax.jit(algorithm.init)(jax.random.key(0), ())
    with pytest.raises(ValueError, match="takes no inputs"):
        algorithm.update(state, (), {"advice": jnp.zeros(3)})


def test_normaliser_is_updated_after_use_from_every_observation(trained):
    state, _ = trained
    rows = CONFIG.num_envs * CONFIG.num_steps * 6 + CONFIG.num_envs  # six rollouts, and the first resets
    np.testing.assert_array_equal(state.normaliser.count, np.full((1, 2), rows, np.float32))
    # cue is +-1; time/5 runs through 0, .2, .4, .6, .8
    np.testing.assert_allclose(state.normaliser.mean[0, 1], 0.4, atol=0.02)
    np.testing.assert_allclose(state.normaliser.variance[0], [1.0, 0.08], atol=0.05)
