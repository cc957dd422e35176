"""Small random markets and action habits in which every kind of event happens often.

Ten-minute bars, New York sessions 09:30-16:59 with some bars before the opening, trend and chop by
session, gaps, tall bars, missing bars, half days, and (on request) data that end inside the last
session.
"""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np

from tests.oracle.model import Bars, Session

NEW_YORK = ZoneInfo("America/New_York")
UTC = dt.UTC
BAR_SECONDS, LEVEL = 600, 6_800
WARM_UP = 39  # rows before the first decision: a window of 20 bars, each with its 20-bar mean

# Preferences over HOLD, BUY, SELL, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, DISABLE_TRAIL, CLOSE; one
# row per habit.
HABITS = {
    "churn": (1.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0),
    "patient": (2.0, 5.0, 5.0, 0.02, 0.02, 0.02, 0.02),
    "breakeven": (1.0, 9.0, 9.0, 40.0, 0.01, 0.01, 0.01),
    "trail": (2.0, 9.0, 9.0, 60.0, 60.0, 0.05, 0.01),
    "switch": (1.0, 6.0, 6.0, 20.0, 20.0, 10.0, 0.3),
    "buyer": (0.3, 9.0, 0.1, 0.1, 0.1, 0.1, 0.05),
    "seller": (0.3, 0.1, 9.0, 0.1, 0.1, 0.1, 0.05),
    "rare": (12.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
}


def eastern(day, hour, minute):
    """UTC seconds of a New York wall-clock time."""
    return int(dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=NEW_YORK).timestamp())


def weekdays(start, count):
    days, day = [], start
    while len(days) < count:
        if day.weekday() < 5:
            days.append(day)
        day += dt.timedelta(days=1)
    return days


def random_market(
    seed,
    sessions=8,
    *,
    incomplete=False,
    volatility=4.0,
    warm_up=WARM_UP,
):
    """A market of `sessions` sessions (10/7/2013 on, so a change of clocks comes with enough of
    them), less those that end before row `warm_up`, the first that may be decided on."""
    rng = np.random.default_rng(seed)
    stamps = []
    opens = []
    flats = []
    dates = []
    table = []
    days = weekdays(dt.date(2013, 10, 7), sessions)
    for index, day in enumerate(days):
        flat = eastern(day, 13, 14) if index in (2, 5) else eastern(day, 16, 59)
        opening = eastern(day, 9, 30)
        begin, last_close = eastern(day, 6, 0), eastern(day, 18, 0)
        rows = [s for s in range(begin, last_close, BAR_SECONDS) if rng.random() >= 0.03]
        if incomplete and index == sessions - 1:
            rows = [s for s in rows if s < flat - BAR_SECONDS * 6]
        first_row = len(stamps)
        stamps += rows
        opens += [opening] * len(rows)
        flats += [flat] * len(rows)
        dates += [(day - dt.date(1970, 1, 1)).days] * len(rows)
        decide = [
            first_row + i for i, s in enumerate(rows) if s >= opening and first_row + i >= warm_up
        ]
        fits = [first_row + i for i, s in enumerate(rows) if s + BAR_SECONDS <= flat]
        complete = not (incomplete and index == sessions - 1)
        if first_row + len(rows) > warm_up + 1 and decide[0] < fits[-1]:
            table.append(Session(first_row, len(stamps), decide[0], fits[-1] - 1, complete))

    count = len(stamps)
    open_, high, low, close = (np.zeros(count, np.int64) for _ in range(4))
    price, trend = LEVEL, 0.0
    for i in range(count):
        if i == 0 or dates[i] != dates[i - 1]:
            trend = 2.5 * float(rng.choice([-1.0, 0.0, 0.0, 1.0]))
            price += int(rng.normal(0, 6 * volatility))
        if rng.random() < 0.12:
            price += int(rng.normal(0, 7 * volatility))
        open_[i] = price
        close[i] = price + round(trend + rng.normal(0, volatility))
        reach_up, reach_down = np.abs(rng.normal(0, volatility / 2, 2)).round().astype(int)
        if rng.random() < 0.08:
            reach_up, reach_down = rng.integers(int(3 * volatility), int(30 * volatility), 2)
        high[i] = max(open_[i], close[i]) + reach_up
        low[i] = min(open_[i], close[i]) - reach_down
        price = int(close[i]) + int(rng.integers(-1, 2))
        price = min(max(price, LEVEL // 2), LEVEL * 2)
    volume = rng.integers(0, 5_000, count)
    return Bars(
        *(column.tolist() for column in (open_, high, low, close, volume)),
        stamps,
        BAR_SECONDS,
        opens,
        flats,
        449,
        dates,
        tuple(table),
    )


def habit_logits(names, num_actions):
    """float32[len(names), num_actions] log preferences."""
    return np.log(np.array([HABITS[name][:num_actions] for name in names], np.float32))


def habits_of(count):
    """That many names of habits, in turn."""
    names = list(HABITS)
    return [names[i % len(names)] for i in range(count)]
