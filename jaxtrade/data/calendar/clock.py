"""UTC seconds as wall-clock seconds, computed once per run of equal days."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np

DAY = 86_400


def run_starts(values: np.ndarray) -> np.ndarray:
    """Places at which a value differs from the one before it, int64[runs], beginning with 0.

    Bars come in time order, so their dates and hours stand in a few long runs. What depends on the
    date alone is computed once per run.
    """
    return np.flatnonzero(
        np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])
    )


def spread(per_run: np.ndarray, starts: np.ndarray, count: int) -> np.ndarray:
    """The value of each element, [count], from the value of each run. starts: `run_starts`."""
    return np.repeat(per_run, np.diff(starts, append=count))


def local_seconds(utc: np.ndarray, zone: str) -> np.ndarray:
    """UTC seconds -> wall-clock seconds of the zone since its 1970-01-01 00:00, int64[T].

    A zone's offset is the same all day if it is the same at both ends of the day, and all hour
    otherwise.
    """
    utc, info = np.asarray(utc, np.int64), ZoneInfo(zone)

    def offsets(times: np.ndarray, step: int) -> np.ndarray:
        found = (
            datetime.fromtimestamp(int(t) * step, UTC).astimezone(info).utcoffset() for t in times
        )
        return np.array([int(o.total_seconds()) if o is not None else 0 for o in found], np.int64)

    days = utc // DAY
    starts = run_starts(days)
    known, inverse = np.unique(days[starts], return_inverse=True)
    begin, end = offsets(known, DAY), offsets(known + 1, DAY)
    local = utc + spread(begin[inverse], starts, len(utc))
    changing = np.flatnonzero(spread((begin != end)[inverse], starts, len(utc)))
    hours, inverse = np.unique(utc[changing] // 3600, return_inverse=True)
    local[changing] = utc[changing] + offsets(hours, 3600)[inverse]
    return local


def years_of(utc: np.ndarray) -> np.ndarray:
    """The calendar year of UTC seconds, int64[T]."""
    return utc.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970


def most_common(values: np.ndarray) -> int:
    """The most common whole number; of several, the smallest."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])
