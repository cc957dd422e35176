"""DQN: its counts, targets by hand, an update against NumPy, the target network, checkpoints,
agents, memory.
"""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import TrainConfig, make_config
from jaxtrade.errors import ConfigError
from jaxtrade.rl import dqn
from jaxtrade.rl.dqn import batch_of, draw_randoms, make_dqn, make_ring, update_target
from jaxtrade.rl.q import q_contexts
from jaxtrade.rl.replay import renew_priorities
from jaxtrade.storage import checkpoint
from jaxtrade.training.loop import plan_run, train
from jaxtrade.training.population import Stack
from tests.messages import missing
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_close, assert_same

ENV = Probe((lambda ref, action: ref.cue * action + ref.time, lambda ref, action: jnp.nan))
PARAMS = probe_params(length=5)
ROLLOUT = {"num_envs": 8, "num_steps": 4, "num_shards": 2}
STEPS = 32  # of an update
TRAIN = TrainConfig(
    total_timesteps=STEPS * 12, chunk_updates=2, checkpoint_every=2, keep_checkpoints=9
)
TOTAL = plan_run(TRAIN, 8, 4).total_updates
KEY = jax.random.key(0)


def config_of(**keys):
    given = {
        "buffer_size": 200,
        "batch_size": 16,
        "replay_ratio": 1.0,
        "learning_starts": 64,
        "target_every": 100,
        "learning_rate": 1e-2,
        "n_steps": 3,
    }
    return make_config(
        {"algorithm": "dqn", "rollout": ROLLOUT, "network": {"hidden": [8]}, "dqn": given | keys}
    )


def dqn_of(config, total=TOTAL):
    return make_dqn(config, ENV, total)


PRIORITISED = config_of(replay="prioritised")  # two gradient steps in an update
DQN = dqn_of(PRIORITISED)
SOFT = config_of(
    batch_size=32,
    replay="prioritised",
    tau=0.25,
    double=False,
    dueling=False,
    learning_starts=0,
    normalise_rewards=False,
    epsilon=0.5,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dqn")
    return train(DQN, PARAMS, config=TRAIN, key=KEY, checkpoint_dir=folder), folder


@pytest.fixture(scope="module")
def soft():
    """The states before and after each of five updates of `SOFT`, and the metrics."""
    algorithm = dqn_of(SOFT)
    update = jax.jit(algorithm.update)
    states, rows = [jax.jit(algorithm.init)(KEY, PARAMS)], []
    for _ in range(5):
        state, metrics = update(states[-1], PARAMS, None)
        states.append(state)
        rows.append(metrics)
    return states, rows


# --- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"replay_ratio": 0.75, "batch_size": 64},
            r"replay_ratio \(0\.75\) .*\(64\) is 0\.375 .*=2\.0 \(1\)",
        ),
        (
            {"replay_ratio": 1.2},
            r"is 2\.4 gradient .*=1\.0 \(2\) or 1\.5 \(3\)",
        ),
        (
            {"buffer_size": 63},
            r"buffer_size \(63\) .*buffer_size=64",
        ),
        (
            {"batch_size": 15, "replay_ratio": 15 / 32},
            r"batch_size \(15\) .*\(2\).*batch_size=16",
        ),
        ({"target_every": 2**30}, r"dqn.target_every \(1,073,741,824\)"),
    ],
)
def test_counts_that_do_not_fit_are_refused_with_what_works(keys, message):
    with pytest.raises(ConfigError, match=message):
        config_of(**keys)


@pytest.mark.parametrize("ratio", [2.0, 1.5, 1.0])
def test_the_ratios_that_a_message_names_work(ratio):
    assert config_of(replay_ratio=ratio).dqn.gradient_steps(PRIORITISED.rollout) == round(2 * ratio)


def test_a_ratio_that_is_no_finite_decimal_is_whole_too():
    config = make_config(
        {
            "algorithm": "dqn",
            "rollout": {"num_envs": 8, "num_steps": 12},
            "dqn": {"batch_size": 64, "replay_ratio": 2 / 3},
        }
    )
    assert config.dqn.gradient_steps(config.rollout) == 1


def test_a_network_with_a_memory_is_refused():
    with pytest.raises(ConfigError, match=r"kind=gru .*algorithm=pqn"):
        make_config({"algorithm": "dqn", "network": {"kind": "gru"}})


