"""The oracle and the JAX environment agree: masks, ends, ticks and mills equal, observations and
rewards to 1e-5.

Each account preset of each unit is played with random, mostly legal actions over random markets; then
the events that happened are counted.
"""

import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import AccountConfig
from jaxtrade.config.accounts import PRESETS as SHIPPED_PRESETS
from jaxtrade.config.accounts import resolve_account
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reward_presets import REWARDS, of_one_symbol
from jaxtrade.env.rules import account_params
from jaxtrade.env.state import OFF as OFF_LIMIT
from jaxtrade.env.state import Trailing
from tests.oracle.agreement import Lane, compare, make_rollout
from tests.oracle.events import habits_of, random_market
from tests.oracle.markets import pad_bars
from tests.oracle.model import Ask, Settings
from tests.paths import random_paths
from tests.quotes import random_ask

LANES, STEPS = 8, 320
DRAWDOWN = 901_000  # mills: 72 ticks of one contract and a bit
OFF = Settings(drawdown=None, daily_loss=None, target=None, risk_unit=500_000.0)
PRESETS = {
    "rules_off": OFF,
    "rules_off_two_sessions": replace(
        OFF, episode_sessions=2, slippage=0, commission=0, stop_atr=700
    ),
    "drawdown": Settings(
        drawdown=DRAWDOWN // 3, target=None, risk_unit=DRAWDOWN, commission=11_100
    ),
    "drawdown_frozen_at_start_plus_100": Settings(
        drawdown=DRAWDOWN, target=None, floor_cap=100_000, risk_unit=DRAWDOWN, episode_sessions=3
    ),
    "drawdown_frozen_at_target": Settings(
        drawdown=DRAWDOWN,
        target=700_000,
        floor_cap=-200_000,
        risk_unit=DRAWDOWN,
        stop_at_target=False,
        episode_sessions=3,
        be_ticks=0,
    ),
    "target_terminates": Settings(
        drawdown=DRAWDOWN, target=400_000, risk_unit=DRAWDOWN, episode_sessions=2
    ),
    "target_continues": Settings(
        drawdown=DRAWDOWN,
        target=300_000,
        risk_unit=DRAWDOWN,
        stop_at_target=False,
        commission=7_000,
    ),  # a win of one tick does not pay for two sides
    "target_after_two_days": Settings(
        drawdown=2 * DRAWDOWN,
        target=300_000,
        risk_unit=DRAWDOWN,
        min_days=2,
        episode_sessions=4,
        trail_atr=500,
    ),
    "daily_loss_locks": Settings(
        drawdown=2 * DRAWDOWN,
        target=None,
        daily_loss=401_000,
        risk_unit=DRAWDOWN,
        episode_sessions=3,
        slippage=2,
        commission=9_100,
    ),
    "daily_loss_fails": Settings(
        drawdown=2 * DRAWDOWN,
        target=None,
        daily_loss=501_000,
        fail_on_daily_loss=True,
        risk_unit=DRAWDOWN,
        episode_sessions=2,
    ),
    "only_daily_loss": Settings(
        drawdown=None,
        target=900_000,
        daily_loss=401_000,
        episode_sessions=2,
        risk_unit=500_000.0,
        target_multiple=2,
    ),
    "step_limit": Settings(
        drawdown=DRAWDOWN,
        target=600_000,
        daily_loss=701_000,
        risk_unit=DRAWDOWN,
        max_steps=23,
        episode_sessions=3,
    ),
}


def shipped(name):
    """A preset of the package, by its own conversion to mills, as the oracle's settings."""
    rules = account_params(resolve_account(AccountConfig(preset=name)), micro=False)
    limits = {
        key: None if int(getattr(rules, key)) == OFF_LIMIT else int(getattr(rules, key))
        for key in MONEY
    }
    return Settings(
        **limits,
        min_days=int(rules.min_days),
        stop_at_target=bool(rules.stop_at_target),
        fail_on_daily_loss=bool(rules.fail_on_daily_loss),
        risk_unit=float(rules.risk_unit),
        trailing=Trailing(int(rules.trailing)).name.lower(),
        start_balance=float(rules.start_balance),
        episode_sessions=4,
    )


