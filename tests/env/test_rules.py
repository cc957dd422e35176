"""Floors, liquidation level, daily lock, targets and permissions, worked by hand; presets resolved
to mills.
"""

import re

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import AccountConfig, EnvConfig
from jaxtrade.config.accounts import (
    PRESETS,
    check_account,
    check_quantity,
    resolve_account,
    room_warning,
)
from jaxtrade.env.dynamics import TradingEnv, next_session
from jaxtrade.env.rules import (
    account_params,
    at_daily_floor,
    at_drawdown_floor,
    drawdown_floor,
    high_water_at,
    highest_floor,
    liquidation_level,
    may_open,
    open_session,
    target_reached,
    whole_mills,
)
from jaxtrade.env.state import (
    KEEP_STOP,
    OFF,
    Account,
    EndReason,
    Order,
    Position,
    Trailing,
)
from jaxtrade.errors import ConfigError
from tests.env import worlds
from tests.env.worlds import COMMISSION, TICK_MILLS, contract, i32, ints, make_params, rules
from tests.messages import missing


def account(**values):
    leaves = {name: jnp.bool_(x) if isinstance(x, bool) else i32(x) for name, x in values.items()}
    return Account.new().replace(**leaves)


# ---- floors


@pytest.mark.parametrize(
    ("high_water", "cap", "floor"),
    [
        (0, None, -2_500_000),
        (400_000, None, -2_100_000),
        (2_600_000, None, 100_000),
        (9_000_000, None, 6_500_000),
        (2_599_999, 100_000, 99_999),
        (2_600_000, 100_000, 100_000),  # start + $100: the floor rises no further
        (9_000_000, 100_000, 100_000),
        (9_000_000, 500_000, 500_000),
    ],
)
def test_drawdown_floor_trails_until_its_freeze(high_water, cap, floor):
    limits = rules(drawdown=2_500_000, floor_cap=cap)
    assert int(drawdown_floor(account(high_water=high_water), limits)) == floor


@pytest.mark.parametrize(
    ("equity", "bust", "daily"),
    [
        (-2_500_001, True, True),
        (-2_500_000, True, True),
        (-2_499_999, False, True),
        (-700_000, False, True),
        (-699_999, False, False),
    ],
)
def test_equity_at_a_floor_has_reached_it(equity, bust, daily):
    limits, mine = (
        rules(drawdown=2_500_000, daily_loss=1_000_000),
        account(equity=equity, session_equity=300_000),
    )
    assert bool(at_drawdown_floor(mine, limits)) is bust
    assert bool(at_daily_floor(mine, limits)) is daily
    assert not at_drawdown_floor(mine, rules(daily_loss=1_000_000))
    assert not at_daily_floor(mine, rules(drawdown=2_500_000))


@pytest.mark.parametrize(
    ("freeze", "cap"), [("never", OFF), ("at_start_plus_100", 100_000), ("at_target", 500_000)]
)
def test_freezes_in_mills(freeze, cap):
    preset = resolve_account(AccountConfig(preset="apex_like_50k_2025", freeze=freeze))  # type: ignore[arg-type]
    assert int(account_params(preset, micro=False).floor_cap) == cap


# ---- the liquidation level


CONTRACT = contract()


@pytest.mark.parametrize(
    ("side", "quantity", "balance", "drawdown", "level"),
    [
        # room = floor + exit commission - balance, in whole ticks, away from the market
        (1, 1, -COMMISSION, 100_000, 101 - 8),  # (-100 + 2.08 + 2.08) / 12.50 = -7.67 -> -8
        (-1, 1, -COMMISSION, 100_000, 101 + 8),
        (1, 1, 0, 102_080, 101 - 8),  # exactly -8
        (-1, 1, 0, 102_080, 101 + 8),
        (1, 1, 0, 102_081, 101 - 9),  # one mill more room is one tick more
        (1, 1, 0, 102_079, 101 - 8),
        (1, 3, -3 * COMMISSION, 100_000, 101 - 3),  # (-100 + 12.48) / 37.50 = -2.33 -> -3
        (-1, 3, -3 * COMMISSION, 100_000, 101 + 3),
        (
            1,
            1,
            500_000,
            100_000,
            101 - 48,
        ),  # profit in hand moves it away: (-100 + 2.08 - 500) / 12.5 = -47.8
    ],
)
def test_liquidation_level_by_hand(side, quantity, balance, drawdown, level):
    position, limits = (
        Position.flat().replace(quantity=i32(side * quantity), entry=i32(101)),
        rules(drawdown=drawdown),
    )
    assert int(liquidation_level(position, account(balance=balance), limits, CONTRACT)) == level


