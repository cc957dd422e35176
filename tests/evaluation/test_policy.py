"""The policy bundle acts as the trained policy did, and refuses what does not fit."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import sections_of
from jaxtrade.config import EnvConfig, RunConfig
from jaxtrade.env.actions import Action
from jaxtrade.errors import CheckpointError, ConfigError
from jaxtrade.evaluation import policy
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy, sampled
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo.act import policy_of
from jaxtrade.storage import checkpoint
from tests.evaluation.tiny import setup, tiny_market, walk

MARKET = tiny_market(walk([60, 60], scale=6.0), [60, 60])
PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "num_shards": 1, "hidden": [16, 16]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An untrained network with lively outputs and a normaliser that is not the identity, saved as
    a run would.
    """
    env, params, config = setup(MARKET, MARKET.sessions(0, 1), **sections_of(PPO))
    algorithm = make_ppo(config, env, 1)
    policy = policy_of(jax.jit(algorithm.init)(jax.random.key(1), params))
    rng = np.random.default_rng(0)
    size = env.observation_size
    stats = RunningStats(
        jnp.full((1, size), 9.0),
        jnp.asarray(rng.normal(size=(1, size)), jnp.float32),
        jnp.asarray(rng.uniform(0.5, 2.0, (1, size)), jnp.float32),
    )
    head = dict(policy.parameters["policy_head"])
    parameters = {**policy.parameters, "policy_head": {**head, "kernel": 100 * head["kernel"]}}
    policy = policy.replace(normaliser=stats, parameters=parameters)
    run = tmp_path_factory.mktemp("run")
    save_policy_bundle(run / "policy", policy, env, MARKET, config)
    return run, policy, env, params, algorithm


def visited(trained):
    """References, observations and masks that the sampled policy visits."""
    _, policy, env, params, algorithm = trained
    decisions = decision_bars(MARKET.data, MARKET.sessions(0, 1))
    record = backtest(
        env, sampled(algorithm, policy, env), params, decisions, "strategy", jax.random.key(2)
    )
    state = env.reset_at(params, 0, decisions.rows[0])
    step, observe = jax.jit(env.step), jax.jit(env.observe)
    refs = []
    for action in record.action[:59]:
        refs.append(env.ref(state, params))
        state, *_ = step(jax.random.key(0), state, jnp.int32(action), params)
    return (
        refs,
        np.stack([observe(ref, params) for ref in refs]),
        np.stack([ref.mask for ref in refs]),
    )


@pytest.mark.slow
def test_loaded_policy_acts_as_the_trained_one(trained):
    run, policy, _, params, algorithm = trained
    loaded = load_policy(run)
    refs, observations, masks = visited(trained)
    act = jax.jit(algorithm.act, static_argnums=5)
    best = [int(act(policy, None, ref, params, None, False)[1]) for ref in refs]
    assert len(set(best)) >= 3
    assert [loaded.act(o, m) for o, m in zip(observations, masks, strict=True)] == best
    assert loaded.act(observations, masks).tolist() == best
    assert not loaded.has_memory
    carry, actions = loaded.step(loaded.first_carry(), observations, masks)
    assert (carry, actions.tolist()) == (None, best)
    for i, ref in enumerate(refs):
        key = jax.random.key(i)
        drawn = loaded.act(observations[i], masks[i], explore=True, key=key)
        assert isinstance(drawn, int)
        assert drawn == int(act(policy, None, ref, params, key, True)[1])


@pytest.mark.slow
def test_the_bundle_alone_is_enough(trained, tmp_path):
    shutil.copytree(trained[0] / "policy", tmp_path / "elsewhere")
    loaded = load_policy(tmp_path / "elsewhere")
    assert loaded.action_names == [action.name for action in Action]
    assert loaded.observation_names[-3:] == ["can_enter", "can_manage", "has_position"]
    for mine, theirs in zip(
        jax.tree.leaves(loaded.policy), jax.tree.leaves(trained[1]), strict=True
    ):
        assert np.array_equal(mine, theirs)


@pytest.mark.slow
def test_only_legal_actions_are_sampled(trained):
    loaded = load_policy(trained[0])
    rng = np.random.default_rng(1)
    masks = rng.random((5_000, 7)) < 0.3
    masks[:, 0] |= ~masks.any(axis=1)
    observations = rng.normal(size=(5_000, len(loaded.observation_names))).astype(np.float32)
    for explore in (False, True):
        actions = loaded.act(observations, masks, explore=explore, key=jax.random.key(0))
        assert masks[np.arange(5_000), actions].all()
        assert len(np.unique(actions)) == 7


@pytest.mark.slow
def test_greedy_agent_takes_the_loaded_policys_actions(trained):
    run, policy, env, params, algorithm = trained
    loaded = load_policy(run)
    decisions = decision_bars(MARKET.data, MARKET.sessions(0, 1))
    key = jax.random.key(0)
    mine = backtest(env, greedy(algorithm, loaded.policy, env), params, decisions, "account", key)
    theirs = backtest(env, greedy(algorithm, policy, env), params, decisions, "account", key)
    assert np.array_equal(mine.action, theirs.action)
    assert mine.legal.all()


@pytest.mark.parametrize(
    ("observation", "mask", "message"),
    [
        (np.zeros(5), np.ones(7, bool), "expected"),
        (np.zeros(228), np.ones(6, bool), "mask"),
        (np.zeros(228), np.ones(7), "mask"),
        (np.zeros((2, 228)), np.ones(7, bool), "mask"),
        (np.zeros(228), np.zeros(7, bool), "no action"),
        (np.full(228, np.nan), np.ones(7, bool), r"slot 0 \('close\[t-20\]'\)"),
    ],
)
def test_wrong_input_is_refused(trained, observation, mask, message):
    with pytest.raises(ValueError, match=message):
        load_policy(trained[0]).act(observation, mask)