# The static configurations. PLAYED are compared here; seeded faults name the others (`test_mutations`).
UNITS = {
    "rewards": {},  # the package's reward presets
    "advised/full": {"task": "advised", "advice": True},
    "full/open/extreme": {},
    "two_sided/full/path": {"intrabar": "path", "quantity": 2},
    "shipped": {},  # the package's account presets
    "two_sided/entry/nearer_extreme": {"task": "entry", "intrabar": "nearer_extreme"},
    "two_sided/advised/close": {"task": "advised", "mark": "close"},
    "full/path/converted": {"intrabar": "path", "quantity": 3, "converted": True},
    # three times the usual tick: floors within reach of one bar
    "full/path": {"intrabar": "path", "tick_mills": 37_500},
    "full/nearer_extreme": {"intrabar": "nearer_extreme"},
    "full/open/close": {"mark": "close"},
    "full/close/close": {"mark": "close", "fill": "close"},
}
PLAYED = list(UNITS)[:8]
COUNTED = PLAYED[:4]  # these have every kind of event
BLIND = (
    "shipped",
    "rewards",
)  # units that say nothing new about observations, which are not rebuilt there
# Profits in another currency change money alone: the presets in which money decides.
CONVERTED = (
    "rules_off_two_sessions",
    "drawdown_frozen_at_start_plus_100",
    "daily_loss_locks",
    "target_terminates",
)
ADVISED = (
    "rules_off_two_sessions",
    "daily_loss_locks",
)  # of several sessions: a record that outlasts them
TWO_SIDED = ("drawdown_frozen_at_target", "rules_off_two_sessions", "daily_loss_locks")
MONEY = ("drawdown", "daily_loss", "target", "floor_cap")


def trailing_of(index):
    return {1: "end_of_day", 5: "end_of_day", 3: "static"}.get(index % 8, "intraday")


def lanes_of(settings, unit):
    """Markets and habits. Three of eight lanes of hand-made rules trail another way; shipped presets
    say how themselves.
    """
    own = unit == "shipped"
    chosen = markets(two_sided=unit.startswith("two_sided"), long="advised" in unit)
    return [
        Lane(
            bars,
            replace(
                settings,
                session_slots=split_of(index),
                trailing=settings.trailing if own else trailing_of(index),
            ),
            habit,
        )
        for index, (bars, habit) in enumerate(zip(chosen, habits_of(LANES), strict=True))
    ]


def names_of(unit):
    if unit.startswith("two_sided"):
        return TWO_SIDED
    if unit == "advised/full":
        return ADVISED
    return CONVERTED if UNITS[unit].get("converted") else tuple(PRESETS)


def presets_of(unit):
    """The account rules that a unit plays: the hand-made ones (of two-sided bars a few), or shipped
    ones.
    """
    if (
        unit == "shipped"
    ):  # their limits are far for one contract: a tick of $125 reaches them in these short sessions
        return [replace(shipped(name), tick_mills=125_000) for name in SHIPPED_PRESETS]
    if unit == "rewards":  # every term is compiled once; a preset is a row of weights
        none = dict.fromkeys(of_one_symbol(), 0.0)
        cheap = replace(
            PRESETS["daily_loss_locks"], slippage=0, commission=1_000
        )  # sessions that gain
        rules = (cheap, PRESETS["target_continues"])
        scaled_down = {"closed_profit": 0.01, "profit_level": 0.001}  # dollars, to a like size
        every = dict.fromkeys(of_one_symbol(), 1.0) | scaled_down
        weights = [none | preset for preset in REWARDS.values() if preset.keys() <= none.keys()] + [
            every
        ]
        unique = [row for i, row in enumerate(weights) if row not in weights[:i]]
        return [replace(rules[i % 2], reward=row) for i, row in enumerate(unique)]
    return [scaled(PRESETS[name], **UNITS[unit]) for name in names_of(unit)]


