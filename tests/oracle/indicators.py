"""Indicators recomputed from bars with plain loops: the oracle trusts no table of the market it is
given.

Windows count the bars since the last restart (first bar of the file, a splice, a long hole). NaN
where a window has too few bars. Prices come in integer ticks; `tick` turns them into points where a
formula is not free of scale.
"""

import math

NAN = math.nan


def window_ages(count, restarts):
    """Bars of the same window up to and with each bar: 1 at a restart."""
    begins, ages, age = {0, *restarts}, [], 0
    for i in range(count):
        age = 1 if i in begins else age + 1
        ages.append(age)
    return ages


def true_ranges(high, low, close, ages):
    """max(high, previous close) - min(low, previous close) in ticks; None at the first bar of a
    window.
    """
    return [
        None if ages[i] == 1 else max(high[i], close[i - 1]) - min(low[i], close[i - 1])
        for i in range(len(high))
    ]


def range_sums(ranges, ages, length=14):
    """Sum of the last `length` true ranges; -1 until that many exist."""
    return [
        sum(ranges[i - length + 1 : i + 1]) if ages[i] > length else -1  # type: ignore[arg-type]
        for i in range(len(ranges))
    ]


def mean_of_last(values, ages, length):
    return [
        math.fsum(values[i - length + 1 : i + 1]) / length if ages[i] >= length else NAN
        for i in range(len(values))
    ]


def running_mean(values, ages, span):
    """Exponential mean of weight 2/(span+1) that starts at the window's first value (pandas
    `adjust=False`).
    """
    weight, out, mean = 2.0 / (span + 1.0), [], 0.0
    for value, age in zip(values, ages, strict=True):
        mean = float(value) if age == 1 else mean + weight * (value - mean)
        out.append(mean)
    return out


def seeded_mean(values, ages, length, weight):
    """Exponential mean that starts as the simple mean of the window's first `length` values; None
    values come first.

    weight 2/(N+1) is the textbook's EMA, 1/N is Wilder's smoothing.
    """
    out = []
    first = []
    mean = NAN
    for value, age in zip(values, ages, strict=True):
        if age == 1:
            first, mean = [], NAN
        if value is not None and len(first) < length:
            first.append(value)
            mean = math.fsum(first) / length if len(first) == length else NAN
        elif value is not None:
            mean += weight * (value - mean)
        out.append(mean)
    return out


def wilder_strength(close, ages, length):
    """The textbook's RSI: 100 G/(G+L) with Wilder's means of rises and falls; 0 where nothing moved
    (as TA-Lib).
    """
    changes = [None if ages[i] == 1 else close[i] - close[i - 1] for i in range(len(close))]
    gains = seeded_mean(
        [None if c is None else max(c, 0) for c in changes], ages, length, 1 / length
    )
    losses = seeded_mean(
        [None if c is None else max(-c, 0) for c in changes], ages, length, 1 / length
    )
    return [0.0 if g + x == 0 else 100.0 * g / (g + x) for g, x in zip(gains, losses, strict=True)]


def relative_strength(close, ages, length, tick):
    """100 - 100/(1 + mean gain/(mean loss + 1e-8)) over `length` changes in points, simple means
    (not Wilder's).
    """
    out = []
    for i in range(len(close)):
        if ages[i] <= length:
            out.append(NAN)
            continue
        changes = [close[j] - close[j - 1] for j in range(i - length + 1, i + 1)]
        gain = sum(c for c in changes if c > 0) * tick / length
        loss = -sum(c for c in changes if c < 0) * tick / length
        out.append(100.0 - 100.0 / (1.0 + gain / (loss + 1e-8)))
    return out


def day_vwap(
    high,
    low,
    close,
    volume,
    dates,
    has_volume,
):
    """sum(close * volume)/sum(volume) since the trade date began; the mean of (high+low+close)/3
    before any volume.
    """
    out = []
    money = traded = typical = bars = 0.0
    for i in range(len(close)):
        if i == 0 or dates[i] != dates[i - 1]:
            money = traded = typical = bars = 0.0
        if has_volume:
            money, traded = money + close[i] * volume[i], traded + volume[i]
        typical, bars = typical + (high[i] + low[i] + close[i]) / 3.0, bars + 1.0
        out.append(money / traded if traded > 0 else typical / bars)
    return out
