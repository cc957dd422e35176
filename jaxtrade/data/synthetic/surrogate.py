"""A phase-randomised copy of real bars. It keeps their spectrum and variance, but no higher-order
structure.

The close-to-close log returns are Fourier transformed. Every phase, except those of the mean and of
the Nyquist frequency, is replaced by a uniform draw. The new returns are summed up from the first
close. This keeps the periodogram exactly, and with it variance and linear autocorrelation; then
prices are rounded to ticks. It removes fat tails, volatility clusters, the intraday shape of
close-to-close volatility and everything that a non-linear model could predict.

Gaps and wicks are those of the real bars, in ticks: open' = last close' + (open - last close),
high' = max(open', close') + (high - max(open, close)), and the low likewise. For two-sided bars
this gives the bid, and the ask keeps the real spread above it. Stamps and volume are the real ones,
so the intraday shape of wicks and volume remains.

Source: Schreiber and Schmitz, "Surrogate time series", Physica D 142, 2000.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.validate import Side
from jaxtrade.errors import DataError

LEAST = 3  # bars of a copy


def phase_randomised_values(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A series with the mean and periodogram of `values` and with uniformly random phases,
    float64[n].
    """
    spectrum = np.fft.rfft(values)
    turned = np.abs(spectrum) * np.exp(2j * np.pi * generator.random(len(spectrum)))
    turned[0] = spectrum[0]
    if len(values) % 2 == 0:
        turned[-1] = spectrum[-1]  # the Nyquist coefficient must stay real
    return np.fft.irfft(turned, len(values))


def phase_randomised_prices(bars: Bars, generator: np.random.Generator) -> np.ndarray:
    """Open, high, low and close of a copy of one-sided bars (of the bid), int64[4, T] ticks. At
    least LEAST bars.
    """
    real = bars.close.astype(np.float64)
    moves = phase_randomised_values(np.diff(np.log(real)), generator)
    close = np.rint(real[0] * np.exp(np.concatenate([[0.0], np.cumsum(moves)]))).astype(np.int64)
    gap = np.concatenate([[0], bars.open[1:].astype(np.int64) - bars.close[:-1]])
    open_ = np.concatenate([bars.open[:1].astype(np.int64), close[:-1]]) + gap
    high = np.maximum(open_, close) + (bars.high - np.maximum(bars.open, bars.close))
    low = np.minimum(open_, close) - (np.minimum(bars.open, bars.close) - bars.low)
    return np.stack([open_, high, low, close])


def spread_kept(bars: Bars, bid: Side) -> Side:
    """Ask prices over other bid prices: the bid's plus the real spread of two-sided `bars`. High
    and low are then widened to include open and close."""
    assert bars.ask is not None
    spread = {
        name: prices.astype(np.int64) - getattr(bars, name)
        for name, prices in bars.ask._asdict().items()
    }
    ask = Side(**{name: getattr(bid, name) + spread[name] for name in spread})
    return ask._replace(
        high=np.maximum(ask.high, np.maximum(ask.open, ask.close)),
        low=np.minimum(ask.low, np.minimum(ask.open, ask.close)),
    )


def phase_randomised_bars(bars: Bars, sessions: int, seed: int) -> Bars:
    """A copy of the first `sessions` trade dates of `bars`, or of all if there are fewer.

    Raises DataError if fewer than three bars are left, or if a price of the copy falls below one
    tick.
    """
    dates = trade_dates(bars.time, bars.contract)
    bars = bars.rows(np.isin(dates, np.unique(dates)[:sessions]))
    if len(bars) < LEAST:
        raise DataError(
            f"{bars.source}: {len(bars)} bars are too few for a phase-randomised copy ({LEAST} are needed)"
        )
    made = phase_randomised_prices(bars, np.random.default_rng([seed, len(bars), 3]))
    if made[2].min() < 1 or made[1].max() >= 1 << 31:
        raise DataError(
            f"{bars.source}: the phase-randomised copy with seed {seed} leaves the range of prices; take "
            "another data.synthetic_seed or fewer data.synthetic_sessions"
        )
    bid = Side(*made.astype(np.int32))
    ask = (
        None
        if bars.ask is None
        else Side(*(prices.astype(np.int32) for prices in spread_kept(bars, bid)))
    )
    note = "the bars are synthetic: a phase-randomised copy of real ones (spectrum kept, nothing else to predict)"
    return replace(
        bars,
        **bid._asdict(),
        ask=ask,
        synthetic=True,
        notes=(*bars.notes, note),
        source=f"phase-randomised copy, seed {seed}, of {bars.source}",
    )
