"""Generated bars made to be awkward: gaps over brackets, reversals inside one bar, exact touches,
missing bars.
"""

import numpy as np

from tests.differential.reference import true_ranges
from tests.env import worlds
from tests.env.worlds import Session

START_PRICE = 40_000  # ticks, far above any walk below


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
    first, last = start + int(inside[0]), start + int(inside[-2])
    row = Session(start, start + len(minutes), first, last)
    return np.maximum(flat_minute - minutes, 0).tolist(), row


def market(seed, sessions):
    """A market of many short sessions, each with its own volatility. The true-range window starts
    anew at every tenth, and the data end inside the last one where `seed` is odd.

    """
    rng = np.random.default_rng(seed)
    to_flat = []
    table = []
    for _ in range(sessions):
        part, row = _session(rng, len(to_flat))
        to_flat += part
        table.append(row)
    # the reference engine takes no decision on bar 0
    table[0] = table[0]._replace(first=max(table[0].first, 1))
    table[-1] = table[-1]._replace(complete=seed % 2 == 0)
    pieces = []
    for row, volatility in zip(table, rng.choice([1.2, 3.0, 9.0], sessions), strict=True):
        close = int(pieces[-1][-1, 3]) if pieces else START_PRICE
        pieces.append(bars(rng, row.end - row.start, volatility, close))
    ohlc = np.concatenate(pieces)
    tr_sum = np.convolve(true_ranges(ohlc), np.ones(14, np.int64))[: len(ohlc)]
    for row in table[::10]:
        tr_sum[row.start : row.start + 14] = -1
    made = worlds.make_market(worlds.Bars(*ohlc.T), table, tr_sum)
    return made.replace(bars_to_flat=worlds.i32(to_flat))


def rules_off(data):
    """Parameters without account rules: all sessions in one episode, $5 a tick, $2.04 a side."""
    sessions = data.sessions.first.shape[0]
    costs = worlds.contract(2_040, 0, 5_000, min_stop=1)
    return worlds.make_params(data, costs=costs, episode_sessions=sessions)
