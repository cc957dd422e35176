"""No look-ahead: what is known at the close of bar t does not depend on any later bar.

Truncation, perturbation (the bars after t replaced by others) and, for the observation, the
Jacobian with respect to the float table. Every detector is pointed at a planted leak of its own and
has to find it.
"""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import (
    CONTEXT_FEATURES,
    SEED_FEATURES,
    context_column,
    context_features,
    table_columns,
)
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.data.read.validate import Side
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reward_presets import of_one_symbol
from jaxtrade.env.state import Trailing
from jaxtrade.types import TickValue
from tests import compiling
from tests.env import worlds
from tests.env.worlds import i32, leaves_differ, make_params, rules
from tests.paths import random_paths
from tests.quotes import random_ask

ALL_FEATURES = (
    *dict.fromkeys(SEED_FEATURES + CONTEXT_FEATURES),
    "sma_7",
    "ema_9",
    "rsi_10",
    "atr_8",
)
KNOWN_AT_CLOSE = ("tr_sum", "bars_to_flat")  # integer columns besides the bar itself


# ---- the market's columns


def config_for(market):
    symbol = market.removesuffix("-roll").removesuffix("-advised")
    env = {"task": "advised"} if market.endswith("-advised") else {"features": list(ALL_FEATURES)}
    return make_config({"data": {"market": symbol}, "env": env})


@functools.cache
def real_bars(market):
    market = market.removesuffix("-advised")
    contract = get_contract(market.removesuffix("-roll"))
    if market in ("NQ", "USDJPY"):
        return synthetic_bars(contract, 4, seed=5)
    if market == "ES-roll":  # March's contract from 2013-12-19 on
        return load_bundled(contract, roll="volume", start="2013-12-02", end="2013-12-20")
    bars = load_bundled(contract)
    return bars.rows(slice(0, 5_000))


def truncated(bars, cut):
    return bars.rows(slice(0, cut + 1))


def perturbed(bars, cut, seed=0):
    """The same stamps; after `cut` other prices (on another level) and other volumes."""
    rng = np.random.default_rng([seed, cut])
    later = len(bars) - cut - 1
    walk = int(bars.close[cut]) + 40 + np.cumsum(rng.integers(-9, 10, later + 1))
    columns = {
        "open": walk[:-1],
        "close": walk[1:],
        "high": np.maximum(walk[:-1], walk[1:]) + rng.integers(0, 9, later),
        "low": np.minimum(walk[:-1], walk[1:]) - rng.integers(0, 9, later),
        "volume": rng.integers(0, 9_000, later),
    }
    made = replace(
        bars,
        **{
            name: np.concatenate(
                [getattr(bars, name)[: cut + 1], new.astype(getattr(bars, name).dtype)]
            )
            for name, new in columns.items()
        },
    )
    if bars.ask is None:
        return made
    later_ask = [
        np.append(old[: cut + 1], new[cut + 1 :] + 17).astype(old.dtype)
        for old, new in zip(bars.ask, (made.open, made.high, made.low, made.close), strict=True)
    ]
    return replace(made, ask=Side(*later_ask))


def columns_of(market):
    named = {name: market.table[:, i] for i, name in enumerate(market.columns)}
    if market.data.view.context is not None:  # as it is shown, in place of what that was made from
        named |= {
            context_column(name): np.asarray(market.data.view.context[:, i])
            for i, name in enumerate(CONTEXT_FEATURES)
        }
    value = market.data.tick_value
    if value is not None:
        named["tick_value"] = np.asarray(value.times, np.int64) / np.asarray(value.over)
    return named | {name: np.asarray(getattr(market.data, name)) for name in KNOWN_AT_CLOSE}


@functools.cache
def real_columns(market):
    return columns_of(build_market(real_bars(market), config_for(market)))


