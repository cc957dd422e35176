"""The old system's other columns, bar by bar with plain loops over the last bars of a window; NaN
where too few.

Prices in ticks. Nothing is shared with the package: not its rolling sums, not its list of names.
"""

import bisect
import datetime as dt
import functools
import math
import statistics
from zoneinfo import ZoneInfo

from tests.oracle import indicators


class Tape:
    """The bars of a market with what the figures below have in common."""

    def __init__(self, bars, tick):
        self.bars, self.tick = bars, tick
        self.ages = indicators.window_ages(len(bars.close), bars.restarts)
        self.volume = [float(v) if bars.has_volume else 0.0 for v in bars.volume]
        self.typical = [
            h + lo + c for h, lo, c in zip(bars.high, bars.low, bars.close, strict=True)
        ]
        self.ranges = indicators.true_ranges(bars.high, bars.low, bars.close, self.ages)
        self.sums = indicators.range_sums(self.ranges, self.ages)
        self.atr = [s / 14 if s >= 0 else math.nan for s in self.sums]

    @functools.cached_property
    def dx(self):
        """100 |+DI - -DI| / (+DI + -DI) of every bar, 0 where nothing moved."""

        def of(i):
            plus, minus = directional(self, i)
            return 100.0 * abs(plus - minus) / (plus + minus) if plus + minus else 0.0

        return self.rows(of, 15)

    def rows(self, figure, need):
        """figure(i) where the window holds at least `need` bars up to and with i."""
        return [figure(i) if age >= need else math.nan for i, age in enumerate(self.ages)]


def last(values, i, n):
    return values[i - n + 1 : i + 1]


def percent_k(tape, i):
    top, bottom = max(last(tape.bars.high, i, 14)), min(last(tape.bars.low, i, 14))
    return 50.0 if top == bottom else 100.0 * (tape.bars.close[i] - bottom) / (top - bottom)


def cci(tape, i):
    def away(j):
        return tape.typical[j] - math.fsum(last(tape.typical, j, 20)) / 20

    deviation = math.fsum(abs(away(j)) for j in range(i - 19, i + 1)) / 20
    return away(i) / (0.015 * deviation) if deviation > 1e-9 else 0.0


def directional(tape, i):
    high, low = tape.bars.high, tape.bars.low
    up = sum(max(high[j] - high[j - 1], 0) for j in range(i - 13, i + 1))
    down = sum(max(low[j - 1] - low[j], 0) for j in range(i - 13, i + 1))
    ranges = tape.atr[i] * 14
    return (100.0 * up / ranges, 100.0 * down / ranges) if ranges else (0.0, 0.0)


def adx(tape, i):
    return sum(last(tape.dx, i, 14)) / 14


def mfi(tape, i):
    inflow = outflow = 0.0
    for j in range(i - 13, i + 1):
        flow = tape.typical[j] * tape.volume[j]
        inflow += flow if tape.typical[j] > tape.typical[j - 1] else 0.0
        outflow += flow if tape.typical[j] < tape.typical[j - 1] else 0.0
    return 100.0 * inflow / (inflow + outflow) if inflow + outflow else 50.0


def ratio(tape, i, n):
    mean = math.fsum(last(tape.volume, i, n)) / n
    return tape.volume[i] / mean if mean else 1.0


def efficiency(tape, i):
    path = math.fsum(last(tape.atr, i, 20))
    return abs(tape.bars.close[i] - tape.bars.close[i - 20]) / path if path else 0.0


def percentile(tape):
    """Rank among the ATRs of the window so far (the last 98,280 of them), ties at their mean
    rank.
    """
    out, seen, order = [], [], []
    for age, value in zip(tape.ages, tape.atr, strict=True):
        if age == 1:
            seen, order = [], []
        if not math.isnan(value):
            seen.append(value)
            bisect.insort(order, value)
            if len(seen) > 98_280:
                order.remove(seen[-98_281])
        below = bisect.bisect_left(order, value)
        upto = bisect.bisect_right(order, value)
        out.append((below + 1 + upto) / 2 / len(order) if len(order) >= 100 else math.nan)
    return out


