"""The float half of the oracle: feature columns of every bar and the window block of an
observation.
"""

import datetime as dt
import functools
import math
from zoneinfo import ZoneInfo

import numpy as np

from tests.oracle import context_indicators, indicators, seed_indicators

NEW_YORK = ZoneInfo("America/New_York")
OLD = seed_indicators.COLUMNS | context_indicators.COLUMNS
OF_PRICE = seed_indicators.OF_PRICE + context_indicators.OF_PRICE
CENTRED = seed_indicators.CENTRED | context_indicators.CENTRED
_MADE = {}  # by the identity of bars, which are kept with them


def features_of(bars, settings):
    """Of one market many accounts ask for the same."""
    key = (id(bars), settings.features, settings.tick_size, settings.window)
    if key not in _MADE:
        _MADE[key] = Features(bars, settings)
    return _MADE[key]


def is_level(name):
    """A feature that is a price."""
    return name in seed_indicators.LEVELS or (
        name not in OLD and name.partition("_")[0] in ("close", "sma", "ema", "vwap")
    )


class Features:
    """Feature columns of every bar, float64, and the window block of an observation."""

    def __init__(self, bars, settings):
        self.settings, self.bars = settings, bars
        self.tape = seed_indicators.Tape(bars, settings.tick_size)
        self.tr_sum = self.tape.sums
        self.close = np.array(bars.close, np.float64)
        self.volume = np.array(self.tape.volume)
        self.volume_mean = np.array(indicators.mean_of_last(self.volume, self.tape.ages, 20))
        self.columns = np.stack([self._column(name, bars) for name in settings.features], 1)
        local = [dt.datetime.fromtimestamp(s, NEW_YORK) for s in bars.stamps]
        minute = np.array([d.hour * 60 + d.minute + d.second / 60 for d in local])
        span = bars.window_minutes * 60.0
        stamps = np.array(bars.stamps, np.float64)
        self.hour = (minute / 60 - 9.5) / 7.48
        self.clock = {
            "seed": ((minute - 570) / 449, (1019 - minute) / 449),
            "relative": (
                (stamps - np.array(bars.window_open)) / span,
                (np.array(bars.flat_time) - stamps - bars.bar_seconds) / span,
            ),
        }

    def _column(self, name, bars):
        """One feature in ticks (or its own unit): prices as levels, volume raw, RSI 0..100,
        momentum as a change.
        """
        if name in OLD:
            return np.array(OLD[name](self.tape), np.float64)
        kind, _, number = name.partition("_")
        length, close, ages = int(number or 14), bars.close, self.tape.ages
        if name == "close":
            values = close
        elif name == "volume":
            values = self.volume
        elif name == "rsi":  # the seed's own; rsi_N, ema_N and atr_N are the textbook's
            values = indicators.relative_strength(close, ages, length, self.settings.tick_size)
        elif name == "macd":
            fast, slow = (indicators.running_mean(close, ages, n) for n in (12, 26))
            values = np.subtract(fast, slow)
        elif name == "momentum":
            values = [
                close[i] - close[i - 10] if ages[i] > 10 else math.nan for i in range(len(close))
            ]
        elif name == "atr":
            values = self.tape.atr
        elif name == "vwap":
            values = indicators.day_vwap(
                bars.high, bars.low, close, bars.volume, bars.trade_date, bars.has_volume
            )
        elif kind == "sma":
            values = indicators.mean_of_last(close, ages, length)
        elif kind == "ema":
            values = indicators.seeded_mean(close, ages, length, 2 / (length + 1))
        elif kind == "rsi":
            values = indicators.wilder_strength(close, ages, length)
        elif kind == "atr":
            values = indicators.seeded_mean(self.tape.ranges, ages, length, 1 / length)
        else:
            raise ValueError(f"the oracle does not know feature '{name}'")
        return np.array(values, np.float64)

    def atr_at(self, row):
        """ATR in ticks at `row`, never under one tick."""
        return max(self.tr_sum[row] / 14, 1.0)

    def window(self, row, scaling):
        """Bars row-W..row-1, oldest first, features then three times each, flattened."""
        past = slice(row - self.settings.window, row)
        raw, tick, atr = self.columns[past], self.settings.tick_size, self.atr_at(row)
        block = np.empty((self.settings.window, raw.shape[1] + 3))
        for j, name in enumerate(self.settings.features):
            kind, x = name.partition("_")[0], raw[:, j]
            if name in OLD and not name.startswith("rsi"):
                block[:, j] = self._seed_slot(name, x, past, row, scaling)
            elif scaling == "seed":
                if name == "momentum":
                    block[:, j] = self.close[past] / (self.close[past] - x)
                else:
                    block[:, j] = x if kind in ("volume", "rsi") else x * tick
            elif kind in ("close", "sma", "ema", "vwap"):
                block[:, j] = (x - self.close[row]) / atr
            elif kind == "volume":
                block[:, j] = np.log((x + 1) / (self.volume_mean[row] + 1))
            elif kind == "rsi":
                block[:, j] = (x - 50) / 50
            elif kind == "atr":
                block[:, j] = np.log(np.maximum(x, 1.0) / atr)
            else:  # macd and momentum are differences of prices
                block[:, j] = x / atr
        since, until = self.clock[scaling]
        block[:, -3], block[:, -2], block[:, -1] = self.hour[past], since[past], until[past]
        return block.ravel()

    @functools.cached_property
    def context_columns(self):
        """float64[T, 28] what `advised` shows of each bar, in ticks (or its own unit)."""
        return np.stack(
            [np.array(OLD[name](self.tape), np.float64) for name in context_indicators.NAMES], 1
        )

    def context(self, row, scaling):
        """The 28 slots of bar `row`."""
        slots = []
        for name, x in zip(context_indicators.NAMES, self.context_columns[row], strict=True):
            if name.startswith("rsi"):
                slots.append(x if scaling == "seed" else (x - 50) / 50)
            else:
                slots.append(self._seed_slot(name, x, row, row, scaling))
        return np.array(slots)

    def _seed_slot(self, name, x, past, row, scaling):
        """One of `OLD` as observed, of one bar or of several."""
        tick, atr = self.settings.tick_size, self.atr_at(row)
        if name in seed_indicators.LEVELS:
            return x * tick if scaling == "seed" else (x - self.close[row]) / atr
        if name in seed_indicators.DEVIATIONS:
            return x * tick if scaling == "seed" else x / atr
        if scaling == "seed":
            return x
        if name in OF_PRICE:
            return x * self.close[past] / atr
        middle, scale = CENTRED.get(name, (0, 1))
        return (x - middle) / scale
