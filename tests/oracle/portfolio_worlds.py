"""Worlds for `allocate`, for both engines: random bars of several symbols, and the oracle's shared
bars on the device.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.data.features.schema import DUAL_FEATURES
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.state import (
    CostParams,
    JointMarket,
    LimitParams,
    PortfolioParams,
)
from jaxtrade.env.state import OFF, ContractParams, EndReason, ExitReason, Trailing
from jaxtrade.types import MarketView, Quotes, SessionSet, SessionTable, TickValue
from tests.env import worlds
from tests.env.worlds import i32
from tests.oracle.portfolio import PortfolioOracle, Side, Symbol

ENDS = {
    "": EndReason.NONE,
    "bust": EndReason.BUST,
    "daily": EndReason.DAILY_LOSS,
    "target": EndReason.TARGET,
    "session": EndReason.SESSION_END,
    "steps": EndReason.STEP_LIMIT,
}
REASONS = {"liquidation": ExitReason.LIQUIDATION, "flat": ExitReason.FLAT}
PRICES = ("open", "high", "low", "close")


def random_symbol(
    seed,
    days,
    price=20_000,
    step=12,
    rates=(1000, 1, 0),
    two_sided=False,
    missing=0.1,
):
    """`days` sessions of 30 bars, of which some are missing. rates: numerator, denominator, and how
    far it wanders.
    """
    rng = np.random.default_rng([seed, 1])
    slots = [
        day * 1000 + minute
        for day in range(days)
        for minute in range(30)
        if minute in (0, 1, 29) or rng.random() > missing
    ]
    bars = worlds.random_bars(seed, len(slots), step, step - 1, price=price)
    bid = Side(*(prices.tolist() for prices in bars))
    ask = bid
    if two_sided:
        spread = rng.integers(0, 4, len(slots))
        ask = Side(
            *(
                [p + int(d) for p, d in zip(getattr(bid, name), spread, strict=True)]
                for name in PRICES
            )
        )
    times, over, far = rates
    sessions = {}
    for day in range(days):
        rows = [i for i, slot in enumerate(slots) if slot // 1000 == day]
        sessions[day] = (rows[0], rows[-1])
    return Symbol(
        [slot * 60 for slot in slots],
        bid,
        ask,
        [(times, over + int(rng.integers(0, far + 1))) for _ in slots],
        [29 - slot % 1000 for slot in slots],
        [i >= 14 for i in range(len(slots))],
        sessions,
    )


def stack(columns):
    return jnp.asarray(
        np.stack([np.asarray(c, np.int64) for c in columns], axis=1).astype(np.int32)
    )


def joint_market(shared):
    """The oracle's shared bars as the environment holds them. Features are of no interest here: all
    are 0.
    """
    symbols = shared.symbols
    first, flat = (np.array(x, np.int32) for x in zip(*shared.sessions, strict=True))
    one_sided = all(s.ask == s.bid for s in symbols)
    dollars = all(over == 1 and times == s.rates[0][0] for s in symbols for times, over in s.rates)
    length = [max(rows) + 1 for rows in shared.rows]
    views = tuple(
        MarketView(
            jnp.zeros((n, 3)), None, jnp.ones((n, 4)), context=jnp.zeros((n, len(DUAL_FEATURES)))
        )
        for n in length
    )
    return JointMarket(
        **{name: stack([getattr(s.bid, name) for s in symbols]) for name in PRICES},
        rows=stack(shared.rows),
        tr_sum=jnp.where(
            jnp.array([all(s.warm[i] for s in symbols) for i in range(len(symbols[0].warm))]), 0, -1
        ),
        bars_to_flat=stack([s.to_flat for s in symbols]).min(axis=1),
        sessions=SessionTable(
            *(
                jnp.asarray(x)
                for x in (first, flat + 1, first, flat - 1, first, np.ones(len(first), bool))
            )
        ),
        views=views,
        fingerprint=jnp.zeros(8, jnp.uint32),
        ask=None
        if one_sided
        else Quotes(*(stack([getattr(s.ask, name) for s in symbols]) for name in PRICES)),
        tick_value=None
        if dollars
        else TickValue(
            stack([[t for t, _ in s.rates] for s in symbols]),
            stack([[o for _, o in s.rates] for s in symbols]),
        ),
    )


def leaves(values, count):
    return jnp.asarray(list(values) * (count if len(values) == 1 else 1), jnp.int32)


def limit(value):
    return i32(OFF if value is None else value)


def portfolio_params(shared, settings, market=None):
    """The traced half of the environment, straight from the oracle's settings."""
    count, sessions = len(shared.symbols), len(shared.sessions)
    market = joint_market(shared) if market is None else market
    mills = (
        None
        if market.tick_value is not None
        else leaves([s.rates[0][0] for s in shared.symbols], count)
    )
    contract = ContractParams(
        mills,
        leaves(settings.commission, count),
        leaves(settings.slippage, count),
        leaves([1], count),
        leaves([0], count),
        jnp.ones(count),
    )
    account = worlds.rules(
        settings.drawdown,
        settings.daily_loss,
        settings.target,
        settings.floor_cap,
        settings.min_days,
        fail_on_daily_loss=settings.fail_on_daily_loss,
        max_contracts=settings.max_contracts,
        risk_unit=settings.risk_unit,
        trailing=Trailing.INTRADAY
        if settings.drawdown is None
        else Trailing[settings.trailing.upper()],
    )
    costs = CostParams(
        i32(settings.fee),
        i32(1000 * settings.cost_hundredths) if settings.cost_hundredths else None,
        i32(settings.impact_tenths) if settings.impact_tenths else None,
        i32(settings.impact_base),
    )
    limits = LimitParams(
        leaves(settings.size, count),
        i32(settings.max_units),
        limit(settings.max_total),
        i32(settings.cooldown),
        i32(settings.gate),
        limit(settings.trades_per_day),
    )
    return PortfolioParams(
        market,
        SessionSet(jnp.arange(sessions, dtype=jnp.int32), i32(sessions)),
        contract,
        account,
        costs,
        limits,
        {"equity_change": jnp.float32(1)},
        i32(settings.episode_sessions),
        i32(settings.max_steps),
    )


