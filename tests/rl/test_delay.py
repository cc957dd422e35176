"""Acting with an older policy: which policy acts, the recorded lag, V-trace, resumption, agents,
what is refused.
"""

import functools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import TrainConfig, make_config
from jaxtrade.errors import ConfigError
from jaxtrade.parts import LEARNERS
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.state import PastPolicies, Policy, acting
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import RepeatedPrograms
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from jaxtrade.training.population import ONE_DEVICE, Stack
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_close, assert_same

ENV = Probe((lambda ref, action: ref.cue * action + 0.1 * ref.time,))
PARAMS = probe_params(
    length=5, truncates=True
)  # rollouts of 12 steps: truncations fall inside them
UPDATES, DELAY = 6, 2
TRAIN = TrainConfig(
    total_timesteps=16 * 12 * UPDATES, chunk_updates=1, checkpoint_every=1, keep_checkpoints=9
)
KEY = jax.random.key(0)


OWN = {
    "ppo": {"num_minibatches": 2, "num_epochs": 2, "learning_rate": 1e-2},
    "dqn": {
        "buffer_size": 1000,
        "batch_size": 32,
        "replay_ratio": 0.5,
        "learning_starts": 0,
        "learning_rate": 1e-2,
        "epsilon": 0.2,
    },
}


def config_of(delay, algorithm="ppo", **network):
    return make_config(
        {
            "algorithm": algorithm,
            "actor": {"delay": delay},
            "rollout": {"num_envs": 16, "num_steps": 12, "num_shards": 4},
            "network": {"hidden": [8]} | network,
            algorithm: OWN[algorithm],
        }
    )


def learner_of(*given, **network):
    config = config_of(*given, **network)
    return make_algorithm(config, ENV, UPDATES)


ALGORITHMS = {name: learner_of(DELAY, name) for name in OWN}


# A run with a delay of two updates. states: before and after each update. folder: its checkpoints.
Followed = namedtuple("Followed", "name result states folder")


PROGRAMS = {name: RepeatedPrograms() for name in OWN}  # all runs of a learner are one program


def trained(name, **keywords):
    return train(ALGORITHMS[name], PARAMS, config=TRAIN, programs=PROGRAMS[name], **keywords)