@settings(max_examples=200)
@given(
    st.integers(1, 20),
    st.integers(-2_000_000, 2_000_000),
    st.integers(1, 3_000_000),
    st.sampled_from([1, -1]),
)
def test_the_level_is_the_first_price_at_or_below_the_floor(quantity, balance, drawdown, side):
    """At the level equity net of the exit commission is at or below the floor; one tick nearer it
    is above.
    """
    position = Position.flat().replace(quantity=i32(side * quantity), entry=i32(20_000))
    level = int(
        liquidation_level(position, account(balance=balance), rules(drawdown=drawdown), CONTRACT)
    )

    def net(price):
        return balance + (price - 20_000) * side * quantity * TICK_MILLS - quantity * COMMISSION

    assert net(level) <= -drawdown < net(level + side)


MARKET = worlds.walk_market(0, sessions=3)


# ---- permissions


@pytest.mark.parametrize(
    ("left", "tr_sum", "locked", "allowed"),
    [
        (2, 100, False, True),
        (1, 100, False, False),
        (0, 100, False, False),
        (50, -1, False, False),
        (50, 0, False, True),
        (50, 100, True, False),
    ],
)
def test_who_may_open(left, tr_sum, locked, allowed):
    count = len(MARKET.close)
    market = MARKET.replace(
        bars_to_flat=jnp.full(count, left, jnp.int32), tr_sum=jnp.full(count, tr_sum, jnp.int32)
    )
    params = make_params(market)
    env = TradingEnv(EnvConfig())
    state = env.reset_at(params, 0, 60)
    state = state.replace(account=state.account.replace(locked=jnp.bool_(locked)))
    assert bool(may_open(state, params)) is allowed
    mask = env.mask(state, params)
    assert mask.tolist() == [True, allowed, allowed, False, False, False, False]


def test_open_profit_never_reaches_a_target():
    limits = rules(target=1_000_000, min_days=2)
    rich = account(balance=1_000_000, equity=1_000_000, days=2)
    held = Position.flat().replace(quantity=i32(1))
    assert bool(target_reached(Position.flat(), rich, limits))
    assert not bool(target_reached(held, rich, limits))
    assert not bool(target_reached(Position.flat(), rich.replace(balance=i32(999_999)), limits))
    assert not bool(target_reached(Position.flat(), rich.replace(days=i32(1)), limits))
    assert not bool(target_reached(Position.flat(), rich, rules()))


@pytest.mark.parametrize(
    ("trailing", "live", "next_day"),
    [(Trailing.INTRADAY, 12, 12), (Trailing.END_OF_DAY, 9, 11), (Trailing.STATIC, 9, 9)],
)
def test_who_raises_the_high_water_mark(trailing, live, next_day):
    """From 9: a live mark of 12 in the session, then its closing equity of 11."""
    limits = rules(drawdown=100, trailing=trailing)
    old = account(balance=11, equity=11, high_water=9)
    marked = high_water_at(old, i32(12), limits)
    assert int(marked) == live
    assert int(open_session(old.replace(high_water=marked), limits).high_water) == next_day
    low = old.replace(equity=i32(-5), balance=i32(-5))
    assert int(high_water_at(low, i32(-5), limits)) == 9
    assert int(open_session(low, limits).high_water) == 9


def test_a_new_session_resets_the_daily_rules_and_nothing_else():
    old = account(
        balance=5, equity=7, high_water=9, session_equity=1, locked=True, days=3, traded=True
    )
    new = open_session(old, rules())
    expected = account(
        balance=5, equity=7, high_water=9, session_equity=7, locked=False, days=3, traded=False
    )
    assert worlds.leaves_differ(new, expected) == []


# ---- the daily loss along a session


def falling_bars():
    """Two sessions of 40 bars, each bar two ticks below the last."""
    return worlds.bars_of(
        [(1_000 - 2 * i, 1_000 - 2 * i, 998 - 2 * i, 998 - 2 * i) for i in range(80)]
    )


BUY = Order(*map(i32, (1, 0, 0, KEEP_STOP, -1)))


