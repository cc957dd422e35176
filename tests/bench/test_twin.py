"""The NumPy twin of the benches is the JAX environment: replayed step by step, with every kind of event."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

from bench import setting, tape, twin
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.money import tick_mills
from jaxtrade.env.state import OFF, BracketParams, EndReason, EnvParams, ExitReason, StopKind, Trailing
from jaxtrade.errors import ConfigError
from tests.env import worlds

SESSIONS, ENVS, STEPS = 4, 16, 400
WILD = 0.04  # share of actions drawn without a look at the mask
TOLERANCE = 1e-5  # relative to max(1, |x|)
SMALL = worlds.rules(drawdown=400_000, daily_loss=150_000, target=250_000, floor_cap=100_000, min_days=1)
ACCOUNTS = {  # on what the bench trades, or with small limits on a market made rough
    "default": None,
    "lock": SMALL,
    "fail": SMALL.replace(fail_on_daily_loss=jnp.bool_(True), trailing=worlds.i32(Trailing.END_OF_DAY),
                          min_days=worlds.i32(2)),
    "static": worlds.rules(drawdown=150_000, trailing=Trailing.STATIC),
    "off": worlds.rules(target=150_000, stop_at_target=False, max_contracts=1),
}


@pytest.fixture(scope="module")
def world() -> setting.World:
    return setting.world(SESSIONS)


def variant(world: setting.World, name: str) -> EnvParams:
    """The bench's own parameters, or with another account, several sessions, and data that end inside one; "static"
    with stops and targets so near that one bar touches both."""
    account = ACCOUNTS[name]
    if account is None:
        return world.params
    sessions = world.params.market.sessions
    market = world.params.market.replace(sessions=sessions.replace(complete=jnp.arange(SESSIONS) != 1))
    params = world.params.replace(market=market, account=account, episode_sessions=worlds.i32(3))
    if name != "static":
        return params
    return params.replace(max_steps=worlds.i32(150), contract=params.contract.replace(min_stop=worlds.i32(2)),
                          brackets=BracketParams(*map(worlds.i32, (300, 1, 300))))


@partial(jax.jit, static_argnums=0, compiler_options=worlds.FAST_COMPILE)
def play(env: TradingEnv, params: EnvParams, slots: jax.Array, rows: jax.Array, key: jax.Array) -> dict[str, Any]:
    """[STEPS, ENVS, ...]: where each step stood, what was seen and legal, the action, and what came of it."""
    states = jax.vmap(lambda slot, row, seed: env.reset_at(params, slot, row, seed))(slots, rows, jnp.arange(ENVS))

    def one(state: Any, chances: jax.Array) -> Any:
        ref = env.ref(state, params)
        wild = jnp.int32(chances[1] * 7)
        action = jnp.where(chances[2] < WILD, wild, worlds.pick(ref.mask, chances[0]))
        following, _, outcome = env.step(key, state, action, params)
        event = outcome.info.event
        left = jnp.where(event.order_exit_quantity != 0, jnp.int32(ExitReason.ORDER), event.exit_reason)
        return following, {
            "slot": state.slot, "row": state.row, "time": state.time, "mask": ref.mask, "action": action,
            "observation": env.observe(ref, params), "final": env.observe(outcome.final_ref, params),
            "reward": outcome.reward, "terminated": outcome.terminated, "truncated": outcome.truncated,
            "end": outcome.info.end, "equity": outcome.info.equity, "exit": left, "illegal": outcome.info.illegal,
            "locked": following.account.locked}

    chances = jax.random.uniform(key, (STEPS, ENVS, 3))
    return jax.lax.scan(lambda states, drawn: jax.vmap(one)(states, drawn), states, chances)[1]


@pytest.fixture(scope="module")
def played(world: setting.World) -> Callable[[str], dict[str, np.ndarray]]:
    """Variant -> `play` from starts all over the split, on the host."""
    return functools.cache(lambda name: _played(world, variant(world, name)))


def _played(world: setting.World, params: EnvParams) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    slots = rng.integers(0, SESSIONS, ENVS)
    first, last = (np.asarray(x)[slots] for x in (params.market.sessions.first, params.market.sessions.last))
    rows = rng.integers(first, last + 1)
    return jax.device_get(play(world.env, params, jnp.asarray(slots), jnp.asarray(rows), jax.random.key(0)))


def far(ours: Any, theirs: Any) -> bool:
    return not np.all(np.abs(ours - theirs) <= TOLERANCE * np.maximum(1, np.abs(theirs)))


def differing(env: twin.Twin, reported: dict[str, np.ndarray], lane: int, kinds: Counter[str]) -> str | None:
    """Replay one environment -> its first difference."""
    seen = np.empty(0)
    for step in range(STEPS):
        then = {name: values[step, lane] for name, values in reported.items()}
        if then["time"] == 0:
            seen, _ = env.reset(options={"slot": then["slot"], "row": then["row"]})
        if env.row != then["row"] or far(seen, then["observation"]):
            return f"step {step}: row {env.row}, not {then['row']}, or observations differ"
        if not np.array_equal(env.action_masks(), then["mask"]):
            return f"step {step}: masks {env.action_masks()}, {then['mask']}"
        refused = env.illegal
        seen, reward, terminated, truncated, info = env.step(then["action"])
        ours = (terminated, truncated, info.get("end_reason", 0), env.equity, env.exit_reason, env.illegal - refused)
        theirs = tuple(then[name].item() for name in ("terminated", "truncated", "end", "equity", "exit", "illegal"))
        if ours != theirs:
            return f"step {step}: {ours}, not {theirs}"
        if far(reward, then["reward"]) or (theirs[2] and far(seen, then["final"])):
            return f"step {step}: reward {reward}, {then['reward']}, or last observations differ"
        kinds.update([f"end_{EndReason(theirs[2]).name}", f"exit_{ExitReason(theirs[4]).name}"])
        kinds.update(illegal=ours[5], locked=int(then["locked"]))
    return None


def compare(env: twin.Twin, reported: dict[str, np.ndarray]) -> tuple[str | None, Counter[str]]:
    """-> (first difference of any environment, how often each kind of event was replayed)."""
    kinds: Counter[str] = Counter()
    faults = (differing(env, reported, lane, kinds) for lane in range(ENVS))
    return next((fault for fault in faults if fault), None), kinds


SEEN = {  # kinds of events that a variant must have had
    "default": "illegal exit_ORDER exit_STOP exit_BREAKEVEN exit_TRAIL exit_TARGET exit_FLAT end_SESSION_END",
    "lock": "illegal locked exit_LIQUIDATION end_BUST end_TARGET end_END_OF_DATA end_SESSION_END",
    "fail": "illegal exit_LIQUIDATION end_DAILY_LOSS end_TARGET end_END_OF_DATA",
    "static": "exit_LIQUIDATION end_BUST end_STEP_LIMIT end_END_OF_DATA end_SESSION_END",
    "off": "exit_STOP exit_TRAIL exit_FLAT end_SESSION_END",
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_replays_the_environment(world: setting.World, played: Any, name: str) -> None:
    """6,400 steps: masks, ends, exits and mills equal, every slot and the reward within 1e-5."""
    fault, kinds = compare(twin.Twin(tape.make_tape(world.config.env, variant(world, name))), played(name))
    assert fault is None
    assert not [kind for kind in SEEN[name].split() if not kinds[kind]], kinds


FAULTS = {  # source of `Twin.step` -> what is planted in its place, in the variant "static"
    "if low <= nearest:": "if low <= nearest and not touched:",  # the target first
    "stop < entry + be_ticks < close": "stop < entry + be_ticks <= close",
    "open_ - bracket[4]": "entry - bracket[4]",
    "(at - self._opened + 1)": "(at - self._opened)",
}


@pytest.mark.parametrize("old", FAULTS)
def test_a_planted_fault_is_found(world: setting.World, played: Any, old: str) -> None:
    source = textwrap.dedent(inspect.getsource(twin.Twin.step))
    assert source.count(old) == 1, "the planted fault has to follow the source"
    found: dict[str, Any] = {}
    exec(source.replace(old, FAULTS[old]), vars(twin) | {"__builtins__": __builtins__}, found)
    faulty = type("Faulty", (twin.Twin,), {"step": found["step"]})
    fault, _ = compare(faulty(tape.make_tape(world.config.env, variant(world, "static"))), played("static"))
    assert fault is not None


def test_the_ids_are_the_environments() -> None:
    assert [Action[name] for name in ("HOLD", "BUY", "SELL", "MOVE_STOP_TO_BREAKEVEN", "ENABLE_TRAIL", "DISABLE_TRAIL",
                                      "CLOSE")] == [getattr(twin, action.name) for action in Action] == list(range(7))
    for names, prefix in ((ExitReason, "BY_"), (EndReason, ""), (StopKind, "")):
        for reason in list(names)[1:]:
            assert getattr(twin, prefix + reason.name) == reason
    assert (tape.OFF, tape.INTRADAY, tape.END_OF_DAY) == (OFF, Trailing.INTRADAY, Trailing.END_OF_DAY)


@pytest.fixture
def env(world: setting.World) -> twin.Twin:
    return twin.Twin(tape.make_tape(world.config.env, world.params))


def test_gymnasiums_check_finds_nothing(env: twin.Twin) -> None:
    made = gymnasium.make(EnvSpec("bench/Twin-v0", entry_point=lambda **_: env), disable_env_checker=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)


def test_starts_are_drawn_from_all_decision_bars(world: setting.World, env: twin.Twin) -> None:
    rows = [env.reset(seed=7)[1]["row"], *(env.reset()[1]["row"] for _ in range(199))]
    assert [env.reset(seed=7)[1]["row"], *(env.reset()[1]["row"] for _ in range(199))] == rows
    sessions = world.params.market.sessions
    first, last = np.asarray(sessions.first), np.asarray(sessions.last)
    slots = [int(np.flatnonzero((first <= row) & (row <= last)).item()) for row in rows]
    assert min(Counter(slots).values()) > 25
    assert len(set(rows)) > 150


def test_what_it_refuses(world: setting.World, env: twin.Twin) -> None:
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(ResetNeeded):
        env.action_masks()
    for options in ({"slot": SESSIONS, "row": 0}, {"slot": 0, "row": 0}, {"row": 1}):
        with pytest.raises(ConfigError, match="reset option"):
            env.reset(options=options)
    env.reset(seed=0)
    for action in (-1, 7):
        with pytest.raises(InvalidAction):
            env.step(action)
    with pytest.raises(TypeError):
        env.step(1.5)
    other = world.params.replace(reward_weights={"win": jnp.float32(1)})
    config = world.config.env.model_copy(update={"intrabar": "nearer_extreme", "scaling": "seed"})
    with pytest.raises(ConfigError, match=r"scaling = seed .*intrabar = nearer_extreme .*reward terms win"):
        tape.make_tape(config, other)


def test_an_order_is_cut_to_the_accounts_contracts(world: setting.World) -> None:
    account = world.params.account.replace(max_contracts=worlds.i32(2))
    config, params = world.config.env.model_copy(update={"quantity": 5}), world.params.replace(account=account)
    assert tape.rules_of(config, params).worth == 2 * tick_mills(params.contract)


def test_a_process_that_steps_it_has_no_jax(env: twin.Twin, tmp_path: Path) -> None:
    path = tmp_path / "tape.npz"
    tape.save(env._tape, path)
    code = ("import sys\nfrom bench import tape, twin\nenv = twin.Twin(tape.load(sys.argv[1]))\nenv.reset(seed=0)\n"
            "env.step(0)\nassert 'jax' not in sys.modules, 'JAX was imported'")
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=120, cwd=Path(twin.__file__).parents[1])
    loaded = tape.load(str(path))
    assert repr(loaded[:2]) == repr(env._tape[:2])
    for ours, theirs in zip(loaded.bars, env._tape.bars, strict=True):
        assert repr(ours[:-1]) == repr(theirs[:-1])
        assert np.array_equal(ours.seen, theirs.seen)
