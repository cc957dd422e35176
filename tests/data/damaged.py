"""Damage done to real bars, as vendors' files have it."""

from dataclasses import replace

import numpy as np
import pandas as pd

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.read.bars import Bars, from_frame

FIELDS = ("open", "high", "low", "close")
SHARE = """
symbol: SHR
kind: future
currency: USD
tick_size: 0.01
tick_value: 1.0
commission: 0.5
slippage: 1
min_stop_ticks: 5
calendar: cme_equity
"""


def flat_bars(contract, first, prices, seconds=3600, volume=0.0):
    """Bars from a stamp on whose open, high, low and close are one price each, in ticks."""
    column = np.array(prices, np.int32)
    time = first + seconds * np.arange(len(column))
    volumes = np.full(len(column), volume)
    return Bars(time, *[column] * 4, volumes, seconds, contract, f"{contract.symbol} bars")


def as_share(bars, factor=30):
    """The same moves as a share with ticks of a cent, `factor` times as many of them."""
    contract = replace(
        bars.contract,
        symbol="SHR",
        kind="equity",
        tick_size=bars.contract.tick_size / 25,
        tick_mills=1000,
        price_ranges=(),
    )
    prices = {name: getattr(bars, name) * np.int32(factor) for name in FIELDS}
    return replace(bars, contract=contract, **prices)


def unadjusted(bars, date, ratio, moved=1.0):
    """Prices as they traded before a split on `date`: times the ratio. moved: an overnight move on
    top.
    """
    before = trade_dates(bars.time, bars.contract) < np.datetime64(date)
    prices = {
        name: np.where(
            before, np.round(getattr(bars, name) * float(ratio) * moved), getattr(bars, name)
        ).astype(np.int32)
        for name in FIELDS
    }
    return replace(bars, **prices, volume=np.where(before, bars.volume / float(ratio), bars.volume))


def with_ticks(bars, row, **prices):
    """One bar with some of its prices multiplied."""
    columns = {name: getattr(bars, name).copy() for name in prices}
    for name, factor in prices.items():
        columns[name][row] = round(int(columns[name][row]) * factor)
    return replace(bars, **columns)


def with_rows(bars, to, source, count, volume=True):
    """`count` bars from `to` on take the prices of those from `source` on."""
    names = (*FIELDS, "volume") if volume else FIELDS
    columns = {name: getattr(bars, name).copy() for name in names}
    for column in columns.values():
        column[to : to + count] = column[source : source + count].copy()
    return replace(bars, **columns)


def standing(bars, first, count):
    """`count` bars from `first` on are the one at `first`."""
    columns = {name: getattr(bars, name).copy() for name in FIELDS}
    for column in columns.values():
        column[first : first + count] = column[first]
    return replace(bars, **columns)


def frame_of(bars, time_zone=None):
    """The bars as a file has them: prices in points. time_zone: stamps without offset, in that
    zone.
    """
    tick = float(bars.contract.tick_size)
    stamps = pd.to_datetime(bars.time, unit="s", utc=True)
    time = (
        bars.time
        if time_zone is None
        else stamps.tz_convert(time_zone).strftime("%Y-%m-%d %H:%M:%S")
    )
    prices = {name: np.round(getattr(bars, name) * tick, 6) for name in FIELDS}
    return pd.DataFrame({"time": time, **prices, "volume": bars.volume})


def read_again(bars, keep=None):
    """The bars as the reader makes them of a frame with some of their rows: its bar length is the
    usual step.
    """
    return from_frame(
        frame_of(bars if keep is None else bars.rows(keep)), bars.contract, stamp="open"
    )


def regular_hours(bars):
    """The bars of 09:30-16:00 New York time."""
    local = pd.to_datetime(bars.time, unit="s", utc=True).tz_convert("America/New_York")
    minute = np.asarray(local.hour * 60 + local.minute)
    return bars.rows((minute >= 570) & (minute < 960))


def longer(bars, seconds):
    """The bars joined to longer ones."""
    frame = frame_of(bars)
    parts = frame.groupby(frame.time // seconds * seconds, as_index=False)
    joined = parts.agg(
        {
            "time": "first",
            "open": "first",
            "high": "max",
            "low": "min",
            "close": "last",
            "volume": "sum",
        }
    )
    joined["time"] = joined["time"] // seconds * seconds
    return from_frame(joined, bars.contract, stamp="open")