def portfolio_env(settings, symbols):
    allocate = AllocateConfig(actions=settings.actions, max_units=settings.max_units)  # type: ignore[arg-type]
    return PortfolioEnv(EnvConfig(task="allocate", features=()), allocate, tuple(symbols))


def pick(mask, uniform):
    """Any action, legal or not, in 1 of 20 cases; else a legal one, every one equally likely."""
    count = mask.shape[-1]
    legal = jnp.argmax(jnp.cumsum(mask) > jnp.floor(uniform * 20 % 1 * mask.sum())).astype(
        jnp.int32
    )
    return jnp.where(uniform < 0.05, (uniform * 20 * count).astype(jnp.int32), legal)


def run(env, params, seed, steps):
    """Random actions of one environment with auto-reset; leaves [steps, ...]."""
    trace = worlds.run_random(env, params, seed, 1, steps, pick)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], trace)


def assert_same_account(state, oracle):
    """Every figure of the account and of its legs is the oracle's."""
    account, legs = state.account, state.legs
    assert (legs.quantity.tolist(), legs.paid.tolist(), legs.mark.tolist()) == (
        [leg.quantity for leg in oracle.legs],
        [leg.paid for leg in oracle.legs],
        [leg.mark for leg in oracle.legs],
    )
    assert (
        int(account.balance),
        int(account.equity),
        int(account.high_water),
        bool(account.locked),
        int(account.days),
        int(state.row),
        int(state.orders),
    ) == (
        oracle.balance,
        oracle.equity,
        oracle.high_water,
        oracle.locked,
        oracle.days,
        oracle.row,
        oracle.orders_today,
    )


def compare(trace, shared, settings):
    """Play the trace's actions in the oracle; every figure of every step must be equal. Returns
    counts of events.
    """
    oracle = PortfolioOracle(shared, settings)
    counts = dict.fromkeys((*ENDS, "liquidation", "breach", "illegal", "orders"), 0)
    fresh = True
    for t in range(len(trace.action)):
        state, ref, outcome = (
            jax.tree.map(lambda leaf, t=t: leaf[t], each)
            for each in (trace.state, trace.ref, trace.outcome)
        )
        info, event = outcome.info, outcome.info.event
        if fresh:
            oracle.reset(int(state.slot), int(state.row))
        assert_same_account(state, oracle)
        assert ref.mask.tolist() == oracle.mask(), t
        result = oracle.step(int(trace.action[t]))
        bar, end = result["bar"], result["end"]
        assert ENDS[end] == int(info.end), (t, end)
        found = {name: getattr(event, name).tolist() for name in ("cash", "cost", "profit")} | {
            "turnover": int(event.turnover),
            "breach": bool(event.breach),
            "fills": fills_of(event),
            "floor": None if settings.drawdown is None else int(event.floor),
            "equity": int(info.equity),
            "illegal": bool(info.illegal),
        }
        expected = vars(bar) | {"fills": sorted(bar.fills), "equity": oracle.equity}
        expected["illegal"] = result["illegal"]
        assert found == expected, (
            t,
            {k: (found[k], expected[k]) for k in found if found[k] != expected[k]},
        )
        np.testing.assert_allclose(outcome.reward, result["reward"], rtol=1e-6, atol=1e-9)
        assert bool(outcome.terminated) == result["terminated"]
        assert bool(outcome.truncated) == result["truncated"]
        fresh = bool(end)
        counts[end] += 1
        counts["liquidation"] += any(fill[3] == "liquidation" for fill in bar.fills)
        counts["breach"] += bar.breach
        counts["illegal"] += result["illegal"]
        counts["orders"] += any(fill[3] == "order" for fill in bar.fills)
    return counts


def fills_of(event):
    """(symbol, signed change, price, why) of a bar, sorted as the oracle's."""
    found = []
    for kind in ("close", "open", "exit"):
        for s, quantity in enumerate(getattr(event, f"{kind}_quantity").tolist()):
            if quantity:
                why = (
                    {v: k for k, v in REASONS.items()}[ExitReason(int(event.exit_reason[s]))]
                    if kind == "exit"
                    else ("order")
                )
                found.append((s, quantity, int(getattr(event, f"{kind}_price")[s]), why))
    return sorted(found)