def daily_params(**limits):
    sessions = [worlds.Session(0, 40, 2, 36), worlds.Session(40, 80, 42, 76)]
    market = worlds.make_market(falling_bars(), sessions, tr_sum=28)
    return make_params(
        market,
        account=rules(**limits),
        costs=contract(commission=0, slippage=0),
        episode_sessions=2,
    )


def test_a_daily_loss_locks_until_the_next_session():
    """Daily loss $100 = 8 ticks: bought at 994, liquidated at 986, no entry until the second
    session opens.
    """
    env, params = TradingEnv(EnvConfig()), daily_params(daily_loss=100_000)
    state = env.reset_at(params, 0, 2)
    locked_at = None
    for _ in range(34):
        state, event = env.transition(state, BUY, params)
        if locked_at is None and bool(state.account.locked):
            locked_at = int(state.row)
            assert bool(event.breach)
            assert int(state.account.balance) == -8 * TICK_MILLS
        elif locked_at is not None:
            assert not bool(event.breach), "a lock is one breach"
            assert int(event.entry_quantity) == 0
    assert locked_at == 6  # bar 6: low 986
    opened = next_session(state, params)
    assert int(opened.row) == 42
    assert int(opened.account.session_equity) == -8 * TICK_MILLS
    assert env.mask(opened, params).tolist()[:3] == [True, True, True]


def test_a_daily_loss_that_fails_ends_the_account():
    env, params = TradingEnv(EnvConfig()), daily_params(daily_loss=100_000, fail_on_daily_loss=True)
    state = env.reset_at(params, 0, 2)
    for action, end in [(1, EndReason.NONE), *[(0, EndReason.NONE)] * 2, (0, EndReason.DAILY_LOSS)]:
        state, _, out = env.step(None, state, i32(action), params)  # type: ignore[arg-type]
        assert int(out.info.end) == end
    assert bool(out.terminated)


# ---- presets


def test_presets_resolve_to_mills():
    params = account_params(resolve_account(AccountConfig()), micro=False)
    assert ints(
        params, "drawdown", "daily_loss", "target", "floor_cap", "min_days", "max_contracts"
    ) == [2_500_000, OFF, 3_000_000, 500_000, 1, 10]
    assert float(params.risk_unit) == 2_500_000
    assert int(account_params(resolve_account(AccountConfig()), micro=True).max_contracts) == 100
    off = account_params(resolve_account(AccountConfig(preset="rules_off_50k")), micro=False)
    assert [int(x) for x in (off.drawdown, off.daily_loss, off.target, off.floor_cap)] == [OFF] * 4
    assert float(off.risk_unit) == 500_000  # 1 % of the start balance
    assert float(off.start_balance) == 50_000_000
    assert int(off.trailing) == Trailing.INTRADAY


@pytest.mark.parametrize(
    ("preset", "changes", "trailing"),
    [
        ("apex_like_50k_eod_2026", {}, Trailing.END_OF_DAY),
        ("apex_like_100k_static_2025", {}, Trailing.STATIC),
        ("apex_like_50k_2025", {"trailing": "end_of_day"}, Trailing.END_OF_DAY),
        (
            "apex_like_50k_eod_2026",
            {"drawdown": "off"},
            Trailing.INTRADAY,
        ),  # nothing to trail: the mark is live equity
    ],
)
def test_trailing_by_preset_and_key(preset, changes, trailing):
    resolved = resolve_account(AccountConfig(preset=preset, **changes))
    assert int(account_params(resolved, micro=False).trailing) == trailing


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"preset": "apex_like_50k"}, "'apex_like_50k_2025'"),
        ({"drawdown": -1.0}, "account.drawdown = -1.0"),
        ({"daily_loss": 0.0}, "account.daily_loss = 0.0"),
        ({"preset": "rules_off_50k", "freeze": "at_target"}, "account.freeze"),
        (
            {"preset": "rules_off_50k", "trailing": "static"},
            r"account\.trailing = 'static'",
        ),
    ],
)
def test_accounts_that_cannot_be(values, text):
    with pytest.raises(ConfigError, match=text):
        resolve_account(AccountConfig(**values))


