"""The float table of a market, from which the observation's view is made. One row per bar."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import Schedule, local_seconds, run_starts, spread
from jaxtrade.data.calendar.sessions import window_minutes, window_openings
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import TRUE_RANGES, context_features, feature_spec, table_columns
from jaxtrade.data.read.bars import Bars

# The clock of `env.scaling: seed`: 09:30 and 16:59 in minutes of the day, then the scales of hours
# and minutes.
SEED_OPEN, SEED_CLOSE, SEED_HOURS, SEED_MINUTES = 570, 1019, 7.48, 449


# Columns written into the table together: its rows are interleaved, and each pass over them reads
# all of its memory.
TOGETHER = 4
BLOCK = 1 << 15  # rows written at once


def float_table(
    host: features.Window,
    bars: Bars,
    ids: np.ndarray,
    tr_sum: np.ndarray,
    dates: np.ndarray,
    schedule: Schedule,
    config: RunConfig,
    base: int = 0,
) -> np.ndarray:
    """The float32 table [T, C] with the columns of `schema.table_columns`. The close is in ticks,
    relative to `base`.

    NaN before a warm-up becomes 0. No decision reads those values.
    """
    context = context_features(config.env.task)
    windows = features.window_slices(ids)
    out = np.empty((len(bars), len(table_columns(config.env.features, context))), np.float32)
    makers: list[Callable[[], np.ndarray]] = [
        lambda: host.close - base,
        lambda: np.where(tr_sum < 0, 1.0, np.maximum(tr_sum / TRUE_RANGES, 1.0)),
        lambda: np.concatenate([features.volume_mean(host.volume[rows]) for rows in windows]),
        *_clock_columns(bars, dates, schedule, config),
        *(
            partial(_feature_column, host, windows, name)
            for name in (*config.env.features, *context)
        ),
    ]
    for first in range(0, len(makers), TOGETHER):
        columns = [make().astype(np.float32) for make in makers[first : first + TOGETHER]]
        for start in range(0, len(bars), BLOCK):
            rows = slice(start, start + BLOCK)
            for i, column in enumerate(columns):
                out[rows, first + i] = column[rows]
    return out


def _feature_column(host: features.Window, windows: list[slice], name: str) -> np.ndarray:
    """One feature in the form that the table stores, float32[T]."""
    spec, out = feature_spec(name), np.empty(len(host.close), np.float32)
    for rows in windows:
        part = features.take(host, rows)
        values = features.stored(features.compute_feature(part, name), spec, part.close)
        out[rows] = np.nan_to_num(values, nan=0.0)
    return out


def _clock_columns(
    bars: Bars, dates: np.ndarray, schedule: Schedule, config: RunConfig
) -> list[Callable[[], np.ndarray]]:
    """Functions that compute hour, from_open_seed, to_close_seed, from_open, to_flat, each
    float64[T].

    In rows without a scheduled session, `to_flat` counts to an ordinary day's flat time (16:59 for
    futures).
    """
    contract, overnight = bars.contract, config.session.overnight
    second = (local_seconds(bars.time, contract.zone) % 86_400).astype(
        np.int32
    )  # of the exchange day
    starts = run_starts(dates)
    days = dates[starts]
    opening = window_openings(days, contract, overnight)
    length = window_minutes(contract, overnight)
    at = schedule.find(days)
    flat = np.where(at >= 0, schedule.flat[at], opening + 60 * length)

    def by_row(per_day: np.ndarray) -> np.ndarray:
        return spread(per_day, starts, len(dates))

    return [
        lambda: (second / 60 / 60 - 9.5) / SEED_HOURS,
        lambda: (second / 60 - SEED_OPEN) / SEED_MINUTES,
        lambda: (SEED_CLOSE - second / 60) / SEED_MINUTES,
        lambda: (bars.time - by_row(opening)) / 60 / length,
        lambda: (by_row(flat) - bars.time - bars.bar_seconds) / 60 / length,
    ]
