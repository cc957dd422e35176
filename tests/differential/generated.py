"""Generated bars made to be awkward: gaps over brackets, reversals inside one bar, exact touches,
missing bars.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxtrade.env.state import (
    OFF,
    AccountParams,
    BracketParams,
    ContractParams,
    EnvParams,
    Trailing,
)
from jaxtrade.types import MarketData, MarketView, Quotes, SessionSet, SessionTable, TickValue
from tests.differential.reference import true_ranges
from tests.quotes import random_ask

START_PRICE = 40_000  # ticks, far above any walk below


def unseen(count):
    """A float view of `count` bars for runs that never look."""
    return MarketView(value=jnp.zeros((count, 1)), level=None, now=jnp.zeros((count, 4)))


def bars(rng, count, volatility, close):
    """int64[count, 4] open, high, low, close in ticks, following a bar that closed at `close`.

    One bar in eight opens away from the last close, and half of those turn round inside the bar;
    small volatilities make touches to the tick common.
    """
    out = np.zeros((count, 4), np.int64)
    for i in range(count):
        gap = rng.random() < 0.125
        jump = round(rng.normal(0, 5 * volatility)) if gap else int(rng.integers(-1, 2))
        opened = close + jump
        back = -jump * rng.uniform(0.5, 2.5) if gap and rng.random() < 0.5 else 0
        pull = 0.002 * (START_PRICE - opened)
        close = opened + round(back + pull + rng.normal(0, volatility))
        wicks = rng.exponential(volatility / 2, 2).round().astype(int)
        out[i] = opened, max(opened, close) + wicks[0], min(opened, close) - wicks[1], close
    return out


def _session(rng, start):
    """One session -> (bars to flat of each of its rows, its row of the session table). Minutes may
    be missing, so the flat bar may come early: a position can then open in it."""
    before, window, after = rng.integers(0, 20), rng.integers(20, 70), rng.integers(0, 4)
    flat_minute = before + window - 1  # the minute whose bar should close at flat time
    minutes = np.arange(before + window + after)
    present = rng.random(len(minutes)) > (0.1 if rng.random() < 0.3 else 0)
    present[[0, before, before + 1]] = True
    minutes = minutes[present]
    inside = np.flatnonzero((minutes >= before) & (minutes <= flat_minute))
    row = {
        "start": start,
        "end": start + len(minutes),
        "first": start + int(inside[0]),
        "last": start + int(inside[-2]),
    }
    return np.maximum(flat_minute - minutes, 0).tolist(), row


def market(seed, sessions, two_sided=False, converted=False):
    """A market of many short sessions, each with its own volatility. The true-range window starts
    anew at every tenth, and the data end inside the last one where `seed` is odd.

    converted: profits arise in another currency, at the market's own price: about $5 a tick.
    """
    rng = np.random.default_rng(seed)
    to_flat: list[int] = []
    table: list[dict[str, int]] = []
    for _ in range(sessions):
        part, row = _session(rng, len(to_flat))
        to_flat += part
        table.append(row)
    table[0]["first"] = max(table[0]["first"], 1)  # the reference engine takes no decision on bar 0
    pieces = []
    for row, volatility in zip(table, rng.choice([1.2, 3.0, 9.0], sessions), strict=True):
        close = int(pieces[-1][-1, 3]) if pieces else START_PRICE
        pieces.append(bars(rng, row["end"] - row["start"], volatility, close))
    ohlc = np.concatenate(pieces)
    ask = np.stack(random_ask(seed, *ohlc.T.tolist()), axis=1) if two_sided else ohlc
    tr_sum = np.convolve(true_ranges((ohlc + ask) // 2), np.ones(14, np.int64))[: len(ohlc)]
    for row in table[::10]:
        tr_sum[row["start"] : row["start"] + 14] = -1
    complete = np.ones(sessions, bool)
    complete[-1] = seed % 2 == 0
    ints = {
        name: jnp.asarray([row[name] for row in table], jnp.int32)
        for name in ("start", "end", "first", "last")
    }
    column, other = ([jnp.asarray(side[:, i], jnp.int32) for i in range(4)] for side in (ohlc, ask))
    return MarketData(
        *column,
        tr_sum=jnp.asarray(tr_sum, jnp.int32),
        bars_to_flat=jnp.asarray(to_flat, jnp.int32),
        sessions=SessionTable(
            **ints, date=jnp.arange(sessions, dtype=jnp.int32), complete=jnp.asarray(complete)
        ),
        view=unseen(len(ohlc)),
        fingerprint=jnp.zeros(8, jnp.uint32),
        ask=Quotes(*other) if two_sided else None,
        tick_value=TickValue(jnp.full_like(column[0], 5_000 * START_PRICE), column[0])
        if converted
        else None,
    )


def rules_off(
    data,
    *,
    tick_mills=5_000,
    commission=2_040,
    slippage=0,
    min_stop=1,
    be_ticks=1,
    stop_atr=1500,
    target_multiple=3,
    trail_atr=1000,
):
    """Parameters without account rules. Money in mills, multiples in thousandths of ATR."""
    sessions = data.sessions.first.shape[0]
    return EnvParams(
        market=data,
        sessions=SessionSet(jnp.arange(sessions, dtype=jnp.int32), jnp.int32(sessions)),
        contract=ContractParams(
            None if data.tick_value is not None else jnp.int32(tick_mills),
            *map(jnp.int32, (commission, slippage, min_stop, be_ticks)),
            tick_size=jnp.float32(0.25),
        ),
        account=AccountParams(
            *map(jnp.int32, (OFF, OFF, OFF, OFF, 0)),
            stop_at_target=jnp.bool_(False),
            fail_on_daily_loss=jnp.bool_(False),
            max_contracts=jnp.int32(100),
            risk_unit=jnp.float32(500_000),
            start_balance=jnp.float32(50_000_000),
            trailing=jnp.int32(Trailing.INTRADAY),
        ),
        brackets=BracketParams(*map(jnp.int32, (stop_atr, target_multiple, trail_atr))),
        reward_weights={"equity_change": jnp.float32(1)},
        episode_sessions=jnp.int32(sessions),
        max_steps=jnp.int32(0),
    )