def test_sampling_needs_a_key(trained):
    with pytest.raises(ValueError, match="key"):
        load_policy(trained[0]).act(np.zeros(228), np.ones(7, bool), explore=True)


@pytest.mark.slow
def test_a_bundle_of_an_earlier_version_loads(trained, tmp_path):
    """Its schema named no algorithm, and the kind of network under `network`."""
    run, policy, *_ = trained
    schema = dict(load_policy(run).schema)
    network = dict(schema["network"])
    schema["network"] = {"network": network.pop("kind"), **network}
    del schema["algorithm"]
    checkpoint.save_policy(tmp_path / "policy", policy, schema)
    _, observations, masks = visited(trained)
    old, new = load_policy(tmp_path), load_policy(run)
    np.testing.assert_array_equal(old.act(observations, masks), new.act(observations, masks))


def test_absent_slots_are_listed_outside_the_digests(trained):
    config = EnvConfig(features=("close", "volume", "rsi"), window=2)
    with_volume, without = (
        policy.make_schema(config, dataclasses.replace(MARKET, has_volume=known), RunConfig())
        for known in (True, False)
    )
    assert with_volume.pop("absent") == []
    assert without.pop("absent") == ["volume[t-2]", "volume[t-1]"]
    assert with_volume == without
    assert load_policy(trained[0]).schema["absent"] == []


def test_no_bundle(tmp_path):
    with pytest.raises(CheckpointError, match="no policy bundle"):
        load_policy(tmp_path)


@pytest.mark.parametrize("name", ["policy.npz", "schema.json"])
def test_a_flipped_bit_is_named(trained, tmp_path, name):
    shutil.copytree(trained[0] / "policy", tmp_path / "policy")
    data = bytearray((tmp_path / "policy" / name).read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "policy" / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_policy(tmp_path)


def test_another_observation_is_refused(trained, monkeypatch):
    real = policy.make_spec
    other = EnvConfig(
        features=("close", "volume", "sma_5", "ema_20", "rsi", "macd", "momentum", "atr")
    )
    monkeypatch.setattr(policy, "make_spec", lambda env: real(other))
    with pytest.raises(CheckpointError, match=r"slot 3 .*ema_20.*sma_20"):
        load_policy(trained[0])


def test_another_action_table_is_refused(trained, monkeypatch):
    monkeypatch.setattr(policy, "action_names", lambda env: ("HOLD", "SELL", "BUY"))
    with pytest.raises(CheckpointError, match="3 instead of 7 names"):
        load_policy(trained[0])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s["observation"]["slots"].reverse(), "recorded sha256"),
        (lambda s: s.update(schema_format=2), "schema format 2"),
        (lambda s: s["env"].update(task="both"), r"env\.task"),
        (lambda s: s["network"].update(hidden=[8]), "policy"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(trained, tmp_path, edit, message):
    """Written with valid digests of the files: the schema's own consistency is what is tested."""
    schema = json.loads((trained[0] / "policy" / "schema.json").read_text())
    edit(schema)
    checkpoint.save_policy(tmp_path / "policy", trained[1], schema)
    with pytest.raises(CheckpointError, match=message):
        load_policy(tmp_path)


@pytest.fixture(scope="module")
def of_two(trained, tmp_path_factory):
    """The same network as a run on two symbols would save it: with two groups of statistics."""
    stats = trained[1].normaliser
    policy = trained[1].replace(
        normaliser=jax.tree.map(lambda x: jnp.concatenate([x, 3 * x]), stats)
    )
    schema = json.loads((trained[0] / "policy" / "schema.json").read_text())
    market = schema.pop("market")
    schema |= {
        "markets": [market, market | {"symbol": "USDJPY"}],
        "groups": [market["symbol"], "USDJPY"],
    }
    path = tmp_path_factory.mktemp("of_two")
    checkpoint.save_policy(path, policy, schema)
    return path, policy


@pytest.mark.slow
def test_a_policy_of_two_symbols_acts_with_the_statistics_of_the_chosen_one(trained, of_two):
    path, policy = of_two
    loaded, first = load_policy(path), MARKET.contract.symbol
    _, observations, masks = visited(trained)
    assert loaded.symbols == [first, "USDJPY"]
    assert loaded.for_symbol(first).act(observations, masks).tolist() == (
        load_policy(trained[0]).act(observations, masks).tolist()
    )
    yen = load_policy(path, "usdjpy")
    np.testing.assert_array_equal(yen.policy.normaliser.mean, policy.normaliser.mean[1:])
    assert (
        yen.act(observations, masks).tolist()
        != loaded.for_symbol(first).act(observations, masks).tolist()
    )
    assert yen.for_symbol("USDJPY") is yen


def test_a_policy_of_two_symbols_refuses_to_act_before_one_is_chosen(of_two):
    with pytest.raises(ValueError, match=r", USDJPY, .* policy\.for_symbol"):
        load_policy(of_two[0]).act(np.zeros(228), np.ones(7, bool))


def test_a_symbol_that_the_policy_never_saw_is_refused(trained, of_two):
    for path in (trained[0], of_two[0]):
        with pytest.raises(
            ConfigError,
            match=r"GBPUSD: .*normalise_per_symbol",
        ):
            load_policy(path, "GBPUSD")


def test_common_statistics_act_on_any_symbol(trained, tmp_path):
    schema = json.loads((trained[0] / "policy" / "schema.json").read_text())
    market = schema.pop("market")
    checkpoint.save_policy(
        tmp_path, trained[1], schema | {"markets": [market, market], "groups": ["all symbols"]}
    )
    loaded = load_policy(tmp_path)
    assert loaded.for_symbol("GBPUSD") is loaded