@functools.cache
def follow_run(name, folder):
    states = [jax.jit(ALGORITHMS[name].init)(KEY, PARAMS)]

    def follow(state, update):
        states.append(ONE_DEVICE.copy(state))
        return Change()

    result = trained(name, key=KEY, checkpoint_dir=folder, hooks=[follow])
    return Followed(name, result, states, folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("delay")


@pytest.fixture
def ppo(folder):
    return follow_run("ppo", folder / "ppo")


@pytest.fixture(params=["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def followed(request, folder):
    return follow_run(request.param, folder / request.param)


# --- the older policies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 3])
def test_the_policy_of_version_u_minus_d_acts(delay):
    """Policy u has the parameter 10 u and the statistic 100 u."""
    delayed = PastPolicies(
        jnp.full(delay, -7.0), jnp.full(delay, -7.0), jnp.zeros(delay, jnp.int32)
    )
    for update in range(8):
        of = Policy(
            jnp.float32(10 * update), jnp.float32(100 * update), epsilon=jnp.float32(update)
        )  # type: ignore
        acts = acting(delayed, of, jnp.int32(update))
        version, delayed = max(update - delay, 0), acts.kept
        assert int(acts.version) == version
        assert (float(acts.policy.parameters), float(acts.policy.normaliser)) == (
            10 * version,
            100 * version,
        )  # type: ignore
        assert float(acts.policy.epsilon) == update  # type: ignore  # schedules are those of today


def test_without_a_delay_the_policy_itself_acts():
    policy = Policy(jnp.float32(1))
    acts = acting(None, policy, jnp.int32(3))
    assert acts.policy is policy
    assert acts.kept is None
    assert jax.eval_shape(learner_of(0).init, KEY, PARAMS).actor is None


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_recorded_lag_is_the_update_up_to_the_delay(followed):
    rows = followed.result.history
    assert [(row["lag_min"], row["lag_max"]) for row in rows] == [
        (min(u, DELAY),) * 2 for u in range(UPDATES)
    ]
    assert followed.result.state.actor.version.tolist() == [4, 5]


def test_the_lag_is_read_from_the_versions(ppo):
    """A policy that claims another version is reported with the lag of this version."""
    state = ONE_DEVICE.copy(ppo.states[3])
    false = state.replace(actor=state.actor.replace(version=jnp.array([-4, -4], jnp.int32)))
    assert trained("ppo", state=false).history[0]["lag_max"] == 7


@pytest.mark.slow
def test_the_environments_see_the_actions_of_the_older_policy(followed):
    """The rollout of update 4 is that of a learner without a delay that has the parameters and
    statistics of update 2, bit for bit."""
    name, states = followed.name, followed.states
    old = states[4].replace(params=states[2].params, normaliser=states[2].normaliser, actor=None)
    fresh, metrics = jax.jit(learner_of(0, name).update)(old, PARAMS, None)
    for part in ("env_state", "ref", "first", "episodes"):
        assert_same(getattr(fresh, part), getattr(states[5], part))
    np.testing.assert_array_equal(
        metrics["action_share"], followed.result.history[4]["action_share"]
    )
    assert int(metrics["lag_max"]) == 0


def test_acting_and_learning_agree(followed):
    error = {"ppo": "ratio_error", "dqn": "q_error"}[followed.name]
    assert max(row[error] for row in followed.result.history) <= 1e-5
    assert followed.result.health[error][0]


def test_it_resumes_to_the_same_bits(followed, tmp_path):
    like = jax.eval_shape(ALGORITHMS[followed.name].init, KEY, PARAMS)
    half = checkpoint.restore(followed.folder / "update-00000003", like).state
    again = trained(followed.name, state=half, checkpoint_dir=tmp_path)
    assert_same(again.state, followed.result.state)
    assert [row["lag_max"] for row in again.history] == [DELAY] * 3


def test_a_run_that_begins_from_another_policy_acts_with_that_policy(ppo):
    """Its beginning replaces the parameters of the first state alone. All slots then hold them."""
    begun = ONE_DEVICE.copy(ppo.states[0].replace(params=ppo.result.state.params))
    after = trained("ppo", state=begun, hooks=[lambda *_: Change(stop=True)]).state
    for slot in range(DELAY):
        assert_same(
            jax.tree.map(lambda x, slot=slot: x[slot], after.actor.parameters),
            ppo.result.state.params,
        )


# --- PPO --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_v_trace_on_fresh_steps_learns_as_gae_does(ppo):
    """In update 0 the policy that learns acts: the same step as without a delay, up to rounding."""
    result, states = ppo.result, ppo.states
    fresh, metrics = jax.jit(learner_of(0).update)(states[0].replace(actor=None), PARAMS, None)
    assert_close(fresh.params, states[1].params, atol=2e-5)
    first, later = result.history[0], result.history[1:]
    assert first["behaviour_kl"] < 1e-9 < min(row["behaviour_kl"] for row in later)
    assert first["rho"] == pytest.approx(1, abs=1e-6)
    assert all(0 < row["rho"] < 1 for row in later)
    assert "rho" not in metrics


@pytest.mark.slow
def test_a_policy_with_a_memory_reads_the_rollout_with_its_own_memory():
    """Before the first step its probabilities are those of the loss, and on fresh steps it learns
    as without a delay.
    """
    gru = {"kind": "gru", "rnn_width": 8}
    delayed, fresh = (learner_of(delay, **gru) for delay in (2, 0))
    update, state = jax.jit(delayed.update), jax.jit(delayed.init)(KEY, PARAMS)
    other = jax.jit(fresh.update)(state.replace(actor=None), PARAMS, None)[0]
    state, metrics = update(state, PARAMS, None)
    assert_close(other.params, state.params, atol=2e-5)
    for _ in range(3):
        state, metrics = update(state, PARAMS, None)
        assert metrics["ratio_error"] <= 1e-5 < metrics["behaviour_kl"] + 1e-5
    assert int(metrics["lag_max"]) == 2


@pytest.mark.slow
def test_two_agents_side_by_side_are_two_alone(ppo):
    two = trained("ppo", key=Stack.of(2).keys(0), num_seeds=2)
    assert two.history[-1]["lag_max/each"] == [2, 2]
    one = Stack.of(2).agent(two.state, 0)
    for part in ("params", "actor"):
        assert_close(getattr(one, part), getattr(ppo.result.state, part), rtol=1e-5, atol=1e-5)


# --- DQN --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_replay_keeps_the_version_that_acted(folder):
    """A ring of five rollouts of 12 rows: update 5 has written over the rows of update 0."""
    result = follow_run("dqn", folder / "dqn").result
    assert np.asarray(result.state.own.replay.version[::12]).tolist() == [3, 0, 0, 1, 2]
    for update, row in enumerate(result.history):
        oldest = update - max(
            update - 4 - DELAY, 0
        )  # five rollouts are kept, the oldest of update - 4
        assert min(update, DELAY) <= row["sample_age"] <= row["sample_age_max"] <= oldest
        assert row["replay_ratio"] == 0.5  # as configured


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"algorithm": "pqn", "actor": {"delay": 1}},
            r"actor\.delay=1 .*algorithm=pqn",
        ),
        (
            {"actor": {"rho_clip": 2.0}},
            r"rho_clip=2: .*actor\.delay=0",
        ),
        (
            {"algorithm": "dqn", "actor": {"delay": 1, "rho_clip": 2.0, "c_clip": 3.0}},
            r"rho_clip=2, .*c_clip=3: .*delay=1",
        ),
        ({"actor": {"delay": -1}}, "actor.delay"),
    ],
)
def test_what_has_no_sound_meaning_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        make_config(values)


def test_a_learner_of_the_users_own_is_refused(monkeypatch):
    monkeypatch.setitem(LEARNERS._added, "own_learner", object())
    with pytest.raises(ConfigError, match="only ppo and dqn"):
        make_config({"algorithm": "own_learner", "actor": {"delay": 2}})
