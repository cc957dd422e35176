"""The NumPy twin of the benches is the JAX environment: replayed step by step, with every kind of
event.
"""

import functools
import warnings
from collections import Counter
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

from bench import correctness, setting, twin
from jaxtrade.env.rules import tick_mills
from jaxtrade.env.state import (
    BracketParams,
    Trailing,
)
from tests import compiling
from tests.children import run_python
from tests.env import worlds
from tests.messages import refused

SESSIONS, ENVS, STEPS = 4, 16, 400
SMALL = worlds.rules(
    drawdown=400_000, daily_loss=150_000, target=250_000, floor_cap=100_000, min_days=1
)
ACCOUNTS = {  # on what the bench trades, or with small limits on a market made rough
    "default": None,
    "lock": SMALL,
    "fail": SMALL.replace(
        fail_on_daily_loss=jnp.bool_(True),
        trailing=worlds.i32(Trailing.END_OF_DAY),
        min_days=worlds.i32(2),
    ),
    "static": worlds.rules(drawdown=150_000, trailing=Trailing.STATIC),
    "off": worlds.rules(target=150_000, stop_at_target=False, max_contracts=1),
}


@pytest.fixture(scope="module")
def world():
    return setting.world(SESSIONS)


def variant(world, name):
    """The bench's own parameters, or with another account, several sessions, and data that end
    inside one; "static" with stops and targets so near that one bar touches both."""
    account = ACCOUNTS[name]
    if account is None:
        return world.params
    sessions = world.params.market.sessions
    market = world.params.market.replace(
        sessions=sessions.replace(complete=jnp.arange(SESSIONS) != 1)
    )
    params = world.params.replace(market=market, account=account, episode_sessions=worlds.i32(3))
    if name != "static":
        return params
    return params.replace(
        max_steps=worlds.i32(150),
        contract=params.contract.replace(min_stop=worlds.i32(2)),
        brackets=BracketParams(*map(worlds.i32, (300, 1, 300))),
    )


PLAY = jax.jit(correctness.play, static_argnums=(0, 5), compiler_options=compiling.fast())


@pytest.fixture(scope="module")
def played(world):
    """Variant -> `correctness.play` from starts all over the split, on the host."""
    return functools.cache(
        lambda name: correctness.played(world.env, variant(world, name), ENVS, STEPS, PLAY)
    )


SEEN = {  # kinds of events that a variant must have had
    "default": "illegal exit_ORDER exit_STOP exit_BREAKEVEN exit_TRAIL exit_TARGET exit_FLAT end_SESSION_END",
    "lock": "illegal locked exit_LIQUIDATION end_BUST end_TARGET end_END_OF_DATA end_SESSION_END",
    "fail": "illegal exit_LIQUIDATION end_DAILY_LOSS end_TARGET end_END_OF_DATA",
    "static": "exit_LIQUIDATION end_BUST end_STEP_LIMIT end_END_OF_DATA end_SESSION_END",
    "off": "exit_STOP exit_TRAIL exit_FLAT end_SESSION_END",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCOUNTS)
def test_replays_the_environment(world, played, name):
    """6,400 steps: masks, ends, exits and mills equal, every slot and the reward within 1e-5."""
    fault, kinds, _ = correctness.compare(
        twin.Twin(twin.make_tape(world.config.env, variant(world, name))), played(name)
    )
    assert fault is None
    assert not [kind for kind in SEEN[name].split() if not kinds[kind]], kinds


@pytest.mark.slow
def test_other_rules_are_found(world, played):
    params = variant(world, "static")
    contract = params.contract.replace(slippage=params.contract.slippage + 1)
    other = twin.Twin(twin.make_tape(world.config.env, params.replace(contract=contract)))
    fault, _, _ = correctness.compare(other, played("static"))
    assert fault is not None


@pytest.fixture
def env(world):
    return twin.Twin(twin.make_tape(world.config.env, world.params))


def test_gymnasiums_check_finds_nothing(env):
    made = gymnasium.make(
        EnvSpec("bench/Twin-v0", entry_point=lambda **_: env), disable_env_checker=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)


def test_starts_are_drawn_from_all_decision_bars(world, env):
    rows, again = (
        [env.reset(seed=None if i else 7)[1]["row"] for i in range(200)] for _ in range(2)
    )
    assert again == rows
    sessions = world.params.market.sessions
    first, last = np.asarray(sessions.first), np.asarray(sessions.last)
    slots = [int(np.flatnonzero((first <= row) & (row <= last)).item()) for row in rows]
    assert min(Counter(slots).values()) > 25
    assert len(set(rows)) > 150


def test_what_it_refuses(world, env):
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(ResetNeeded):
        env.action_masks()
    for options in ({"slot": SESSIONS, "row": 0}, {"slot": 0, "row": 0}, {"row": 1}):
        with refused("reset option"):
            env.reset(options=options)
    env.reset(seed=0)
    for action in (-1, 7):
        with pytest.raises(InvalidAction):
            env.step(action)
    with pytest.raises(TypeError):
        env.step(1.5)
    other = world.params.replace(reward_weights={"win": jnp.float32(1)})
    config = world.config.env.model_copy(update={"intrabar": "nearer_extreme", "scaling": "seed"})
    with refused("scaling ", "intrabar ", " win"):
        twin.make_tape(config, other)


def test_an_order_is_cut_to_the_accounts_contracts(world):
    account = world.params.account.replace(max_contracts=worlds.i32(2))
    config, params = (
        world.config.env.model_copy(update={"quantity": 5}),
        world.params.replace(account=account),
    )
    assert twin.rules_of(config, params).worth == 2 * tick_mills(params.contract)


def test_a_process_that_steps_it_has_no_jax(env, tmp_path):
    path = tmp_path / "tape.npz"
    twin.save(env._tape, path)
    code = (
        "import sys\nfrom bench import twin\nenv = twin.Twin(twin.load(sys.argv[1]))\nenv.reset(seed=0)\n"
        "env.step(0)\nassert 'jax' not in sys.modules, 'JAX was imported'"
    )
    run_python("-c", code, str(path), check=True, timeout=120, cwd=Path(twin.__file__).parents[1])
    loaded = twin.load(str(path))
    assert repr(loaded[:2]) == repr(env._tape[:2])
    for ours, theirs in zip(loaded.bars, env._tape.bars, strict=True):
        assert repr(ours[:-1]) == repr(theirs[:-1])
        assert np.array_equal(ours[-1], theirs[-1])
