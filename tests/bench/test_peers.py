"""Learners of others on our environment: the adapter, what is left out and why, and each of them at
a small size.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from bench import harness, peers, setting
from bench.catalogue import FETCH_PUREJAXRL, PUREJAXRL_COMMIT, Options
from bench.learning import learning_of
from bench.peers import OLD_ID, offered
from tests.extras import INSTALL, needed
from tests.interop.interfaces import (
    ENV,
    NUM_ENVS,
    PARAMS,
    SEED,
    STEPS,
    assert_equal_bits,
    native,
)
from tests.messages import refused
from tests.reading import ROOT

PPO = {
    "num_envs": 4,
    "num_steps": 32,
    "num_minibatches": 4,
    "num_epochs": 2,
    "normalise_observations": False,
}


def test_the_adapter_looks_like_the_old_gymnax():
    with offered(ENV, PARAMS) as name:
        env, params = gymnax.make(name)
    assert (name, params is PARAMS) == (OLD_ID, True)
    assert isinstance(env.action_space(params), spaces.Discrete)
    assert isinstance(env.observation_space(params), spaces.Box)
    assert env.action_space(params).n == env.num_actions == ENV.num_actions
    assert env.observation_space(params).shape == (ENV.observation_size,)
    with refused("only inside", kind=RuntimeError):
        gymnax.make(OLD_ID)


CHECKOUT = {
    "wrappers.py": """
import navix
from brax import envs
from brax.envs.wrappers.training import AutoResetWrapper, EpisodeWrapper
""",
    "ppo.py": """
import pathlib

import gymnax
import jax
import wrappers

ACTIONS = pathlib.Path(__file__).with_name("actions.npy")
SEED = 11

def make_train(config):
    env, params = gymnax.make(config["ENV_NAME"])
    envs = config["NUM_ENVS"]

    def train(key):
        seeds = jax.vmap(jax.random.key)(SEED + jax.numpy.arange(envs))
        observation, state = jax.vmap(env.reset, (0, None))(seeds, params)

        def step(carry, actions):
            observation, state = carry
            following, state, reward, done, info = jax.vmap(env.step, (None, 0, 0, None))(key, state, actions, params)
            assert info == {}
            return (following, state), (observation, reward, done)

        return jax.lax.scan(step, (observation, state), jax.numpy.load(ACTIONS))[1]

    return train
