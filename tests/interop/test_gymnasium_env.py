"""The gymnasium interface: gymnasium's own checks, seeds, places to start, what is refused."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

from jaxtrade.env.state import EndReason
from jaxtrade.errors import ConfigError
from jaxtrade.interop.gymnasium_env import GymnasiumTradingVec, to_gymnasium, to_gymnasium_vec
from jaxtrade.interop.registration import register_envs
from jaxtrade.interop.world import ENV_ID, load_world
from tests.interop.interfaces import ENV, NUM_ENVS, PARAMS

FIRST = (
    20  # first decision bar of session 0 in tests.interop.interfaces; sessions are 110 bars apart
)


@pytest.fixture
def env():
    return to_gymnasium(ENV, PARAMS)


@pytest.mark.slow
def test_gymnasiums_check_finds_nothing():
    """Made by name, so that the spec is checked too; a warning is an error."""
    register_envs()
    made = gymnasium.make(ENV_ID, overrides=("env.window=5",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)
    vector = gymnasium.make_vec(ENV_ID, num_envs=2, overrides=("env.window=5",), split="test")
    assert isinstance(vector.unwrapped, GymnasiumTradingVec)
    assert vector.num_envs == 2


@pytest.mark.slow
def test_importing_the_door_registers_it():
    code = (
        f"import gymnasium\ntry:\n    gymnasium.spec('{ENV_ID}')\n    raise SystemExit('known before')\n"
        "except gymnasium.error.NamespaceNotFound:\n    pass\n"
        f"import importlib; importlib.import_module('jaxtrade.interop.gymnasium_env'); gymnasium.spec('{ENV_ID}')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_same_seed_is_the_same_episode(env):
    first, info = env.reset(seed=4)
    second, again = env.reset(seed=4)
    np.testing.assert_array_equal(first, second)
    assert info["row"] == again["row"]
    rows = [env.reset()[1]["row"] for _ in range(5)]
    assert len(set(rows)) > 2, "without a seed the starts go on"
    env.reset(seed=4)
    assert [env.reset()[1]["row"] for _ in range(5)] == rows
    assert env.reset(seed=5)[1]["row"] != info["row"]


def test_the_last_info_has_the_trades_that_made_the_equity(env):
    random, seen = np.random.default_rng(0), 0
    _, info = env.reset(seed=2)
    while "end" not in info:
        assert "trades" not in info
        *_, info = env.step(random.choice(np.flatnonzero(info["action_mask"])))
    for each in info["trades"]:
        assert each["quantity"] > 0
        assert each["entry_row"] <= each["exit_row"]
        seen += 1
    assert seen > 1
    assert info["end"] == EndReason(info["end_reason"]).name
    assert 1000 * sum(each["net"] for each in info["trades"]) == pytest.approx(info["equity"])
    env.reset()
    assert "trades" not in env.step(0)[-1]


@pytest.mark.slow
def test_arrays_are_the_callers(env):
    observation, info = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert observation.flags.writeable
    kept = observation.copy()
    env.step(0)
    np.testing.assert_array_equal(observation, kept)
    assert type(info["row"]) is int


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"session": 2}, 2 * 110 + FIRST),
        ({"session": 2, "row": 250}, 250),
        ({"row": 250}, 250),
        ({"session": "2013-10-23"}, 110 + FIRST),  # worlds: sessions are days from 16,000 on
    ],
)
def test_a_place_to_start(env, options, row):
    assert env.reset(seed=1, options=options)[1]["row"] == row
    assert env.reset(options=options)[1]["row"] == row
    vector = to_gymnasium_vec(ENV, PARAMS, NUM_ENVS)
    np.testing.assert_array_equal(
        vector.reset(seed=1, options=options)[1]["row"], np.full(NUM_ENVS, row)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sesion": 2}, "reset option 'sesion': unknown"),
        ({"session": 8}, r"this split has sessions 0 \.\. 7"),
        ({"session": "2020-01-01"}, r"not among 2013-10-22 \.\. 2013-10-29"),
        ({"session": 1, "row": 5}, r"session 1 has decision bars 130 \.\. 209"),
        ({"row": 5}, r"decision bar .*8 sessions"),
    ],
)
def test_a_place_that_is_none_is_refused(env, options, words):
    env.reset(seed=1)
    before = env.action_masks()
    with pytest.raises(ConfigError, match=words):
        env.reset(options=options)
    np.testing.assert_array_equal(env.action_masks(), before)


@pytest.mark.slow
def test_steps_that_have_no_meaning_are_refused(env):
    for call in (lambda: env.step(0), env.action_masks):
        with pytest.raises(ResetNeeded):
            call()
    env.reset(seed=0)
    for action in (7, -1, 0.5, "BUY"):
        with pytest.raises(InvalidAction):
            env.step(action)
    while True:
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            break
    with pytest.raises(ResetNeeded, match="after the episode's end"):
        env.step(0)
    assert env.render() is None
    env.close()


def test_vector_steps_that_have_no_meaning_are_refused():
    env = to_gymnasium_vec(ENV, PARAMS, NUM_ENVS)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(NUM_ENVS, int))
    env.reset(seed=list(range(NUM_ENVS)))
    for actions in (
        np.zeros(NUM_ENVS),
        np.zeros(NUM_ENVS - 1, int),
        np.full(NUM_ENVS, 7),
        np.full(NUM_ENVS, -1),
    ):
        with pytest.raises(InvalidAction):
            env.step(actions)
    with pytest.raises(AttributeError, match="only action_masks"):
        env.call("render_mode")
    with pytest.raises(ConfigError, match=r"expected 8 of 0 \.\."):
        env.reset(seed=[1, 2])
    with pytest.raises(ConfigError, match="num_envs = 0"):
        to_gymnasium_vec(ENV, PARAMS, 0)


def test_worlds_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"'tests': .*train, validation, test"):
        load_world(split="tests")
    with pytest.raises(ConfigError, match=r"split.validation_sessions = 0"):
        load_world(split="validation")