def leaking_columns(
    full,
    bars,
    config,
    cuts,
    change,
):
    """Columns whose bytes at rows <= cut differ from those of the `full` market once the bars after
    the cut are changed."""
    found = set()
    for cut in cuts:
        other = columns_of(build_market(change(bars, cut), config))
        found |= {
            name
            for name, values in full.items()
            if values[: cut + 1].tobytes() != other[name][: cut + 1].tobytes()
        }
    return found


@functools.cache
def first_decision(market):
    bars = real_bars(market)
    return int(build_market(bars, config_for(bars.contract.symbol)).data.sessions.first[0])


def cuts_of(market, count, seed=0):
    """Rows after the first decisions, drawn at random."""
    start, end = first_decision(market) + 3, len(real_bars(market)) - 2
    return sorted(np.random.default_rng(seed).integers(start, end, count).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("change", [truncated, perturbed])
@pytest.mark.parametrize("market", ["ES", "ES-roll", "EURUSD", "NQ", "USDJPY", "NQ-advised"])
def test_columns_do_not_depend_on_later_bars(market, change):
    """Every feature and clock column, the true-range sums, the calendar's bars-to-flat and the
    money of a tick: byte-equal prefixes. Nearer the start, a window would hold later bars."""
    bars, config, full = real_bars(market), config_for(market), real_columns(market)
    assert first_decision(market) >= config.env.window
    converted = {"tick_value"} if market == "USDJPY" else set()
    columns = table_columns(config.env.features, context_features(config.env.task))
    assert set(full) == {*columns, *KNOWN_AT_CLOSE, *converted}
    assert leaking_columns(full, bars, config, cuts_of(market, 3), change) == set()


@pytest.mark.slow
@pytest.mark.parametrize("change", [truncated, perturbed])
@pytest.mark.parametrize(
    "leaks",
    [
        {"feature.macd"},
        {f"feature.sma_{n}" for n in (5, 7, 20, 50, 200)},
        {"feature.vol_percentile"},
    ],
)
def test_a_planted_feature_leak_is_found(monkeypatch, leaks, change):
    """A feature that is its own value one bar later (`shift(-1)`)."""
    honest = features.compute_feature

    def early(window, name):
        values = honest(window, name)
        leaking = f"feature.{name}" in leaks
        return np.concatenate([values[1:], values[-1:]]) if leaking else values

    bars, config, cuts = real_bars("ES"), config_for("ES"), cuts_of("ES", 3)
    monkeypatch.setattr(features, "compute_feature", early)
    full = columns_of(build_market(bars, config))
    assert leaking_columns(full, bars, config, cuts, change) == leaks


# ---- masks, observations and states along a run


@dataclass(frozen=True)
class LeakyAskEnv(TradingEnv):
    """Forbids selling before the ask rises."""

    def mask(self, state, params):
        ask = params.market.ask
        assert ask is not None
        is_sell = jnp.arange(self.num_actions) == Action.SELL
        return super().mask(state, params) & ~(
            is_sell & (ask.close[state.row + 1] > ask.close[state.row])
        )


@dataclass(frozen=True)
class LeakyWindowEnv(TradingEnv):
    """Shows the window one bar too late."""

    def observe(self, ref, params):
        return super().observe(ref.replace(row=ref.row + 1), params)


def a_bar_early(params, name):
    """A column of the market, read a bar too soon."""
    late = jax.tree.map(lambda x: jnp.roll(x, -1, axis=0), getattr(params.market, name))
    return params.replace(market=params.market.replace(**{name: late}))


@dataclass(frozen=True)
class LeakyTrailEnv(TradingEnv):
    """Plays a bar with the range of the bar after (or its rate, or the order of its seconds)."""

    column: str = "tr_sum"

    def transition(self, state, order, params):
        return super().transition(state, order, a_bar_early(params, self.column))


@dataclass(frozen=True)
class LeakyBracketEnv(TradingEnv):
    """Sizes a bracket by the range of the bar after."""

    def decode(self, action, state, params):
        return super().decode(action, state, a_bar_early(params, "tr_sum"))


@dataclass(frozen=True)
class LeakyRewardEnv(TradingEnv):
    """Pays for what the position will make in the bar after."""

    def advance(self, state, action, params):
        going_on, outcome = super().advance(state, action, params)
        close = params.market.close
        ahead = (close[going_on.row + 1] - close[going_on.row]) * going_on.position.quantity
        return going_on, outcome.replace(reward=outcome.reward + ahead)


@functools.partial(jax.jit, static_argnums=0, compiler_options=compiling.fast())
def walk(env, params, start, uniform):
    """States, masks, observations and what each action would order along one run of random legal
    actions from `start`, and the reward of the step that led to each (0 for the first), leaves
    [steps, ...]."""

    def body(carry, u):
        state, reward = carry
        ref = env.ref(state, params)
        orders = jax.vmap(env.decode, (0, None, None))(jnp.arange(env.num_actions), state, params)
        seen = {
            "state": state,
            "mask": ref.mask,
            "observation": env.observe(ref, params),
            "reward": reward,
            "orders": orders,
        }
        state, _, outcome = env.step(jax.random.key(0), state, worlds.pick(ref.mask, u), params)
        return (state, outcome.reward), seen

    return jax.lax.scan(body, (start, jnp.float32(0)), uniform)[1]


STEPS = 130
SESSIONS = worlds.even_sessions(4, 160)
HAND_BARS = worlds.random_bars(31, 640)


@functools.cache
def inside_hand_bars(seed):
    return random_paths(seed, *HAND_BARS)


def hand_params(bars, paths=(), tight=False, ask=None, ask_paths=(), **kind):
    """tight: stops and targets so near that most bars touch both."""
    if ask is None:
        market = worlds.make_market(bars, SESSIONS, paths=paths, **kind)
    else:
        market = worlds.two_sided_market(bars, ask, SESSIONS, paths=paths, ask_paths=ask_paths)
    return make_params(
        market,
        episode_sessions=2,
        brackets=(300, 1, 1000) if tight else (1500, 3, 1000),
        account=rules(drawdown=1_500_000, daily_loss=900_000, target=2_000_000),
        costs=worlds.contract(min_stop=1 if tight else 8),
    )


def ask_of(bars, seed):
    return worlds.Bars(*random_ask(seed, *bars))


def changed_after(cut, env, two_sided):
    """The hand-made market, and the same with other bars after `cut`."""
    config = env.config
    return two_markets(
        cut, config.intrabar == "path", config.scaling, config.task == "advised", two_sided
    )


@functools.cache  # the same for many environments, which are tested at the same cuts
def two_markets(cut, has_path, scaling, context, two_sided):
    other = worlds.random_bars(1_000 + cut, 640, price=20_300, step=9)
    later = worlds.replace_after(HAND_BARS, cut, other)
    if two_sided:
        ask = ask_of(HAND_BARS, 1)
        later_ask = worlds.replace_after(ask, cut, ask_of(other, 2))
        return hand_params(HAND_BARS, ask=ask), hand_params(later, ask=later_ask)
    if not has_path:
        kind = {"scaling": scaling, "context": context}
        return hand_params(HAND_BARS, **kind), hand_params(later, **kind)
    inside = inside_hand_bars(1)
    tail = random_paths(cut, *(prices[cut + 1 :].tolist() for prices in later))
    return hand_params(HAND_BARS, inside), hand_params(later, (*inside[: cut + 1], *tail))


def other_seconds_after(cut):
    """The same bars; after `cut` something else was traded inside them."""
    first, second = inside_hand_bars(1), inside_hand_bars(2)
    return [
        hand_params(HAND_BARS, inside, tight=True)
        for inside in (first, (*first[: cut + 1], *second[cut + 1 :]))
    ]


def at_own_price(params):
    """Profits in another currency, converted at the market's own price as USDJPY is: later bars
    have other rates.
    """
    times = jnp.full_like(params.market.open, 250_000_000)
    market = params.market.replace(tick_value=TickValue(times, params.market.open))
    return params.replace(market=market, contract=params.contract.replace(tick_mills=None))


def with_trailing(params, trailing):
    return params.replace(account=params.account.replace(trailing=i32(trailing)))


EVERY_TERM = {name: jnp.float32(0.1 * i) for i, name in enumerate(of_one_symbol(), 1)}
PATH = EnvConfig(intrabar="path")
# What is played, and how: keywords of `paths_differ`.
HONEST = {
    "manage": (EnvConfig(), {}),
    "entry": (EnvConfig(task="entry", mark="close"), {}),
    "advised": (EnvConfig(task="advised"), {}),
    "manage as of old": (EnvConfig(scaling="seed", mark="close"), {}),
    "path": (PATH, {}),
    "seconds of later bars": (PATH, {"only_seconds": True}),
    "two sides": (EnvConfig(), {"two_sided": True}),
    "converted": (EnvConfig(), {"alter": at_own_price}),
    "nearer extreme, every reward term": (
        EnvConfig(intrabar="nearer_extreme"),
        {"alter": lambda params: params.replace(reward_weights=EVERY_TERM)},
    ),
    "end-of-day trailing": (
        EnvConfig(),
        {"alter": functools.partial(with_trailing, trailing=Trailing.END_OF_DAY)},
    ),
}
QUICK = ("manage", "entry", "advised")
# A leak, the part of a run that tells it, at how many of 25 cuts at least, and how it is played. Most
# cuts fall where no position is open.
PLANTED = [
    (LeakyWindowEnv(EnvConfig()), "observation", 5, {}),
    (LeakyRewardEnv(EnvConfig()), "reward", 5, {}),
    (LeakyBracketEnv(EnvConfig()), "orders", 5, {}),
    (LeakyAskEnv(EnvConfig()), "mask", 5, {"two_sided": True}),
    (LeakyTrailEnv(EnvConfig(), column="tick_value"), "state", 3, {"alter": at_own_price}),
    (LeakyTrailEnv(PATH, column="path"), "state", 2, {"only_seconds": True}),
]


def paths_differ(
    env,
    cut,
    slot=1,
    seed=0,
    two_sided=False,
    only_seconds=False,
    alter=lambda params: params,
):
    """Parts of a run (what `walk` gives) whose bytes at rows <= cut change with the bars after
    it.
    """
    pair = other_seconds_after(cut) if only_seconds else changed_after(cut, env, two_sided)
    full, changed = map(alter, pair)
    first = int(full.market.sessions.first[slot])
    start = env.reset_at(full, slot, first)
    uniform = jax.random.uniform(jax.random.key(seed), (STEPS,))
    runs = [walk(env, params, start, uniform) for params in (full, changed)]
    known = np.asarray(runs[0]["state"].row) <= cut
    # rows are compared where both runs can be: the run is honest up to the first row after the cut
    count = len(known) if known.all() else int(np.argmin(known))
    assert count > 0
    return {
        name
        for name in runs[0]
        if leaves_differ(
            *(jax.tree.map(lambda x: np.asarray(x)[:count], run[name]) for run in runs)
        )
    }


def hand_cuts(count):
    first, last = SESSIONS[1].first, SESSIONS[1].last
    return np.linspace(first + 2, last, count).astype(int).tolist()


def differing(env, **kind):
    """Of 25 cuts: the parts of a run that the bars after the cut change."""
    return [paths_differ(env, cut, seed=n, **kind) for n, cut in enumerate(hand_cuts(25))]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in HONEST],
)
def test_masks_observations_states_and_rewards_do_not_depend_on_later_bars(name):
    config, kind = HONEST[name]
    assert differing(TradingEnv(config), **kind) == [set()] * 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "seen", "least", "kind"), PLANTED, ids=lambda value: type(value).__name__
)
def test_a_planted_leak_along_a_run_is_found(env, seen, least, kind):
    assert sum(seen in parts for parts in differing(env, **kind)) >= least