""",
}


@pytest.fixture
def checkout(tmp_path):
    """A learner that imports what PureJaxRL imports, and takes the actions of `native`."""
    (tmp_path / "purejaxrl").mkdir()
    for name, text in CHECKOUT.items():
        (tmp_path / "purejaxrl" / name).write_text(text)
    np.save(tmp_path / "purejaxrl" / "actions.npy", native().action)
    return tmp_path


@pytest.mark.slow
def test_a_checkout_runs_unchanged_on_the_environment_without_masks(checkout):
    before, path = set(sys.modules), list(sys.path)
    config = setting.config(ppo=PPO | {"num_envs": NUM_ENVS, "num_steps": STEPS})
    world = setting.World(config, ENV, PARAMS, None, None)
    train = peers.purejaxrl(learning_of(config), world, 1, checkout)
    assert not {"wrappers", "brax", "navix"} & (set(sys.modules) - before)
    assert sys.path == path

    expected = native()
    done = expected.terminated | expected.truncated
    assert min(expected.illegal.sum(), expected.terminated.sum(), expected.truncated.sum()) > 10
    replayed = train(jax.random.key(SEED), PARAMS)
    for name, ours, theirs in zip(
        ("observation", "reward", "done"),
        replayed,
        (expected.observation, expected.reward, done),
        strict=True,
    ):
        assert_equal_bits(ours, theirs, name)
    # Market and rules are arguments of the program, not constants in it.
    doubled = jax.tree.map(lambda weight: 2.0 * weight, PARAMS.reward_weights)
    again = train(jax.random.key(SEED), PARAMS.replace(reward_weights=doubled))
    assert_equal_bits(again[1], 2.0 * expected.reward, "reward")


def test_what_cannot_run_is_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    small = setting.config(ppo=PPO)
    reasons = peers.left_out(learning_of(small), Options())
    assert set(reasons) == {"purejaxrl", "rejax", "sbx"} == set(peers.DIFFERENCES)
    assert FETCH_PUREJAXRL in reasons["purejaxrl"]
    assert "--purejaxrl" in reasons["purejaxrl"]
    assert "not installed" in reasons["rejax"]
    assert "distrax" in peers.left_out(learning_of(small), Options(purejaxrl=tmp_path))["purejaxrl"]

    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    assert peers.left_out(learning_of(small), Options(purejaxrl=tmp_path)) == {}
    wide = setting.config(ppo=PPO | {"hidden": (256, 128)})
    assert peers.left_out(learning_of(wide), Options(purejaxrl=tmp_path)) == {}
    normalised = setting.config(ppo=PPO | {"normalise_observations": True})
    found = peers.left_out(learning_of(normalised), Options(purejaxrl=tmp_path))
    assert set(found) == {"purejaxrl", "rejax", "sbx"}
    assert all("ppo.normalise_observations = True" in reason for reason in found.values())


def test_a_path_that_is_no_checkout_is_an_error(tmp_path):
    with refused("purejaxrl/ppo.py"):
        peers.load(tmp_path)


def test_the_page_says_how_to_fetch_what_is_no_package():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for text in (page, peers.__doc__ or ""):
        assert "git clone https://github.com/luchris429/purejaxrl" in text
        assert f"git -C purejaxrl checkout {PUREJAXRL_COMMIT[:7]}" in text
        assert "--purejaxrl purejaxrl" in text


@pytest.fixture(scope="module")
def options():
    """With the PureJaxRL checkout that the environment variable names."""
    path = os.environ.get("JAXTRADE_PUREJAXRL")
    return Options(quick=True, repeats=1, purejaxrl=Path(path) if path else None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["purejaxrl", "rejax", "sbx"])
def test_a_peer_trains(name, options, monkeypatch):
    world = setting.world(2, ppo=PPO)
    if reason := peers.left_out(learning_of(world.config), options).get(name):
        pytest.skip(f"{name}: {reason} (in tests: {INSTALL}; JAXTRADE_PUREJAXRL=purejaxrl)")
    others = dict.fromkeys({"purejaxrl", "rejax", "sbx"} - {name}, "not asked for")
    monkeypatch.setattr(peers, "left_out", lambda config, options: others)
    with ExitStack() as stack:
        sides, left_out = peers.sides(world.config, world, 2, options, stack)
        assert (list(sides), left_out) == ([name], others)
        assert sides[name].steps == 2 * 4 * 32  # of two updates
        assert harness.compare(sides, 1)[name]["steps_per_cpu_second"] > 0


def test_the_widths_are_the_configurations():
    needed("distrax")
    network = peers.sized((9, 6, 4))(3, activation="relu")
    shapes = jax.tree.map(jnp.shape, network.init(jax.random.key(0), jnp.zeros(5))["params"])
    assert [shapes[f"Dense_{i}"]["kernel"] for i in range(8)] == [
        (5, 9),
        (9, 6),
        (6, 4),
        (4, 3),
        (5, 9),
        (9, 6),
        (6, 4),
        (4, 1),
    ]


@pytest.mark.slow
def test_temporaries_are_those_of_the_compiled_program(options):
    world = setting.world(2, ppo=PPO | {"num_envs": 64})
    found, left_out = peers.compiled_temporaries(world.config, world, options)
    assert set(found) == {"jaxtrade", "purejaxrl", "rejax"} - set(left_out)
    observations = 64 * 32 * 228 * 4  # bytes that a peer stores, and shuffles a copy of
    for name in set(found) - {"jaxtrade"}:
        assert found[name]["temporaries"] > 2 * observations
    assert 0 < found["jaxtrade"]["temporaries"] < 2 * observations
