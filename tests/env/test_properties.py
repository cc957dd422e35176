"""Properties of whole runs: exact accounting, monotone costs, symmetry, legality, ends, rewards,
flat at flat bars.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import (
    KEEP_STOP,
    EndReason,
    ExitReason,
    Order,
    Trailing,
)
from tests import compiling
from tests.env import worlds
from tests.env.worlds import contract, i32, make_params, rules, run_random, walk_market
from tests.paths import mirrored, random_paths
from tests.quotes import random_ask

ENVS, STEPS = 48, 400
STRICT = {"drawdown": 1_000_000, "daily_loss": 700_000, "target": 1_200_000, "floor_cap": 100_000}
CASES = {
    "headline": (EnvConfig(quantity=2), STRICT),
    "entry": (EnvConfig(task="entry", quantity=2), STRICT),
    "daily_fail": (EnvConfig(quantity=2), STRICT | {"fail_on_daily_loss": True}),
    "close_marks": (EnvConfig(mark="close", quantity=2), STRICT),
    "optimistic": (EnvConfig(mark="close", fill="close", quantity=2), STRICT),
    "end_of_day": (EnvConfig(quantity=2), STRICT | {"trailing": Trailing.END_OF_DAY}),
    "static": (EnvConfig(quantity=2), STRICT | {"trailing": Trailing.STATIC}),
    "rules_off": (EnvConfig(quantity=2), {}),
    "nearer_extreme": (EnvConfig(intrabar="nearer_extreme", quantity=2), STRICT),
    "path": (EnvConfig(intrabar="path", quantity=2), STRICT),
    "converted": (EnvConfig(quantity=2), STRICT),
    "two_sided": (EnvConfig(intrabar="path", quantity=2), STRICT),
}


@functools.cache
def sample(case):
    """A run of random legal actions; leaves as numpy arrays [STEPS, ENVS]."""
    config, limits = CASES[case]
    env = TradingEnv(config)
    market = walk_market(3, paths=config.intrabar == "path", two_sided=case == "two_sided", step=8)
    if case == "converted":
        market = worlds.with_rates(market)
    params = make_params(market, account=rules(**limits), episode_sessions=2)
    return env, params, jax.tree.map(np.asarray, run_random(env, params, 1, ENVS, STEPS))


QUICK = ("headline", "converted")  # the others compile for as long


@pytest.fixture(
    params=[
        pytest.param(
            case,
            marks=[pytest.mark.slow] * (case not in QUICK),
        )
        for case in CASES
    ]
)
def run(request):
    return sample(request.param)


class Ledger:
    """An account kept in Python integers from the events alone. rates: per row, mills of a tick."""

    def __init__(self, rates, commission):
        self.rates, self.commission = rates, commission
        self.balance = self.quantity = self.entry = self.sides = self.paid = 0

    def _worth(self, price, row):
        return round(
            (price - self.entry) * self.quantity * self.rates[row]
        )  # of a fraction: half to even

    def _leave(self, quantity, price, row):
        assert quantity == self.quantity != 0
        self.balance += self._worth(price, row)
        self._pay(quantity)
        self.quantity = self.entry = 0

    def _pay(self, quantity):
        self.balance -= abs(quantity) * self.commission
        self.paid += abs(quantity) * self.commission
        self.sides += abs(quantity)

    def book(self, event, row):
        before = self.paid
        if event["order_exit_quantity"]:
            self._leave(event["order_exit_quantity"], event["order_exit_price"], row)
        if event["entry_quantity"]:
            assert self.quantity == 0
            self.quantity, self.entry = event["entry_quantity"], event["entry_price"]
            self._pay(self.quantity)
        if event["exit_quantity"]:
            self._leave(event["exit_quantity"], event["exit_price"], row)
            assert event["exit_reason"] != ExitReason.NONE
        assert self.paid - before == event["commission"]

    def equity(self, close, row):
        return self.balance + self._worth(close, row)


def rates_of(params):
    """Mills of a tick in each row."""
    value = params.market.tick_value
    if value is None:
        return [Fraction(worlds.TICK_MILLS)] * params.market.close.shape[0]
    return [Fraction(*pair) for pair in zip(value.times.tolist(), value.over.tolist(), strict=True)]


@pytest.mark.slow
def test_accounting_is_exact_in_mills(run):
    """start + profit of fills - commissions == balance, and equity marks the rest at the close, in
    Python integers.
    """
    _, params, trace = run
    market = params.market
    bid, ask = (np.asarray(side.close) for side in (market, market.ask or market))
    info = trace.outcome.info
    rows = trace.state.row + 1
    rates, fills = rates_of(params), 0
    for e in range(ENVS):
        ledger = Ledger(rates, worlds.COMMISSION)
        for t in range(STEPS):
            event = {name: int(getattr(info.event, name)[t, e]) for name in vars(info.event)}
            row = int(rows[t, e])
            ledger.book(event, row)
            close = ask if ledger.quantity < 0 else bid
            assert ledger.equity(int(close[row]), row) == info.equity[t, e]
            assert ledger.sides == info.stats.sides[t, e]
            assert ledger.paid == info.stats.commission[t, e]
            if info.end[t, e] != EndReason.NONE:
                assert ledger.quantity == 0
                assert ledger.balance == info.equity[t, e]
                fills += ledger.sides
                ledger = Ledger(rates, worlds.COMMISSION)
            elif t + 1 < STEPS:
                assert ledger.balance == trace.state.account.balance[t + 1, e]
    assert fills > 1_000


@pytest.mark.slow
def test_fills_lie_where_the_bar_traded(run):
    """Exits fill between a bar's low and high, slipped ones up to that tick beyond; so do both
    marks. Of two-sided bars from the bid's low to the ask's high."""
    _, params, trace = run
    market = params.market
    top = market.high if market.ask is None else market.ask.high
    low, high = (np.asarray(x)[trace.state.row + 1] for x in (market.low, top))
    event = trace.outcome.info.event
    for name in ("favourable", "adverse"):
        price = getattr(event, name)
        assert ((price >= low) & (price <= high)).all(), name
    out, side = event.exit_quantity != 0, np.sign(event.exit_quantity)
    slipped = np.where(
        event.exit_reason == ExitReason.TARGET, 0, side * int(params.contract.slippage)
    )
    traded = event.exit_price + slipped
    assert ((traded >= low) & (traded <= high))[out].all()
    assert out.sum() > 500


@pytest.mark.slow
def test_fills_at_an_open_or_a_flat_bar_are_on_the_side_that_is_traded():
    """Two-sided bars: buys at the ask, sells at the bid, a tick of slippage on top, whoever it is
    that trades.
    """
    _, params, trace = sample("two_sided")
    market, event, rows = params.market, trace.outcome.info.event, trace.state.row + 1
    prices = {
        name: (np.asarray(getattr(market, name)), np.asarray(getattr(market.ask, name)))
        for name in ("open", "close")
    }
    flat = np.where(event.exit_reason == ExitReason.FLAT, event.exit_quantity, 0)
    for field, bought, filled in (
        ("open", event.entry_quantity, event.entry_price),
        ("open", -event.order_exit_quantity, event.order_exit_price),
        ("close", -flat, event.exit_price),
    ):
        bid, ask = (side[rows] for side in prices[field])
        assert min((bought > 0).sum(), (bought < 0).sum()) > 5
        np.testing.assert_array_equal(filled[bought > 0], (ask + 1)[bought > 0])
        np.testing.assert_array_equal(filled[bought < 0], (bid - 1)[bought < 0])
        assert ((ask - bid)[bought != 0] > 0).any()


@pytest.mark.slow
def test_no_breach_without_an_end(run):
    """At or below the drawdown floor the account ends; at or below the daily floor it locks or
    fails; never in position below a floor at a bar's end.
    """
    _, params, trace = run
    account, info = params.account, trace.outcome.info
    end = info.end
    bust = info.equity <= info.event.floor
    assert ((end == EndReason.BUST) == bust).all()
    daily_floor = trace.state.account.session_equity - int(account.daily_loss)
    below = (info.equity <= daily_floor) & (int(account.daily_loss) < worlds.OFF)
    if bool(account.fail_on_daily_loss):
        assert np.isin(end[below], [EndReason.BUST, EndReason.DAILY_LOSS]).all()
    else:
        assert not (end == EndReason.DAILY_LOSS).any()
        same = (end[:-1] == EndReason.NONE) & (trace.state.slot[1:] == trace.state.slot[:-1])
        assert trace.state.account.locked[1:][below[:-1] & same].all()
        locked = trace.state.account.locked
        assert not trace.ref.mask[locked][:, [Action.BUY, Action.SELL]].any()
    assert (info.event.breach == (bust | (below & ~trace.state.account.locked))).all()
    state = jax.tree.map(lambda x: x[1:], trace.state)
    held = state.position.quantity != 0
    net = state.account.equity - np.abs(state.position.quantity) * worlds.COMMISSION
    floors = np.maximum(
        np.minimum(state.account.high_water - int(account.drawdown), int(account.floor_cap)),
        state.account.session_equity - int(account.daily_loss),
    )
    if int(account.drawdown) < worlds.OFF:
        assert (net > floors)[held].all()
        assert bust.sum() > 5, "the sample has no bust: the test shows nothing"
        assert below.sum() > 5, "the sample has no daily breach"


@pytest.mark.parametrize("case", ["headline", "end_of_day", "static"])
def test_a_floor_never_falls_and_an_end_of_day_floor_is_fixed_during_a_session(case):
    _, _, trace = sample(case)
    floor, end, slot = trace.outcome.info.event.floor, trace.outcome.info.end, trace.state.slot
    going_on = end[:-1] == EndReason.NONE
    rise = (floor[1:] - floor[:-1])[going_on]
    same_session = (slot[1:] == slot[:-1])[going_on]
    assert (rise >= 0).all()
    assert (rise[same_session] > 0).any() == (case == "headline")
    assert (rise[~same_session] > 0).any() == (
        case != "static"
    )  # intraday: in the first bar of the new session
    if case == "end_of_day":
        closing = trace.outcome.info.equity[:-1][going_on][~same_session]
        before = trace.state.account.high_water[:-1][going_on][~same_session]
        after = trace.state.account.high_water[1:][going_on][~same_session]
        np.testing.assert_array_equal(after, np.maximum(before, closing))


def test_on_the_same_path_the_intraday_floor_is_the_highest_and_the_static_one_the_lowest():
    """A drawdown so large that no floor is reached: three accounts live the same trades."""
    env, market = TradingEnv(EnvConfig(quantity=2)), walk_market(3, step=8)
    runs = []
    for trailing in (Trailing.STATIC, Trailing.END_OF_DAY, Trailing.INTRADAY):
        limits = rules(drawdown=500_000_000, trailing=trailing)
        params = make_params(market, account=limits, episode_sessions=2)
        runs.append(jax.tree.map(np.asarray, run_random(env, params, 1, ENVS, STEPS)).outcome.info)
    static, end_of_day, intraday = runs
    np.testing.assert_array_equal(static.equity, intraday.equity)
    np.testing.assert_array_equal(end_of_day.equity, intraday.equity)
    assert (static.event.floor == -500_000_000).all()
    assert (end_of_day.event.floor >= static.event.floor).all()
    assert (intraday.event.floor >= end_of_day.event.floor).all()
    assert (end_of_day.event.floor > static.event.floor).sum() > 100
    assert (intraday.event.floor > end_of_day.event.floor).sum() > 100


def test_flat_at_every_flat_bar(run):
    """No position survives a session: the flat bar's event leaves it, and every session and episode
    starts flat.
    """
    _, params, trace = run
    sessions = params.market.sessions
    last = np.asarray(sessions.last)[np.asarray(params.sessions.ids)[trace.state.slot]]
    at_flat_bar = trace.state.row == last
    assert at_flat_bar.sum() > 50
    new = (trace.state.slot[1:] != trace.state.slot[:-1]) | (
        trace.outcome.info.end[:-1] != EndReason.NONE
    )
    assert (new | ~at_flat_bar[:-1]).all()
    assert (trace.state.position.quantity[1:][new] == 0).all()
    forced = trace.outcome.info.event.exit_reason == ExitReason.FLAT
    assert forced.sum() > 5
    assert at_flat_bar[forced].all()


def test_hold_is_always_legal_and_nothing_opens_late(
    run,
):
    _, params, trace = run
    assert trace.ref.mask[..., Action.HOLD].all()
    left = np.asarray(params.market.bars_to_flat)[trace.state.row]
    assert not trace.ref.mask[left < 2][:, [Action.BUY, Action.SELL]].any()
    opened = trace.outcome.info.event.entry_quantity != 0
    assert (left[opened] >= 2).all()
    assert (left[trace.ref.mask[..., Action.BUY]] == 2).any(), (
        "the last permitted bar was never seen"
    )


def test_reward_terms_sum_and_rewards_telescope(run):
    """The reward is the sum of its terms; over an episode it is (final - start) / risk_unit up to
    float order.
    """
    _, params, trace = run
    info, outcome = trace.outcome.info, trace.outcome
    np.testing.assert_array_equal(outcome.reward, info.terms["equity_change"])
    unit = float(params.account.risk_unit)
    before = trace.state.account.equity
    np.testing.assert_array_equal(
        outcome.reward,
        (info.equity - before).astype(np.float32) * (np.float32(1) / np.float32(unit)),
    )
    done = info.end != EndReason.NONE
    assert done.sum() > 20
    np.testing.assert_allclose(info.stats.reward[done], info.equity[done] / unit, rtol=0, atol=2e-5)
    np.testing.assert_allclose(
        info.stats.terms["equity_change"], info.stats.reward, rtol=0, atol=1e-6
    )


def test_terminated_and_truncated_are_never_both(run):
    _, _, trace = run
    outcome = trace.outcome
    assert not (outcome.terminated & outcome.truncated).any()
    assert ((outcome.terminated | outcome.truncated) == (outcome.info.end != EndReason.NONE)).all()


@pytest.mark.slow
def test_million_masked_samples_hold_no_illegal_action():
    """10^6 environment steps in one vmapped program: the mask that the sampler used is the mask
    that `step` checks.
    """
    env = TradingEnv(EnvConfig(quantity=2))
    params = make_params(walk_market(5), account=rules(**STRICT), episode_sessions=2)
    envs, steps = 4_096, 250

    @jax.jit
    def count(key, params):
        key_reset, key_act = jax.random.split(key)
        start = jax.vmap(env.reset, (0, None))(jax.random.split(key_reset, envs), params)

        def body(carry, key):
            (state, ref), illegal, taken = carry
            logits = jnp.where(ref.mask, 0.0, -1e9)
            action = jax.random.categorical(key, logits).astype(jnp.int32)
            before = state.stats.illegal
            state, ref, out = jax.vmap(env.step, (None, 0, 0, None))(key, state, action, params)
            taken = taken + jnp.bincount(action, length=env.num_actions)
            return ((state, ref), illegal + jnp.sum(out.info.stats.illegal - before), taken), None

        zero = jnp.zeros(env.num_actions, jnp.int32)
        carry, _ = jax.lax.scan(body, (start, jnp.int32(0), zero), jax.random.split(key_act, steps))
        return carry[1], carry[2]

    illegal, taken = count(jax.random.key(0), params)
    assert int(jnp.sum(taken)) == envs * steps >= 1_000_000
    assert int(illegal) == 0
    assert (np.asarray(taken) > 1_000).all(), f"an action was hardly ever legal: {taken}"


@pytest.mark.slow
def test_an_illegal_action_is_a_hold_and_counted():
    env, params, trace = sample("headline")
    flat = {
        name: np.flatnonzero(~trace.ref.mask[..., action].reshape(-1))
        for name, action in Action.__members__.items()
        if name != "HOLD"
    }
    states = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), trace.state)
    step = jax.jit(jax.vmap(env.step, (None, 0, 0, None)), compiler_options=compiling.fast())
    key = jax.random.key(0)
    for name, rows in flat.items():
        rows = np.resize(rows, 64)
        chosen = jax.tree.map(lambda x, rows=rows: x[rows], states)
        illegal = step(key, chosen, jnp.full(64, Action[name], jnp.int32), params)
        hold = step(key, chosen, jnp.zeros(64, jnp.int32), params)
        counted = illegal[2].info.stats.illegal - hold[2].info.stats.illegal
        assert (np.asarray(counted) == 1).all(), name
        assert [
            path
            for path in worlds.leaves_differ(illegal[2], hold[2])
            if not path.endswith(".illegal")
        ] == []


# ---- the same orders under other costs, rules off


def random_orders(seed, count):
    """Orders of every kind: flips, odd sizes, with and without brackets, stops moved, trail on and
    off. [count]
    """
    rng = np.random.default_rng(seed)
    quantity = np.repeat(rng.integers(-3, 4, count // 8 + 1), 8)[:count]
    return Order(
        quantity=i32(quantity),
        stop_ticks=i32(rng.choice([0, 10, 25, 60], count)),
        target_ticks=i32(rng.choice([0, 15, 40], count)),
        move_stop=i32(np.full(count, KEEP_STOP)),
        trail=i32(rng.choice([-1, 0, 1], count, p=[0.8, 0.05, 0.15])),
    )


Intrabar = Literal["stop_first", "nearer_extreme", "path"]


def equity_path(params, state, orders, intrabar="stop_first"):
    """int32[steps] equity at every bar and the sides filled, for orders through the public
    transition.
    """
    env = TradingEnv(EnvConfig(intrabar=intrabar))

    def body(state, order):
        state, _ = env.transition(state, order, params)
        return state, (state.account.equity, state.stats.sides, state.position.quantity)

    return jax.lax.scan(body, state, orders)[1]


@pytest.fixture(scope="module")
def recorded_actions():
    """Orders of random legal actions of `manage` over whole sessions, rules off: (start, orders)
    per session.
    """
    env = TradingEnv(EnvConfig(quantity=3, random_start=False))
    params = make_params(walk_market(11))
    steps = 110

    @functools.partial(jax.jit, compiler_options=compiling.fast())
    def record(state, uniform):
        def body(state, u):
            order = env.decode(worlds.pick(env.mask(state, params), u), state, params)
            return env.transition(state, order, params)[0], order

        return jax.lax.scan(body, state, uniform)[1]

    runs = []
    for slot in range(8):
        state = env.reset_at(params, slot, params.market.sessions.first[slot])
        runs.append((state, record(state, jax.random.uniform(jax.random.key(slot), (steps,)))))
    return runs


def cost_grid(base, values, name):
    """`base` with one contract figure as a leading axis."""
    return base.replace(contract=base.contract.replace(**{name: i32(values)}))


def in_axes(name):
    base = make_params(walk_market(11, paths=True))
    axes = jax.tree.map(lambda _: None, base)
    return axes.replace(contract=axes.contract.replace(**{name: 0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("intrabar", "name"),
    [("stop_first", "commission"), ("nearer_extreme", "commission"), ("path", "slippage")],
)
def test_equity_never_rises_with_costs(recorded_actions, name, intrabar):
    """Same orders, rules off: equity at every bar is non-increasing in commission and slippage, and
    each extra cent of commission takes exactly ten mills per contract side from the final equity.
    """
    values = [0, 10, 20, 500, 2_080] if name == "commission" else [0, 1, 2, 5]
    base = make_params(walk_market(11, paths=True))
    play = functools.partial(equity_path, intrabar=intrabar)
    paths = jax.jit(jax.vmap(play, (in_axes(name), None, None)), compiler_options=compiling.fast())
    random = [(recorded_actions[slot][0], random_orders(slot, 110)) for slot in range(8)]
    total = 0
    for state, orders in [*recorded_actions, *random]:
        equity, sides, quantity = map(
            np.asarray, paths(cost_grid(base, values, name), state, orders)
        )
        for cheap, dear in pairwise(equity):
            assert (dear <= cheap).all()
        assert (sides == sides[0]).all(), "costs changed what was traded"
        assert (quantity == quantity[0]).all()
        assert sides[0, -1] > 0
        total += int(sides[0, -1])
        if name == "commission":
            for value, path in zip(values, equity, strict=True):
                assert (equity[0] - path == value * sides[0]).all()
        else:
            assert (equity[-1, -1] < equity[0, -1]).all()
    assert total > 200


# ---- symmetry


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "intrabar", "two_sided"),
    [
        ("extreme", "path", True),
        ("extreme", "nearer_extreme", False),
        ("close", "stop_first", False),
    ],
)
def test_long_and_short_are_mirror_images(mark, intrabar, two_sided):
    """Bars upside down and BUY for SELL: the same masks, equity, rewards and ends, fill prices
    mirrored. Of two-sided bars the ask upside down is the bid, and the other way round.
    """
    env = TradingEnv(EnvConfig(mark=mark, intrabar=intrabar, quantity=2))
    bars = worlds.random_bars(21, 8 * 160, step=8)
    limits = rules(**STRICT)
    inside = random_paths(21, *bars)
    ask = worlds.Bars(*random_ask(21, *bars)) if two_sided else bars
    ask_inside = random_paths(22, *ask) if two_sided else inside
    sums = worlds.true_range_sums(
        bars
    )  # of one side for both: a mid rounds down, its mirror image up
    sessions = worlds.even_sessions(8, 160)

    def params_of(bid, ask, paths, ask_paths):
        market = (
            worlds.two_sided_market(bid, ask, sessions, sums, paths, ask_paths)
            if two_sided
            else worlds.make_market(bid, sessions, sums, paths=paths)
        )
        return make_params(market, account=limits, episode_sessions=2)

    up = params_of(bars, ask, inside, ask_inside)
    down = params_of(
        worlds.mirror(ask), worlds.mirror(bars), mirrored(ask_inside), mirrored(inside)
    )
    trace = run_random(env, up, 2, ENVS, STEPS)
    swapped = jnp.asarray([0, 2, 1, 3, 4, 5, 6], jnp.int32)[trace.action]

    @functools.partial(jax.jit, compiler_options=compiling.fast())
    def replay(state, actions, params):
        def body(state, action):
            mask = jax.vmap(env.mask, (0, None))(state, params)
            state, _, out = jax.vmap(env.step, (None, 0, 0, None))(
                jax.random.key(0), state, action, params
            )
            return state, (mask, out)

        return jax.lax.scan(body, state, actions)[1]

    start = jax.tree.map(lambda x: x[0], trace.state)
    mask, out = replay(start, swapped, down)
    np.testing.assert_array_equal(mask, trace.ref.mask)
    mine, theirs = trace.outcome, out
    for name in ("equity", "end", "stats", "terms"):
        assert worlds.leaves_differ(getattr(mine.info, name), getattr(theirs.info, name)) == [], (
            name
        )
    assert worlds.leaves_differ(mine.reward, theirs.reward) == []
    for kind in ("order_exit", "entry", "exit"):
        filled = np.asarray(getattr(mine.info.event, f"{kind}_quantity"))
        np.testing.assert_array_equal(
            filled, -np.asarray(getattr(theirs.info.event, f"{kind}_quantity"))
        )
        price, other = (np.asarray(getattr(x.info.event, f"{kind}_price")) for x in (mine, theirs))
        np.testing.assert_array_equal(price[filled != 0], 40_000 - other[filled != 0])
    assert np.isin([EndReason.BUST, EndReason.SESSION_END], np.asarray(mine.info.end)).all()
    assert {int(x) for x in np.unique(mine.info.event.exit_reason)} >= set(ExitReason) - {
        ExitReason.ORDER,
        ExitReason.END_OF_DATA,
    }


@pytest.mark.slow
def test_orders_without_brackets_are_never_stopped():
    """No stop, no target: with rules off only an order or the flat bar can end the position."""
    market = walk_market(13, sessions=2)
    params = make_params(market, costs=contract(slippage=0))
    env = TradingEnv(EnvConfig())
    state = env.reset_at(params, 0, int(market.sessions.first[0]))
    orders = jax.tree.map(
        lambda x: jnp.full(110, x, jnp.int32), Order(*map(i32, (1, 0, 0, KEEP_STOP, -1)))
    )
    equity, sides, quantity = map(np.asarray, jax.jit(equity_path)(params, state, orders))
    first = int(market.sessions.first[0]) + 1
    expected = (
        np.asarray(market.close)[first : first + 110] - int(market.open[first])
    ) * worlds.TICK_MILLS
    np.testing.assert_array_equal(equity[:-1], expected[:-1] - worlds.COMMISSION)
    assert equity[-1] == expected[-1] - 2 * worlds.COMMISSION
    assert (sides[-1], quantity[-1]) == (2, 0)
