"""PQN keeps a cue in memory, its targets are those of Q(lambda), and it repeats itself to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.networks.reductions import Reduce
from jaxtrade.rl import info
from jaxtrade.rl.pqn import PQNHParams, make_pqn, targets
from jaxtrade.rl.q import explorer, init, largest, policy_of, q_contexts
from jaxtrade.rl.returns import next_values, q_lambda
from jaxtrade.rl.rollout import roll_out
from jaxtrade.storage import checkpoint
from jaxtrade.training.health import warnings
from jaxtrade.training.loop import train
from tests.rl.probes import Recall, probe_params
from tests.rl.test_probes import ASKED, CUE, ENV
from tests.rl.test_train import assert_close, assert_same

KEYS = (
    "rollout.num_envs=32",
    "rollout.num_steps=16",
    "pqn.num_minibatches=4",
    "pqn.num_epochs=4",
    "network.hidden=[32]",
    "pqn.learning_rate=0.01",
    "pqn.learning_rate_end=0.001",
    "pqn.normalise_rewards=false",
    "pqn.epsilon_end=0.1",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.total_timesteps=4096",
)


def config(*more):
    return load_config(None, ["algorithm=pqn", *KEYS, *more])


PQN = make_pqn(config(), ENV, 8)


@pytest.mark.slow
def test_a_memory_keeps_the_cue():
    """The cue is seen at the first step alone, and asked for at the last of four."""
    env = Recall(
        (
            lambda ref, action: jnp.where(
                ref.time == 3, jnp.where(action == 1 + (ref.cue > 0), 1.0, -1.0), 0.0
            ),
        )
    )
    learner = make_pqn(
        config("network.kind=gru", "network.rnn_width=16", "pqn.num_minibatches=4"), env, 150
    )
    params = probe_params(0, length=4)
    state = learner.init(jax.random.key(1), params)
    state, metrics = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: learner.update(s, params, None), s, None, length=150)
    )(state)
    assert float(metrics["q_error"].max()) < 1e-4
    assert (
        float(metrics["episode_reward"][-10:].mean()) > 0.75
    )  # 0 without a memory; epsilon 0.1 costs a little


@pytest.mark.slow
@pytest.mark.parametrize("truncates", [False, True])
def test_the_targets_of_a_rollout(truncates):
    """Each reference through the network on its own."""
    chosen = config(
        "rollout.num_envs=2", "rollout.num_steps=7", "pqn.num_minibatches=1", "pqn.q_lambda=0.5"
    )
    _, ctx = q_contexts(chosen, ENV, 4, summarise=None, stage=None, fusion=None)
    params = probe_params(CUE, length=3, truncates=truncates)
    state = init(ctx, PQNHParams, jax.random.key(3), params)
    state = state.replace(
        params=jax.tree.map(lambda x: x + 0.3, state.params)
    )  # values that differ
    rollout = roll_out(ctx, explorer, state, policy_of(state), params, jax.random.key(4))
    after, seen = rollout.state, rollout.seen
    found = targets(
        ctx, rollout.policy, params, state.hparams, seen.reward, after.carry, after.ref, seen
    )
    assert bool(seen.truncated.any()) == truncates

    def best(ref):
        extras = PQN.act(policy_of(state), None, ref, params, None, False)[2]
        return largest(extras.logits, extras.mask)

    each = jax.jit(jax.vmap(jax.vmap(best)))
    last = jax.vmap(best)(after.ref)
    following = next_values(each(seen.ref), last, each(seen.final_ref), seen.truncated)
    expected = q_lambda(seen.reward, following, seen.terminated, seen.truncated, 0.99, 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pqn")
    learner, params = PQN, probe_params(ASKED, length=2)
    return (
        learner,
        params,
        directory,
        train(
            learner, params, config=config().train, key=jax.random.key(0), checkpoint_dir=directory
        ),
    )


@pytest.mark.slow
def test_a_run_is_healthy_and_resumes_to_the_same_bits(whole):
    learner, params, directory, result = whole
    assert all(passed for passed, _ in result.health.values()), result.health
    like = jax.eval_shape(learner.init, jax.random.key(0), params)
    half = checkpoint.restore(directory / "update-00000006", like).state
    again = train(learner, params, config=config().train, state=half)
    assert_same(again.state, result.state)


@pytest.mark.slow
def test_an_update_for_a_device_and_in_two_parts_is_the_update():
    """Each part holds half of the environments and of the groups; figures and gradients are over
    both.
    """
    params, key = probe_params(ASKED, length=3), jax.random.key(2)
    keys = ("pqn.learning_rate=1e-3", "pqn.num_epochs=2", "pqn.dueling=true")
    halves = (*keys, "rollout.num_envs=16", "rollout.num_shards=4")
    part = make_pqn(config(*halves), ENV, 4, reduce=Reduce("parts"))
    whole, device = (make_pqn(config(*keys), ENV, 4, platform=each) for each in ("cpu", "gpu"))

    def updated(algorithm):
        return lambda key: algorithm.update(algorithm.init(key, params), params, None)

    state, metrics = jax.jit(updated(whole))(key)
    both = jax.vmap(updated(part), axis_name="parts", in_axes=None, axis_size=2)
    parts, of_parts = jax.jit(both)(key)
    other, others = jax.jit(updated(device))(key)
    for found in (other.params, *(jax.tree.map(lambda x, i=i: x[i], parts.params) for i in (0, 1))):
        assert_close(found, state.params, atol=2e-6)
    for figures in (others, jax.tree.map(lambda x: x[0], of_parts)):
        for name in ("td_loss", "q_max", "illegal"):
            np.testing.assert_allclose(figures[name], metrics[name], rtol=1e-4)


def test_warnings_name_the_key_to_change():
    fine = {"learning_rate": 1e-3, "q_change": 0.1, "q_max": 2.0, "td_loss": 0.1, "finite": True}
    own = info.q_warnings("pqn")
    assert warnings([fine] * 20, own=own) == {}
    assert "pqn.layer_norm=true" in warnings([fine | {"q_max": 1e6}] * 20, own=own)["exploding"]
    assert "pqn.learning_rate" in warnings([fine | {"q_change": 0.0}] * 20, own=own)["frozen"]
    assert (
        "pqn.learning_rate_end"
        in warnings([fine | {"learning_rate": 1e-9}], own=own)["learning_rate"]
    )


def test_a_loss_that_never_changes_fails_the_health_check():
    check = next(check for check in info.Q_LEARNS if check.name == "td_loss")
    assert not check.passed(check.measure([{"td_loss": 0.5}] * 3))
    assert check.passed(check.measure([{"td_loss": 0.5}, {"td_loss": 0.4}]))
