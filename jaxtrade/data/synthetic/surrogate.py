"""A phase-randomised copy of real bars: their spectrum and variance, none of their higher-order structure.

The log returns from close to close are Fourier transformed, every phase but those of the mean (and of the Nyquist
frequency) is replaced by a uniform draw, and the sum of the new returns starts at the first close. The periodogram, and
with it variance and linear autocorrelation, is kept exactly (then prices are rounded to ticks). Fat tails, volatility
clusters, the intraday shape of the close-to-close volatility and any non-linear prediction are gone.

Inside a bar, gap and wicks are the real bar's own, in ticks: open' = last close' + (open - last close), high' =
max(open', close') + (high - max(open, close)), low likewise. Of two-sided bars this is the bid, and the ask keeps the
real spread above it. Stamps and volume are the real ones too: the clock shape
of wicks and volume survives. (Schreiber and Schmitz, "Surrogate time series", Physica D 142, 2000.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import DataError


def phase_randomised_values(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """float64[n] of the same mean and periodogram as `values`, with uniform phases."""
    spectrum = np.fft.rfft(values)
    turned = np.abs(spectrum) * np.exp(2j * np.pi * generator.random(len(spectrum)))
    turned[0] = spectrum[0]
    if len(values) % 2 == 0:
        turned[-1] = spectrum[-1]  # real by definition
    return np.fft.irfft(turned, len(values))


def phase_randomised_bars(bars: Bars, sessions: int, seed: int) -> Bars:
    """A copy of the first `sessions` trade dates of `bars` (all, where there are fewer).

    Raises DataError where fewer than three bars are left, or a copy falls to prices below one tick.
    """
    dates = trade_dates(bars.time, bars.contract)
    bars = bars.rows(np.isin(dates, np.unique(dates)[:sessions]))
    if len(bars) < 3:
        raise DataError(f"{bars.source}: {len(bars)} bars are too few for a phase-randomised copy (3 are needed)")
    real = bars.close.astype(np.float64)
    moves = phase_randomised_values(np.diff(np.log(real)), np.random.default_rng([seed, len(bars), 3]))
    close = np.rint(real[0] * np.exp(np.concatenate([[0.0], np.cumsum(moves)]))).astype(np.int64)
    gap = np.concatenate([[0], bars.open[1:].astype(np.int64) - bars.close[:-1]])
    open_ = np.concatenate([bars.open[:1].astype(np.int64), close[:-1]]) + gap
    high = np.maximum(open_, close) + (bars.high - np.maximum(bars.open, bars.close))
    low = np.minimum(open_, close) - (np.minimum(bars.open, bars.close) - bars.low)
    if low.min() < 1 or high.max() >= 1 << 31:
        raise DataError(f"{bars.source}: the phase-randomised copy with seed {seed} leaves the range of prices; take "
                        "another data.synthetic_seed or fewer data.synthetic_sessions")
    prices = {name: value.astype(np.int32) for name, value in
              {"open": open_, "high": high, "low": low, "close": close}.items()}
    ask = None
    if bars.ask is not None:  # each price above the bid's by the real spread, and the high and low around the rest
        spread = {name: getattr(bars.ask, name) - getattr(bars, name) for name in prices}
        ask = bars.ask._replace(**{name: prices[name] + spread[name] for name in prices})
        ask = ask._replace(high=np.maximum(ask.high, np.maximum(ask.open, ask.close)),
                           low=np.minimum(ask.low, np.minimum(ask.open, ask.close)))
    note = "the bars are synthetic: a phase-randomised copy of real ones (spectrum kept, nothing else to predict)"
    return replace(bars, **prices, ask=ask, synthetic=True, notes=(*bars.notes, note),
                   source=f"phase-randomised copy, seed {seed}, of {bars.source}")
