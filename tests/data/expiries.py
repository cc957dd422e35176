"""The NQ-like market in the form of a vendor's file: one row per contract and minute, with
overlapping expiries.

Contracts expire on the third Friday of March, June, September and December. Volume moves to the
next contract on the Thursday eight days before. A contract trades thinly from two weeks before it
becomes front, and again after the roll until its expiry. A later contract costs more than an
earlier one by the carry, so a splice has a step in price.
"""

from datetime import date, timedelta
from itertools import pairwise

import numpy as np
from dateutil.relativedelta import FR, relativedelta

MONTHS = (3, 6, 9, 12)
CARRY = 0.0125  # share of the price, per quarter
OVERLAP_DAYS, ROLL_DAYS = (
    14,
    8,
)  # calendar days: trading begins before the contract is front; roll before expiry
THIN = 0.05  # volume of a contract that is not front, as a share of the front contract's


def expiry_table(bars):
    """Columns of a vendor's file: time (UTC, ISO 8601), expiry (YYYYMM), open, high, low, close
    (points), volume.

    bars: the front contracts as one series (`synthetic_bars`). Rows are ordered by expiry, then by
        time. The front
    contract of a trade date has the prices of `bars`, shifted by whole ticks.
    """
    days = bars.trade_dates
    years = range(int(str(days[0])[:4]), int(str(days[-1])[:4]) + 2)
    third_friday = relativedelta(weekday=FR(3))
    expiries = [date(year, month, 1) + third_friday for year in years for month in MONTHS]
    edges = np.array([day - timedelta(days=ROLL_DAYS) for day in expiries], "datetime64[D]")
    carry, tick = round(float(bars.close[0]) * CARRY), float(bars.contract.tick_size)
    stamps = np.array([f"{stamp}Z" for stamp in bars.time.astype("datetime64[s]")])
    parts = []
    for k, (begins, ends) in enumerate(pairwise([edges[0] - np.timedelta64(92, "D"), *edges])):
        listed = (days >= begins - np.timedelta64(OVERLAP_DAYS, "D")) & (
            days < np.datetime64(expiries[k])
        )
        front = (days >= begins) & (days < ends)
        volume = np.where(front, bars.volume, np.maximum(np.rint(THIN * bars.volume), 1.0))
        prices = {
            name: (getattr(bars, name)[listed] + k * carry) * tick
            for name in ("open", "high", "low", "close")
        }
        code = np.full(int(listed.sum()), f"{expiries[k]:%Y%m}")
        parts.append({"time": stamps[listed], "expiry": code, **prices, "volume": volume[listed]})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