def session(tape, name):
    def of(stamp):
        moment = dt.datetime.fromtimestamp(stamp, ZoneInfo("America/New_York"))
        clock = moment.hour, moment.minute
        if (9, 30) <= clock < (11, 0):
            return "morning"
        if (11, 0) <= clock < (14, 0):
            return "midday"
        return "afternoon" if (14, 0) <= clock < (17, 0) else "closed"

    return [float(of(stamp) == name) for stamp in tape.bars.stamps]


def vwap(tape):
    bars = tape.bars
    return indicators.day_vwap(
        bars.high, bars.low, bars.close, bars.volume, bars.trade_date, bars.has_volume
    )


def back(tape, n):
    close = tape.bars.close
    return tape.rows(lambda i: (close[i] - close[i - n]) / close[i - n], n + 1)


COLUMNS = {
    "open": lambda t: t.bars.open,
    "high": lambda t: t.bars.high,
    "low": lambda t: t.bars.low,
    "volatility": lambda t: t.rows(lambda i: statistics.stdev(last(t.bars.close, i, 20)), 20),
    "bb_width": lambda t: t.rows(
        lambda i: (
            4
            * statistics.stdev(last(t.bars.close, i, 20))
            / statistics.fmean(last(t.bars.close, i, 20))
        ),
        20,
    ),
    "stoch_k": lambda t: t.rows(lambda i: percent_k(t, i), 14),
    "stoch_d": lambda t: t.rows(
        lambda i: statistics.fmean(percent_k(t, j) for j in (i - 2, i - 1, i)), 16
    ),
    "williams_r": lambda t: t.rows(lambda i: percent_k(t, i) - 100.0, 14),
    "cci": lambda t: t.rows(lambda i: cci(t, i), 39),
    "adx": lambda t: t.rows(lambda i: adx(t, i), 28),
    "roc": lambda t: back(t, 10),
    "mfi": lambda t: t.rows(lambda i: mfi(t, i), 15),
    "vol_regime": lambda t: t.rows(lambda i: statistics.stdev(last(t.atr, i, 20)), 34),
    "vol_percentile": percentile,
    "plus_di": lambda t: t.rows(lambda i: directional(t, i)[0], 15),
    "minus_di": lambda t: t.rows(lambda i: directional(t, i)[1], 15),
    "trend_strength": lambda t: t.rows(lambda i: float(adx(t, i) > 25) - float(adx(t, i) < 20), 28),
    "price_to_vwap": lambda t: [c / v - 1 for c, v in zip(t.bars.close, vwap(t), strict=True)],
    "spread": lambda t: t.rows(lambda i: (t.bars.high[i] - t.bars.low[i]) / t.bars.close[i], 1),
    "efficiency_ratio": lambda t: t.rows(lambda i: efficiency(t, i), 34),
    "session_morning": lambda t: session(t, "morning"),
    "session_midday": lambda t: session(t, "midday"),
    "session_afternoon": lambda t: session(t, "afternoon"),
    "session_closed": lambda t: session(t, "closed"),
    "rsi_15min": lambda t: indicators.relative_strength(t.bars.close, t.ages, 15, t.tick),
    "rsi_60min": lambda t: indicators.relative_strength(t.bars.close, t.ages, 60, t.tick),
    "volume_ratio_5min": lambda t: t.rows(lambda i: ratio(t, i, 5), 5),
    "volume_ratio_20min": lambda t: t.rows(lambda i: ratio(t, i, 20), 20),
    "support_20": lambda t: t.rows(lambda i: min(last(t.bars.low, i, 20)), 20),
    "resistance_20": lambda t: t.rows(lambda i: max(last(t.bars.high, i, 20)), 20),
    "price_change_60min": lambda t: back(t, 60),
}
# How an observation shows them; those not named here are shown as they are in both scalings.
LEVELS = ("open", "high", "low", "support_20", "resistance_20")  # and close, sma, ema, vwap
DEVIATIONS = ("volatility", "vol_regime")  # ticks
OF_PRICE = ("bb_width", "roc", "price_to_vwap", "spread", "price_change_60min")
CENTRED = {  # (middle, scale)
    "williams_r": (-50, 50),
    "cci": (0, 100),
    "volume_ratio_5min": (1, 1),
    "volume_ratio_20min": (1, 1),
    **dict.fromkeys(("stoch_k", "stoch_d", "adx", "mfi", "plus_di", "minus_di"), (50, 50)),
}
