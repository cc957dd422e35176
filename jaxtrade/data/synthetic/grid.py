"""The frame of synthetic bars: sessions of the real calendar, their minutes, and a plausible price
level.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np

from jaxtrade.data.calendar.schedule import Schedule, hours_of, table_schedule, thanksgiving
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import ConfigError

BAR_SECONDS = 60
# A fixed end, so that a configuration keeps its sessions when later versions of the calendar verify
# more years.
LAST = date(2026, 12, 31)


def synthetic_schedule(contract: Contract, sessions: int) -> Schedule:
    """`sessions` consecutive scheduled sessions.

    They start in the latest Thanksgiving week, 2023 or earlier, that is followed by enough
    sessions; if there is none, at the first date of the calendar. Raises ConfigError, naming the
    largest possible number, if that is too short.
    """
    hours = hours_of(contract)
    low = date.fromisoformat(hours.eras[0].valid_from)
    high = min(date.fromisoformat(hours.verified_to), LAST)
    mondays = [
        thanksgiving(year) - timedelta(days=3) for year in range(2023, low.year - 1, -1)
    ]  # two half days follow
    starts = [day for day in mondays if day >= low] + [low]
    schedule = None
    for start in starts:
        last = min(high, start + timedelta(days=2 * sessions + 30))
        schedule = table_schedule(contract, np.datetime64(start), np.datetime64(last))
        if len(schedule.dates) >= sessions:
            keep = slice(0, sessions)
            return replace(
                schedule,
                **{
                    name: getattr(schedule, name)[keep]
                    for name in ("dates", "open", "close", "flat", "halts")
                },
            )
    found = 0 if schedule is None else len(schedule.dates)
    raise ConfigError(
        f"data.synthetic_sessions = {sessions}: the calendar of {contract.symbol} holds {found} "
        "sessions; lower it"
    )


def session_minutes(schedule: Schedule, index: int) -> np.ndarray:
    """Open stamps of the minutes of session `index`, int64[n]. Scheduled halts are left out."""
    stamps = np.arange(schedule.open[index], schedule.close[index], BAR_SECONDS)
    return stamps[(stamps < schedule.halts[index, 0]) | (stamps >= schedule.halts[index, 1])]


def start_level(contract: Contract, schedule: Schedule) -> float:
    """A plausible price for the schedule's first year, in ticks: the middle of the contract's
    range, or 10,000 if it has none."""
    bounds = contract.price_range(int(str(schedule.dates[0])[:4]))
    return (bounds[0] + bounds[1]) / 2 / float(contract.tick_size) if bounds else 10_000.0


def minute_bars(
    contract: Contract,
    stamps: np.ndarray,
    prices: np.ndarray,
    volume: np.ndarray,
    source: str,
    note: str,
) -> Bars:
    """Make Bars (int32 ticks) of stamps int64[n], prices [n, 4] (open, high, low, close) and volume
    [n].
    """
    open_, high, low, close = np.ascontiguousarray(prices.T.astype(np.int32))
    return Bars(
        time=stamps.astype(np.int64),
        open=open_,
        high=high,
        low=low,
        close=close,
        volume=volume.astype(np.float64),
        bar_seconds=BAR_SECONDS,
        contract=contract,
        source=source,
        notes=(note,),
        synthetic=True,
    )
