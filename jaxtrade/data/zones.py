"""Usual time zones of files of bars, and which of them keeps a given clock."""

from __future__ import annotations

import numpy as np

from jaxtrade.data.calendar.clock import local_seconds
from jaxtrade.data.formats.vendors import SERVER
from jaxtrade.data.read.stamps import known_zone

USUAL = ("UTC", "America/New_York", "America/Chicago", SERVER, "Etc/GMT+5", "Europe/London")
MOST = 0.75  # share of the times at which a zone's offset is the clock's: weeks of changing clocks and holidays differ
HOUR = 3600


def utc_offsets(utc: np.ndarray, zone: str) -> np.ndarray:
    """Seconds by which a zone (perhaps shifted, as America/New_York+7h) is ahead of UTC at these
    UTC seconds, int64[T]. Raises ConfigError for an unknown zone."""
    name, hours = known_zone(zone)
    return local_seconds(utc, name) - utc + HOUR * hours


def keeping(utc: np.ndarray, offsets: np.ndarray) -> tuple[str, ...]:
    """The zones that are `offsets` seconds ahead of UTC at most of these times; more than one where
    the times do not tell them apart, none where no usual zone and no fixed number of hours fits.

    utc: int64[T], UTC seconds. offsets: int64[T].
    """
    shares = {zone: float(np.mean(utc_offsets(utc, zone) == offsets)) for zone in USUAL}
    best = max(shares.values())
    if best >= MOST:
        return tuple(zone for zone, share in shares.items() if share == best)
    values, counts = np.unique(offsets, return_counts=True)
    fixed = int(values[np.argmax(counts)])
    if counts.max() < MOST * len(offsets) or fixed % HOUR or not -12 <= fixed // HOUR <= 14:
        return ()
    return (f"Etc/GMT{-fixed // HOUR:+d}",)  # POSIX: Etc/GMT-3 is three hours ahead of UTC