# --- targets ----------------------------------------------------------------------------------------------------------


def test_the_value_of_a_reference_by_hand():
    """Illegal actions count neither for the choice nor for the value, however large their Q is."""
    target = jnp.array([[1.0, 5.0, 9.0], [1.0, -2.0, 9.0]])
    online = jnp.array([[4.0, 3.0, 9.0], [-1.0, 0.0, 9.0]])
    mask = jnp.array([[True, True, False], [True, True, False]])
    assert dqn.final_value(target, None, mask).tolist() == [5, 1]
    assert dqn.final_value(target, online, mask).tolist() == [
        1,
        -2,
    ]  # chosen by `online`, valued by `target`


def test_nothing_is_bootstrapped_after_a_termination():
    goal = dqn.bootstrap(jnp.array([1.0, 1.0]), jnp.array([0.5, 0.0]), jnp.array([4.0, jnp.nan]))
    assert goal.tolist() == [3, 1]


# --- an update --------------------------------------------------------------------------------------------------------


def q_by_numpy(parameters, stats, observations):
    """Q float64[B, A] of one hidden layer, without dueling."""
    parameters = jax.tree.map(lambda x: np.asarray(x, np.float64), parameters)
    deviation = np.sqrt(np.asarray(stats.variance, np.float64)[0])
    x = np.where(
        deviation > 1e-6,
        (observations - np.asarray(stats.mean)[0]) / np.maximum(deviation, 1e-6),
        0.0,
    )
    dense, head = parameters["q_torso"]["Dense_0"], parameters["q_head"]
    return (
        np.tanh(np.clip(x, -10, 10) @ dense["kernel"] + dense["bias"]) @ head["kernel"]
        + head["bias"]
    )


