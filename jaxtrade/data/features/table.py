"""The float table of a market, from which the observation's view is made. One row per bar."""

from __future__ import annotations

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import Schedule, local_seconds
from jaxtrade.data.calendar.sessions import window_minutes, window_openings
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import TRUE_RANGES, context_features, feature_spec, table_columns
from jaxtrade.data.read.bars import Bars

# The clock of `env.scaling: seed`: 09:30 and 16:59 in minutes of the day, then the scales of hours and minutes.
SEED_OPEN, SEED_CLOSE, SEED_HOURS, SEED_MINUTES = 570, 1019, 7.48, 449


def float_table(host: features.Window, bars: Bars, ids: np.ndarray, tr_sum: np.ndarray, dates: np.ndarray,
                schedule: Schedule, config: RunConfig) -> np.ndarray:
    """The float32 table [T, C] with the columns of `schema.table_columns`.

    NaN before a warm-up becomes 0. No decision reads those values.
    """
    context = context_features(config.env.task)
    out = np.empty((len(bars), len(table_columns(config.env.features, context))), np.float32)
    clock = _clock_columns(bars, dates, schedule, config)
    atr = np.where(tr_sum < 0, 1.0, np.maximum(tr_sum / TRUE_RANGES, 1.0))
    out[:, 0], out[:, 1] = host.close, atr
    out[:, 3:8] = np.stack(clock, axis=1)
    for rows in features.window_slices(ids):
        part = features.take(host, rows)
        out[rows, 2] = features.volume_mean(part.volume)
        for i, name in enumerate((*config.env.features, *context)):
            spec = feature_spec(name)
            values = features.stored(features.compute_feature(part, name), spec, part.close)
            out[rows, 8 + i] = np.nan_to_num(values, nan=0.0)
    return out


def _clock_columns(bars: Bars, dates: np.ndarray, schedule: Schedule, config: RunConfig) -> tuple[np.ndarray, ...]:
    """hour, from_open_seed, to_close_seed, from_open, to_flat, each float64[T].

    In rows without a scheduled session, `to_flat` counts to an ordinary day's flat time (16:59 for futures).
    """
    contract, overnight = bars.contract, config.session.overnight
    minute = local_seconds(bars.time, contract.zone) % 86_400 / 60
    days, inverse = np.unique(dates, return_inverse=True)
    opening = window_openings(days, contract, overnight)
    length = window_minutes(contract, overnight)
    at = schedule.find(days)
    flat = np.where(at >= 0, schedule.flat[at], opening + 60 * length)
    from_open = (bars.time - opening[inverse]) / 60
    to_flat = (flat[inverse] - bars.time - bars.bar_seconds) / 60
    return ((minute / 60 - 9.5) / SEED_HOURS, (minute - SEED_OPEN) / SEED_MINUTES, (SEED_CLOSE - minute) / SEED_MINUTES,
            from_open / length, to_flat / length)
