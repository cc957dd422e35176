"""PPO as a whole: the ratio, traces, resumption, seeds, truncation, faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.networks import distributions
from jaxtrade.networks.accelerators import CPU
from jaxtrade.rl import context
from jaxtrade.rl.epochs import block_count
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.rollout import count_illegal, unroll
from jaxtrade.rl.state import reset_all
from jaxtrade.storage import checkpoint
from jaxtrade.types import Summary
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_close, assert_same

CONFIG = Learning(
    num_envs=16,
    num_steps=12,
    num_minibatches=4,
    num_epochs=2,
    hidden=(16,),
    learning_rate=1e-2,
    learning_rate_end=1e-3,
)
UPDATES = 6


def cue_reward(ref, action):
    return ref.cue * action + 0.1 * ref.time


ENV = Probe((cue_reward, lambda ref, action: jnp.where(ref.time > 3, jnp.nan, 1.0)))
PARAMS = probe_params(length=5)  # rollouts of 12 steps: resets fall inside them


class Learner:
    """An algorithm, jitted, that counts its traces."""

    def __init__(self, env=ENV, config=CONFIG, **keywords):
        self.traces = {"init": 0, "update": 0}
        self.config = config
        self.algorithm = make_ppo(config.run, env, UPDATES, **keywords)
        self.init = self._counted("init", self.algorithm.init)
        self.update = self._counted("update", self.algorithm.update)

    def _counted(self, name, function):
        def wrapper(*args):
            self.traces[name] += 1
            return function(*args)

        return jax.jit(wrapper)

    def start(self, seed=0, **hparams):
        state = self.init(jax.random.key(seed), PARAMS)
        changed = {name: jnp.float32(value) for name, value in hparams.items()}
        return state.replace(hparams=state.hparams.replace(**changed))

    def run(self, state, updates=UPDATES, params=PARAMS):
        history = []
        for _ in range(updates):
            state, metrics = self.update(state, params, None)
            history.append(jax.device_get(metrics))
        return state, history


NETWORKS = {
    "mlp": CONFIG,
    "gru": CONFIG.model_copy(update={"kind": "gru", "rnn_width": 8, "num_shards": 4}),
}


@pytest.fixture(scope="module", params=["mlp", pytest.param("gru", marks=pytest.mark.slow)])
def learner(request):
    return Learner(config=NETWORKS[request.param])


@pytest.fixture(scope="module")
def trained(learner):
    return learner.run(learner.start())


@pytest.mark.slow
def test_metrics_are_measured(trained):
    _, history = trained
    first, last = history[0], history[-1]
    assert sum(m["illegal"] for m in history) == 0
    for m in history:
        np.testing.assert_allclose(m["action_share"].sum(), 1.0, rtol=1e-6)
        assert m["action_share"][-1] == 0.0  # always illegal
        assert m["param_delta"] > 0
        assert m["grad_norm"] > 0
        assert m["approx_kl"] > 0
        assert m["ratio_error"] <= 1e-5  # 1 in the first minibatch
        assert m["finite"]
        assert m["applied"] == 1.0
        assert m["episode_length"] == 5.0
    # 12 steps of 16 environments whose episodes last 5 steps: ends at steps 5 and 10
    assert first["episodes"] == 32
    assert first["learning_rate"] == np.float32(1e-2)
    assert last["learning_rate"] == np.float32(1e-3)


@pytest.mark.slow
def test_an_illegal_action_is_counted():
    _, seen, _ = unroll(
        ENV,
        lambda carry, ref, key: (carry, jnp.int32(3), None),
        *reset_all(ENV, jax.random.key(0), PARAMS, 4),
        jnp.ones(4, bool),
        None,
        params=PARAMS,
        key=jax.random.key(1),
        num_steps=5,
    )
    assert count_illegal(ENV, seen) == 4 * 5


def test_one_trace_after_warm_up(learner, trained):
    state, _ = trained
    learner.run(learner.start(3), 3)
    learner.run(state, 1)
    assert learner.traces == {"init": 1, "update": 1}
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state.replace(key=jnp.int32(0))))


def test_2n_updates_equal_n_save_load_n(learner, trained, tmp_path):
    half, _ = learner.run(learner.start(), 3)
    checkpoint.save(tmp_path, 3, half, {})
    like = jax.eval_shape(learner.algorithm.init, jax.random.key(9), PARAMS)
    resumed, _ = learner.run(checkpoint.restore_latest(tmp_path, like).state, 3)
    assert_same(trained[0], resumed)


def test_same_key_same_bits_and_another_key_others(learner, trained):
    assert_same(trained[0], learner.run(learner.start())[0])
    kernels = [learner.start(seed).params["policy_torso"]["Dense_0"]["kernel"] for seed in (0, 1)]
    assert not np.array_equal(*kernels)


def test_hyper_parameters_are_leaves_of_the_state(learner, trained):
    """One program for any value: a learning rate of 0 leaves the parameters alone, a larger one
    moves them more.
    """
    deltas = [
        learner.run(learner.start(learning_rate=rate), 1)[1][0]["param_delta"]
        for rate in (0.0, 1e-3, 1e-2)
    ]
    assert deltas[0] == 0.0
    assert deltas[1] < deltas[2]
    assert learner.traces["update"] == 1


def test_target_kl_stops_the_epochs(learner):
    free, stopped = (
        learner.run(learner.start(learning_rate=0.1, target_kl=kl), 1)[1][0] for kl in (0.0, 0.01)
    )
    assert free["applied"] == 1.0
    assert 0.0 < stopped["applied"] < 1.0
    assert stopped["approx_kl"] <= 0.01  # averaged over the steps taken, each of which was below
    assert stopped["param_delta"] < free["param_delta"]


def test_a_number_that_is_not_finite_is_flagged_and_not_learnt_from(learner):
    state, history = learner.run(learner.start(), 1, probe_params(kind=1, length=5))
    assert not history[0]["finite"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


@pytest.mark.slow
def test_act_masked_mode_and_sample(learner, trained):
    act, policy = learner.algorithm.act, learner.algorithm.policy(trained[0])
    ref = jax.tree.map(lambda x: x[0], trained[0].ref)
    given = policy, learner.algorithm.carry, ref, PARAMS
    _, action, extras = act(*given, None, False)
    expected = np.asarray(distributions.probs(extras.logits, extras.mask))
    assert action == expected.argmax()
    keys = jax.random.split(jax.random.key(1), 2000)
    actions = jax.vmap(lambda key: act(*given, key, True)[1])(keys)
    share = np.bincount(actions, minlength=4) / 2000
    np.testing.assert_allclose(share, expected, atol=0.06)
    assert not share[expected == 0].any()


@pytest.mark.slow
def test_rollout_stores_references_and_no_observations(monkeypatch):
    """Nothing of shape [T * N, D] or [T, N, D] exists in the program, only the rows of one minibatch."""
    monkeypatch.setattr(
        context, "form_of", lambda platform: CPU._replace(statistics_rows=CONFIG.num_envs)
    )
    wide = 37

    class Wide(Probe):
        def observe(self, ref, params):
            return jnp.broadcast_to(ref.cue, (wide,))

    algorithm = make_ppo(CONFIG.run, Wide(ENV.rewards, observation_size=wide), 1)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), PARAMS)
    text = jax.jit(algorithm.update).lower(state, PARAMS, None).as_text()
    rows = CONFIG.num_envs * CONFIG.num_steps
    assert f"tensor<{rows // CONFIG.num_minibatches}x{wide}xf32>" in text
    assert f"tensor<{rows}x{wide}xf32>" not in text
    assert f"tensor<{CONFIG.num_steps}x{CONFIG.num_envs}x{wide}xf32>" not in text


def test_summaries_join_the_metrics_and_may_not_hide_any(learner):
    state, config = (
        jax.eval_shape(learner.algorithm.init, jax.random.key(0), PARAMS),
        learner.config,
    )
    reward = Summary(
        start=lambda params: jnp.float32(0),
        collect=lambda seen: seen.reward,
        figures=lambda sums, steps: {"mean_reward": sums / steps},
    )
    algorithm = make_ppo(config.run, ENV, 1, summarise=reward)
    assert jax.eval_shape(algorithm.update, state, PARAMS, None)[1]["mean_reward"].shape == ()
    hides = reward._replace(figures=lambda sums, steps: {"entropy": sums})

    def staged(name):
        return {"summarise": reward, "stage": lambda params, at: (params, {name: at})}

    for name, keywords in (
        ("entropy", {"summarise": hides}),
        ("entropy", staged("entropy")),
        ("mean_reward", staged("mean_reward")),
    ):
        clash = make_ppo(config.run, ENV, 1, **keywords)
        with pytest.raises(ValueError, match=name):
            jax.eval_shape(clash.update, state, PARAMS, None)


def test_wrong_arguments_are_named(learner, trained):
    with pytest.raises(TypeError, match="typed key"):
        learner.algorithm.init(jax.random.PRNGKey(0), PARAMS)
    with pytest.raises(ValueError, match="takes no inputs"):
        learner.algorithm.update(trained[0], PARAMS, {"advice": jnp.zeros(3)})


def test_normaliser_is_updated_after_use_from_every_observation(trained):
    state, _ = trained
    rows = CONFIG.num_envs * (CONFIG.num_steps * UPDATES + 1)  # the rollouts, and the first resets
    np.testing.assert_array_equal(state.normaliser.count, np.full((1, 2), rows, np.float32))
    # cue is +-1; time / 10 runs through 0, .1, .2, .3, .4
    np.testing.assert_allclose(state.normaliser.mean[0, 1], 0.2, atol=0.01)
    np.testing.assert_allclose(state.normaliser.variance[0], [1.0, 0.02], atol=0.05)


@pytest.mark.parametrize(
    ("rows", "limit", "sequence", "blocks"),
    [(48, 48, 1, 1), (48, 47, 1, 2), (48, 10, 1, 6), (5, 1, 1, 5), (7, 3, 1, 1), (48, 1, 12, 1)],
)
def test_blocks_are_equal_and_small_enough(rows, limit, sequence, blocks):
    """A sequence is not cut."""
    assert block_count(rows, limit, sequence) == blocks


def test_a_minibatch_in_blocks_is_the_minibatch():
    """48 rows at once or 12 at a time: the same steps and figures, with the whole minibatch's mean
    advantage.
    """
    made = []
    for gradient_rows in (48, 12):
        config = CONFIG.model_copy(
            update={"gradient_rows": gradient_rows, "normalise_advantages": True}
        )
        one = Learner(config=config)
        made.append(one.run(one.start(), 2))
    (whole, whole_rows), (cut, cut_rows) = made
    assert_close(whole.params, cut.params, rtol=1e-4)
    assert_close(whole_rows[-1], cut_rows[-1], rtol=1e-3)