CONTRADICTIONS = [
    (
        {"drawdown": 50_001.0},
        [r"account.drawdown = 50,001 is above the start balance of 50,000 \(of apex_like"],
    ),
    (
        {"daily_loss": 50_001.0, "drawdown": "off"},
        ["account.daily_loss = 50,001 is above the start balance"],
    ),
    (
        {"daily_loss": 2_500.5},
        [r"account.daily_loss = 2,500.5 is above account.drawdown = 2,500 \(of apex_like"],
    ),
    (
        {"preset": "apex_like_50k_daily_fail_2025", "drawdown": 900.0},
        [
            r"account.daily_loss = 1,000 \(of apex_like_50k_daily_fail_2025\) is above account.drawdown = 900:"
        ],
    ),
    (
        {"profit_target": "off", "min_days": 5},
        ["account.min_days = 5: .*set account.profit_target, or drop"],
    ),
    (
        {"profit_target": "off", "on_target": "continue"},
        ["account.on_target = continue: .* profit target"],
    ),
    (
        {"on_daily_loss": "fail"},
        ["account.on_daily_loss = 'fail': this account has no daily loss limit"],
    ),
    (
        {"trailing": "static", "freeze": "at_target"},
        ["account.freeze = 'at_target': .*'static' the floor never rises"],
    ),
    (
        {"drawdown": "off", "freeze": "at_start_plus_100"},
        ["account.freeze = 'at_start_plus_100': .* no drawdown"],
    ),
    (
        {
            "drawdown": 60_000.0,
            "daily_loss": 70_000.0,
            "on_daily_loss": "fail",
            "profit_target": "off",
            "min_days": 1,
        },
        [
            "account.drawdown = 60,000 is above",
            "account.daily_loss = 70,000 is above the start",
            "account.daily_loss = 70,000 is above account.drawdown",
            "account.min_days = 1",
        ],
    ),
]


@pytest.mark.parametrize(("values", "texts"), CONTRADICTIONS)
def test_rules_that_contradict_each_other_are_refused_all_at_once(values, texts):
    """A run of an earlier version may hold them, and is still read."""
    with pytest.raises(ConfigError) as caught:
        check_account(AccountConfig(**values))
    lines = str(caught.value).splitlines()
    assert len(lines) == len(texts)
    for line, text in zip(lines, texts, strict=True):
        assert re.match(text, line)
    assert resolve_account(AccountConfig(**values)).start_balance == 50_000


@pytest.mark.parametrize("name", list(PRESETS))
def test_no_preset_contradicts_itself(name):
    assert check_account(AccountConfig(preset=name)) == resolve_account(AccountConfig(preset=name))
    params = account_params(resolve_account(AccountConfig(preset=name)), micro=False)
    assert int(highest_floor(Account.new(), params)) < 0 < float(params.risk_unit)
    for changes in (
        {"min_days": 0},
        {"drawdown": "off"},
        {"daily_loss": 500.0},
        {"profit_target": "off"},
        {"trailing": "end_of_day"} if PRESETS[name].drawdown else {},
    ):
        check_account(AccountConfig(preset=name, **changes))


@pytest.mark.parametrize(("micro", "most"), [(False, 10), (True, 100)])
def test_an_order_must_fit_the_cap(micro, most):
    preset = resolve_account(AccountConfig())
    check_quantity(most, preset, "apex_like_50k_2025", "ES", micro)
    with pytest.raises(
        ConfigError, match=rf"env.quantity = {most + 1}: account .* allows {most} ES"
    ):
        check_quantity(most + 1, preset, "apex_like_50k_2025", "ES", micro)


@pytest.mark.parametrize(
    ("dollars", "text"), [(2.0801, "whole number of mills"), (1_073_742.0, "must stay below")]
)
def test_money_that_mills_cannot_hold(dollars, text):
    with pytest.raises(ConfigError, match=text):
        whole_mills(dollars, "costs.commission")
    assert whole_mills(2.08, "costs.commission") == 2_080
    assert whole_mills(0.001, "costs.commission") == 1


def test_an_account_without_room_for_one_trade_is_named():
    """A round turn of ES costs 2 x 2.08 of commission and 2 x 12.50 of slippage."""
    small = AccountConfig(drawdown=1.0, daily_loss=29.0)
    assert not missing(
        room_warning(small, 29.16) or "",
        "account.drawdown = $1",
        "account.daily_loss = $29",
        "$29.16",
    )
    assert room_warning(small, 0.5) is None
    assert room_warning(AccountConfig(drawdown="off"), 29.16) is None
