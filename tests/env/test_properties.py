"""Properties of whole runs: exact accounting, monotone costs, mirror symmetry."""

import functools
from fractions import Fraction
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import (
    KEEP_STOP,
    EndReason,
    ExitReason,
    Order,
)
from tests import compiling
from tests.env import worlds
from tests.env.worlds import i32, make_params, rules, run_random, walk_market
from tests.paths import mirrored, random_paths
from tests.quotes import random_ask

pytestmark = pytest.mark.slow

ENVS, STEPS = 48, 400
STRICT = {"drawdown": 1_000_000, "daily_loss": 700_000, "target": 1_200_000, "floor_cap": 100_000}
CASES = {
    "headline": (EnvConfig(quantity=2), STRICT),
    "entry": (EnvConfig(task="entry", quantity=2), STRICT),
    "optimistic": (EnvConfig(mark="close", fill="close", quantity=2), STRICT),
    "rules_off": (EnvConfig(quantity=2), {}),
    "converted": (EnvConfig(quantity=2), STRICT),
    "two_sided": (EnvConfig(intrabar="path", quantity=2), STRICT),
}


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


@pytest.mark.parametrize("case", list(CASES))
def test_accounting_is_exact_in_mills(case):
    """start + profit of fills - commissions == balance, and equity marks the rest at the close, in
    Python integers.
    """
    config, limits = CASES[case]
    two_sided = case == "two_sided"
    market = walk_market(3, paths=config.intrabar == "path", two_sided=two_sided, step=8)
    if case == "converted":
        market = worlds.with_rates(market)
    params = make_params(market, account=rules(**limits), episode_sessions=2)
    trace = jax.tree.map(np.asarray, run_random(TradingEnv(config), params, 1, ENVS, STEPS))
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


def equity_path(params, state, orders, intrabar="stop_first"):
    """int32[steps] equity at every bar and the sides filled, for orders through the public
    transition.
    """
    env = TradingEnv(EnvConfig(intrabar=intrabar))

    def body(state, order):
        state, _ = env.transition(state, order, params)
        return state, (state.account.equity, state.stats.sides, state.position.quantity)

    return jax.lax.scan(body, state, orders)[1]


@pytest.mark.parametrize(
    ("intrabar", "name"),
    [("stop_first", "commission"), ("nearer_extreme", "commission"), ("path", "slippage")],
)
def test_equity_never_rises_with_costs(name, intrabar):
    """Same orders, rules off: equity at every bar is non-increasing in commission and slippage, and
    each extra cent of commission takes exactly ten mills per contract side from the final equity.
    """
    values = [0, 10, 20, 500, 2_080] if name == "commission" else [0, 1, 2, 5]
    base = make_params(walk_market(11, paths=True))
    play = functools.partial(equity_path, intrabar=intrabar)
    axes = jax.tree.map(lambda _: None, base)
    axes = axes.replace(contract=axes.contract.replace(**{name: 0}))
    paths = jax.jit(jax.vmap(play, (axes, None, None)), compiler_options=compiling.fast())
    grid = base.replace(contract=base.contract.replace(**{name: i32(values)}))
    total = 0
    for slot in range(8):
        state = TradingEnv(EnvConfig()).reset_at(base, slot, base.market.sessions.first[slot])
        equity, sides, quantity = map(np.asarray, paths(grid, state, random_orders(slot, 110)))
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


@pytest.mark.parametrize(
    ("mark", "intrabar"),
    [("extreme", "path"), ("extreme", "nearer_extreme"), ("close", "stop_first")],
)
def test_long_and_short_are_mirror_images(mark, intrabar):
    """Bars upside down and BUY for SELL: the same masks, equity, rewards and ends, fill prices
    mirrored. The ask upside down is the bid, and the other way round.
    """
    env = TradingEnv(EnvConfig(mark=mark, intrabar=intrabar, quantity=2))
    bars = worlds.random_bars(21, 8 * 160, step=8)
    limits = rules(**STRICT)
    inside = random_paths(21, *bars)
    ask = worlds.Bars(*random_ask(21, *bars))
    ask_inside = random_paths(22, *ask)
    sums = worlds.true_range_sums(
        bars
    )  # of one side for both: a mid rounds down, its mirror image up
    sessions = worlds.even_sessions(8, 160)

    def params_of(bid, ask, paths, ask_paths):
        market = worlds.two_sided_market(bid, ask, sessions, sums, paths, ask_paths)
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