def scaled(settings, **changes):
    """The preset for a unit; limits grow with the contracts so that the same events happen."""
    quantity = changes.get("quantity", 1)
    limits = {
        name: getattr(settings, name) and getattr(settings, name) * quantity for name in MONEY
    }
    return replace(settings, **limits, **changes)  # type: ignore[arg-type]


@functools.cache
def markets(two_sided=False, long=False):
    """long: decisions begin with the 220th bar, after the longest warm-up of the context."""
    more = {"sessions": 12, "warm_up": 219} if long else {}
    bars = [
        random_market(seed, incomplete=seed % 2 == 1, volatility=(3.0, 5.0, 8.0)[seed % 3], **more)
        for seed in range(LANES)
    ]
    bars = [
        replace(
            b,
            paths=random_paths(seed, b.open, b.high, b.low, b.close),
            rates=random_rates(seed, len(b.close)),
        )
        for seed, b in enumerate(bars)
    ]
    if two_sided:
        bars = [replace(b, ask=ask_of(seed, b)) for seed, b in enumerate(bars)]
    length = max(len(b.close) for b in bars)
    return tuple(pad_bars(b, length) for b in bars)


def random_rates(seed, count):
    """A tick of about $12.50 that moves by up to 1 % a bar: fractions by a rate, or (every second
    market) over one.
    """
    rng = np.random.default_rng(seed)
    rate = (
        np.clip(8_000 * np.exp(np.cumsum(rng.uniform(-0.01, 0.01, count))), 4_000, 16_000)
        .astype(int)
        .tolist()
    )
    return [(100_000_000, x) if seed % 2 else (25 * x, 16) for x in rate]


def ask_of(seed, bars):
    """A random ask side with its own order of prices."""
    prices = [
        side.tolist() for side in random_ask(seed, bars.open, bars.high, bars.low, bars.close)
    ]
    return Ask(*prices, paths=random_paths(seed + 1_000, *prices))


def split_of(index):
    """Every third lane plays a split with holes."""
    return (0, 1, 3, 4, 7) if index % 3 == 2 else ()


@functools.cache
def lanes(unit):
    return [lane for settings in presets_of(unit) for lane in lanes_of(settings, unit)]


@functools.cache
def played(unit):
    """All presets of one static configuration in one compiled program."""
    rollout = make_rollout(lanes(unit)[0].settings, TradingEnv, look=unit not in BLIND)
    return compare(lanes(unit), STEPS, sum(map(ord, unit)), rollout)


# Of these the quick pass plays those that notice what its other tests do not (tests/mutation).
QUICK = ("full/path/converted", "advised/full")


@pytest.mark.parametrize(
    "unit",
    [pytest.param(unit, marks=() if unit in QUICK else pytest.mark.slow) for unit in PLAYED],
)
def test_every_step_agrees(unit):
    comparison = played(unit)
    assert comparison.fault is None
    assert comparison.steps == len(lanes(unit)) * STEPS


KINDS = (
    "stop",
    "target",
    "both",
    "gap_through",
    "gap_target",
    "breakeven",
    "trail",
    "liquidation",
    "daily_lock",
    "end_daily_loss",
    "target_reached",
    "end_target",
    "end_bust",
    "order",
    "flat",
    "half_day",
    "end_session_end",
    "end_step_limit",
    "end_of_data",
    "end_end_of_data",
    "walked_out",
    "ambiguous",
    "retrace",
    "spread_stop",
)


@pytest.mark.slow
def test_every_kind_of_event_happened_often():
    total = Counter()
    for unit in COUNTED:
        total += played(unit).kinds
    # A floor met by a fall that makes no new low, what only seconds can tell, takes bars like those
    # of full/path.
    least = {"retrace": 1}
    assert {kind: total[kind] for kind in KINDS if total[kind] < least.get(kind, 50)} == {}
