"""The policy bundle acts as the trained policy did, and refuses what does not fit."""

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
from jaxtrade.env.params import make_env
from jaxtrade.errors import CheckpointError, ConfigError
from jaxtrade.evaluation import policy
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import make_sampling_agent
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.storage import checkpoint
from tests.evaluation.tiny import TWO_DAYS as MARKET
from tests.evaluation.tiny import lively, observed, setup
from tests.rl.test_train import assert_same

PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "num_shards": 1, "hidden": [16, 16]}
RNG = np.random.default_rng(1)
OBSERVATIONS = RNG.normal(size=(1_000, 228)).astype(np.float32)
MASKS = RNG.random((1_000, 7)) < 0.3
MASKS[:, 0] |= ~MASKS.any(axis=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An untrained network with lively outputs, saved as a run would."""
    env, params, config = setup(MARKET, MARKET.every, **sections_of(PPO))
    policy = lively(config, env)
    run = tmp_path_factory.mktemp("run")
    save_policy_bundle(run / "policy", policy, env, MARKET, config)
    return run, policy, env, params, make_ppo(config, env, 1)


@pytest.mark.slow
def test_loaded_policy_acts_as_the_trained_one(trained):
    run, policy, env, params, algorithm = trained
    loaded, decisions = load_policy(run), decision_bars(MARKET.data, MARKET.every)
    agent = make_sampling_agent(algorithm, policy, env)
    record = backtest(env, agent, params, decisions, "strategy", jax.random.key(2))
    observations = observed(env, record, params)[:59]
    masks = record.mask[:59]
    refs = [jax.tree.map(lambda leaf, i=i: leaf[i], record.ref) for i in range(59)]
    act = jax.jit(algorithm.act, static_argnums=5)
    best = [int(act(policy, None, ref, params, None, False)[1]) for ref in refs]
    assert len(set(best)) >= 3
    assert [loaded.act(o, m) for o, m in zip(observations, masks, strict=True)] == best
    assert loaded.act(observations, masks).tolist() == best
    assert not loaded.has_memory
    carry, actions = loaded.step(loaded.first_carry(), observations, masks)
    assert (carry, actions.tolist()) == (None, best)


@pytest.mark.slow
def test_the_bundle_alone_is_enough(trained, tmp_path):
    shutil.copytree(trained[0] / "policy", tmp_path / "elsewhere")
    loaded = load_policy(tmp_path / "elsewhere")
    assert loaded.action_names == [action.name for action in Action]
    assert loaded.observation_names[-3:] == ["can_enter", "can_manage", "has_position"]
    assert_same(loaded.policy, trained[1])
    for explore in (False, True):
        actions = loaded.act(OBSERVATIONS, MASKS, explore=explore, key=jax.random.key(0))
        assert MASKS[np.arange(1_000), actions].all()
        assert len(np.unique(actions)) == 7


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
    new = load_policy(trained[0])
    schema, network = dict(new.schema), dict(new.schema["network"])
    schema["network"] = {"network": network.pop("kind"), **network}
    del schema["algorithm"]
    checkpoint.save_policy(tmp_path / "policy", trained[1], schema)
    old = load_policy(tmp_path)
    np.testing.assert_array_equal(old.act(OBSERVATIONS, MASKS), new.act(OBSERVATIONS, MASKS))


def test_absent_slots_are_listed_outside_the_digests(trained):
    config = EnvConfig(features=("close", "volume", "rsi"), window=2)
    with_volume, without = (
        policy.make_schema(
            make_env(config), dataclasses.replace(MARKET, has_volume=known), RunConfig()
        )
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
    real = policy.observation_schema
    other = EnvConfig(
        features=("close", "volume", "sma_5", "ema_20", "rsi", "macd", "momentum", "atr")
    )
    monkeypatch.setattr(policy, "observation_schema", lambda env: real(make_env(other)))
    with pytest.raises(CheckpointError, match=r"slot 3 .*ema_20.*sma_20"):
        load_policy(trained[0])


def test_another_action_table_is_refused(trained, monkeypatch):
    monkeypatch.setattr(policy, "action_schema", lambda env: {"names": ["HOLD", "SELL", "BUY"]})
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
    schema["markets"] = [market, market | {"symbol": "USDJPY"}]
    path = tmp_path_factory.mktemp("of_two")
    checkpoint.save_policy(path, policy, schema | {"groups": [market["symbol"], "USDJPY"]})
    checkpoint.save_policy(path / "common", trained[1], schema | {"groups": ["all symbols"]})
    return path, policy


@pytest.mark.slow
def test_a_policy_of_two_symbols_acts_with_the_statistics_of_the_chosen_one(trained, of_two):
    path, policy = of_two
    loaded, first = load_policy(path), MARKET.contract.symbol
    assert loaded.symbols == [first, "USDJPY"]
    yen = load_policy(path, "usdjpy")
    np.testing.assert_array_equal(yen.policy.normaliser.mean, policy.normaliser.mean[1:])
    assert yen.for_symbol("USDJPY") is yen
    one, other, own = (
        each.act(OBSERVATIONS, MASKS).tolist()
        for each in (loaded.for_symbol(first), yen, load_policy(trained[0]))
    )
    assert one == own != other


def test_a_symbol_is_chosen_among_those_of_the_policy(trained, of_two):
    with pytest.raises(ValueError, match=r", USDJPY, .* policy\.for_symbol"):
        load_policy(of_two[0]).act(np.zeros(228), np.ones(7, bool))
    for path in (trained[0], of_two[0]):
        with pytest.raises(ConfigError, match=r"GBPUSD: .*normalise_per_symbol"):
            load_policy(path, "GBPUSD")
    common = load_policy(of_two[0] / "common")
    assert common.for_symbol("GBPUSD") is common