@pytest.mark.slow
def test_the_loss_of_a_step_by_numpy(soft):
    """The fifth update has one gradient step. The samples are drawn again; the rest is NumPy:
    masks, targets, Huber, and importance weights (starts * P)^-beta over the largest of the
    batch."""
    states, rows = soft
    before, after = states[4], states[5]
    ctx = q_contexts(SOFT, ENV, TOTAL, summarise=None, stage=None, fusion=None)[1]
    of = make_ring(ctx, before.ref)
    key = jax.random.split(jax.random.fold_in(before.key, 4))[1]
    priorities, chance = (
        renew_priorities(of, before.own.priorities, after.own.replay),
        draw_randoms(ctx, of, after.own.replay, key)[0],
    )
    found, _, drawn = batch_of(
        of, after.own.replay, priorities, chance, before.hparams, jnp.float32(0)
    )
    leaves = np.asarray(priorities.trees.leaves, np.float64)  # of each of the two groups
    share = leaves[np.arange(2)[:, None], drawn.leaf] / leaves.sum(axis=1, keepdims=True) / 2
    weight = ((leaves > 0).sum() * share.ravel()) ** -float(rows[4]["priority_beta"])
    weight = weight / weight.max()
    assert weight.min() < 0.9  # the priorities differ

    def observations(ref):
        return np.stack([ref.cue, ref.shown * np.asarray(ref.time) / 10], axis=-1).astype(
            np.float64
        )

    final = q_by_numpy(before.own.target, before.normaliser, observations(found.final_ref))
    legal = np.ones_like(final, bool)
    legal[:, 0], legal[:, -1] = np.asarray(found.final_ref.cue) <= 0, False
    goal = np.asarray(found.reward) + np.asarray(found.discount) * np.where(
        legal, final, -np.inf
    ).max(axis=1)
    own = q_by_numpy(before.params, before.normaliser, observations(found.ref))
    error = own[np.arange(32), np.asarray(found.action)] - goal
    expected = (weight * np.where(abs(error) <= 1, error**2 / 2, abs(error) - 0.5)).mean()
    assert (np.asarray(found.discount) == 0).any()  # some samples end by a termination
    np.testing.assert_allclose(rows[4]["td_loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(rows[4]["td_error"], abs(error).mean(), rtol=1e-5)


@pytest.mark.slow
def test_the_soft_target_moves_by_tau(soft):
    states, rows = soft
    for before, after in itertools.pairwise(states):
        target = before.params if int(before.update) == 0 else before.own.target
        expected = jax.tree.map(lambda old, new: old + 0.25 * (new - old), target, after.params)
        assert_close(after.own.target, expected, rtol=1e-5, atol=1e-7)
    assert [float(row["q_error"]) < 1e-5 for row in rows] == [True] * 5


@pytest.mark.slow
def test_the_target_becomes_the_online_network_where_the_steps_cross_a_multiple(whole):
    """Two gradient steps in an update of 32 environment steps: they stand at 16, 32, 48, ...
    Multiples of 100 are crossed at 112, 208 and 304: in updates 4, 7 and 10. A test by modulo would
    find the first at 800."""
    rows = whole[0].history
    assert [row["update"] for row in rows if row["target_updates"]] == [4, 7, 10]
    assert max(row["target_updates"] for row in rows) == 1
    assert int(whole[0].state.own.since) == 2 * (12 * 32 - 300)  # in halves of a step


@pytest.mark.parametrize(
    ("every", "since", "copied", "left"),
    [
        (32, 31, False, 63),
        (32, 32, True, 0),
        (32, 40, True, 8),
        (5, 9, True, 1),  # every step crosses several
    ],
)
def test_a_step_that_ends_at_a_multiple_copies_the_target(every, since, copied, left):
    """Every 32 steps, two gradient steps in an update of 32: in halves of a step each adds 32, and
    64 is a multiple.
    """
    now = SimpleNamespace(since=jnp.int32(since), target=jnp.float32(1))
    ctx = SimpleNamespace(
        config=config_of(target_every=every).dqn,
        rollout=SimpleNamespace(num_envs=8, num_steps=4),
        steps_per_update=STEPS,
    )
    target, after, crossed = update_target(ctx, None, now, jnp.float32(2), True)
    assert (float(target), int(after), bool(crossed)) == (2 if copied else 1, left, copied)


@pytest.mark.slow
def test_the_ratio_is_measured_and_nothing_is_learnt_before_learning_starts(whole):
    rows = whole[0].history
    assert [row["replay_ratio"] for row in rows] == [0.0] + [
        1.0
    ] * 11  # 64 steps are taken in the second update
    assert [row["gradient_steps"] for row in rows] == [0.0] + [2.0] * 11
    assert rows[0]["param_delta"] == rows[0]["q_change"] == 0 < rows[1]["param_delta"]
    assert [row["replay_size"] for row in rows] == [min(32 * (i + 1), 192) for i in range(12)]
    assert 0 <= rows[1]["sample_age"] <= 1
    assert 1 < rows[-1]["sample_age"] < 6
    assert all(passed for passed, _ in whole[0].health.values()), whole[0].health


def test_no_warning_says_that_nothing_is_learnt_while_the_replay_is_filled():
    frozen = next(warn for warn in DQN.info.warnings if warn.kind == "frozen")
    still = {"q_change": 0.0, "applied": 1.0}
    assert not missing(frozen.look([still] * 3), "Q has changed", "0.0e+00 for 3 updates")
    assert frozen.look([still | {"applied": 0.0}, still, still]) == ""


# --- runs -------------------------------------------------------------------------------------------------------------


def like():
    return jax.eval_shape(DQN.init, KEY, PARAMS)


def test_it_resumes_to_the_same_bits(whole, tmp_path):
    """Replay, sum trees, target network and counters come from the checkpoint."""
    result, folder = whole
    half = checkpoint.restore(folder / "update-00000004", like()).state
    assert_same(
        train(DQN, PARAMS, config=TRAIN, state=half, checkpoint_dir=tmp_path).state, result.state
    )


@pytest.mark.slow
def test_no_update_copies_the_replay():
    """The compiled update of two agents with a million transitions, prioritised: its temporaries
    are below a tenth of the replay.
    """
    config = config_of(replay="prioritised", buffer_size=1_000_000)
    stack = Stack.of(2)
    algorithm = stack.wrap(dqn_of(config))
    state = jax.eval_shape(algorithm.init, stack.keys(0), PARAMS)
    replay = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.own.replay))
    assert replay >= 2 * 1_000_000 * 32
    program = jax.jit(algorithm.update, donate_argnums=0).lower(state, PARAMS, None).compile()
    used = program.memory_analysis()
    assert used.alias_size_in_bytes >= replay
    tree = 2 * 8_000_000
    assert used.temp_size_in_bytes < 0.1 * replay + tree
