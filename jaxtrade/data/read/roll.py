"""Explicit roll: several expiries of one file become one series, spliced between trade dates.

Each trade date comes from one contract, so no bar, session or position crosses a splice. Feature
windows and true ranges restart there (`jaxtrade.data.calendar.sessions.feature_windows`). Prices are
never adjusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from jaxtrade.config import Roll
from jaxtrade.data.bars import Leg, splice_dates
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.tabular import Table
from jaxtrade.formatting import iso

MONTHS = "FGHJKMNQUVXZ"
START = "start"  # stands for the start of the data, from which the first contract is front
SHOWN = 8
ONE_DAY = np.timedelta64(1, "D")  # NumPy warns of a bare 1 between dates, and will refuse it
# The fix for second bars or quotes that lack a contract.
GIVE_THEM = "give its rows too, or leave those dates out with data.start and data.end"


def explicit(legs: tuple[Leg, ...], days: np.ndarray) -> Roll:
    """Make a `data.roll` that selects the same contracts on trade dates `days`.

    Second bars and quotes are read with it.
    """
    used = np.unique(np.searchsorted(splice_dates(legs), days, side="right"))
    return (
        {legs[k].expiry: START if k == used[0] else legs[k].first for k in used} if legs else "off"
    )


def span(roll: Mapping[str, str], code: str) -> str:
    """Format the trade dates on which a contract of an explicit roll is front."""
    at, firsts = list(roll).index(code), list(roll.values())
    begin = "" if firsts[at] == START else f"from {firsts[at]} "
    end = f"until {np.datetime64(firsts[at + 1]) - ONE_DAY}" if firsts[at + 1 :] else "on"
    return begin + end if begin or firsts[at + 1 :] else "on every trade date"


def roll_rows(
    table: Table,
    names: Mapping[str, str],
    contract: Contract,
    seconds: np.ndarray,
    roll: Roll,
    price_scale: float,
    follows: str = "",
) -> tuple[np.ndarray, tuple[Leg, ...]]:
    """Choose the rows of a spliced series.

    Args:
        table: rows of every contract that takes part.
        seconds: UTC seconds inside each row's bar (for a close stamp, one second earlier).
        roll: 'volume', or expiry -> first trade date.
        follows: the source of the bars whose roll dates `roll` repeats, if this file accompanies
            other bars. The file may then begin after a splice.

    Returns (their places in the table, the contracts of the series). Raises DataError for expiries
    out of order, for a contract without bars while it is front, and for `volume` without volume or
    with unreadable expiries.
    """
    codes = table.texts(names.get("expiry") or names["symbol"]).to_numpy(str)
    days = trade_dates(seconds, contract)
    named = {} if isinstance(roll, str) else roll
    for before, after in pairwise(named):
        if before.isdigit() and after.isdigit() and after < before:
            table.fault(
                f"data.roll goes back from {before} to {after}",
                "name the expiries in the order they expire in",
            )
    table.check()
    firsts = [
        (code, str(days.min()) if first == START else first) for code, first in named.items()
    ] or by_volume(table, names, codes, days)
    edges = [*(np.datetime64(first) for _, first in firsts[1:]), days.max() + ONE_DAY]
    places, begins = [], np.datetime64(firsts[0][1])
    for (code, first), ends in zip(firsts, edges, strict=True):
        found = np.flatnonzero((codes == code) & (days >= begins) & (days < ends))
        own = days[codes == code]
        its_bars = f"(its bars: {own.min()}..{own.max()})"
        if not len(found) and follows:
            table.fault(
                f"no bar of contract {code} {span(named, code)}, where it is the one in {follows} {its_bars}",
                GIVE_THEM,
            )
        elif not len(found):
            table.fault(
                f"contract {code} has no bar while data.roll makes it front, from {begins} until {ends} "
                f"{its_bars}",
                "correct the first trade dates in data.roll",
            )
        elif named and not follows and places and (begun := days[found].min()) != begins:
            table.fault(
                f"contract {code} has no bar on {first}, the trade date on which data.roll makes it front "
                f"(its next: {begun})",
                f"set data.roll to {code}: {begun}, or give its bars of that date",
            )
        places.append(found)
        begins = ends
    table.check()
    close = table.numbers(names["close"]) * price_scale
    legs = [Leg(firsts[0][0], START)]
    for (old, _), (code, first) in pairwise(firsts):
        legs.append(
            Leg(code, first, *_step(codes, days, seconds, close, old, code, np.datetime64(first)))
        )
    return np.concatenate(places), tuple(legs)


def _step(
    codes: np.ndarray,
    days: np.ndarray,
    seconds: np.ndarray,
    close: np.ndarray,
    old: str,
    new: str,
    first: np.datetime64,
) -> tuple[float | None, int | None]:
    """Compute (new close minus old close, UTC seconds) at a splice.

    Takes the last bar before the splice that both contracts have.
    """
    before = (days < first) & np.isfinite(close)
    a, b = (np.flatnonzero(before & (codes == code)) for code in (old, new))
    common, i, j = np.intersect1d(seconds[a], seconds[b], return_indices=True)
    if not len(common):
        return None, None
    return float(close[b[j[-1]]] - close[a[i[-1]]]), int(common[-1])


# --- by volume --------------------------------------------------------------------------------------------------------


def by_volume(
    table: Table, names: Mapping[str, str], codes: np.ndarray, days: np.ndarray
) -> list[tuple[str, str]]:
    """List (contract, first trade date) of each front contract.

    A date's front contract depends only on earlier volumes. On the first trade date the nearest
    expiry is front. A later expiry becomes front on the date after it traded more than the front
    contract. A contract whose month is over is replaced by the nearest expiry after it. The roll
    never goes back to an earlier expiry.
    """
    volume = np.nan_to_num(table.numbers(names["volume"])) if "volume" in names else np.zeros(1)
    if not volume.any():
        raise table.refusal(
            "data.roll=volume, but the bars have no volume",
            "name the splices, e.g. data.roll={201312: start, 201403: 2013-12-18}",
        )
    first_year = int(str(days.min())[:4])
    known, code_of = np.unique(codes, return_inverse=True)
    month = [expiry_month(code, first_year) for code in known.tolist()]
    if not all(month):
        raise table.refusal(
            f"data.roll=volume cannot order the contracts: '{known[month.index('')]}' does not tell its "
            "expiry (as 201312, 20131220, ESZ3, ESZ13 and ESZ2013 do)",
            "name the splices with data.roll={CODE: start, CODE: YYYY-MM-DD}",
        )
    order = np.argsort(month, kind="stable")
    contracts, month = known[order].tolist(), sorted(month)
    rank = np.argsort(order)[code_of]
    dates, day_of = np.unique(days, return_inverse=True)
    traded = np.zeros((len(dates), len(contracts)))
    np.add.at(traded, (day_of, rank), volume)
    front = int(rank[day_of == 0].min())
    firsts = [(contracts[front], str(dates[0]))]
    for i in range(1, len(dates)):
        alive = [k for k in range(front, len(contracts)) if month[k] >= str(dates[i])[:7]]
        if not alive:
            problem = f"every contract of the file has expired before {dates[i]}"
            raise table.refusal(problem, "end the data before (data.end)")
        best = max(alive, key=lambda k: (traded[i - 1, k], -k))
        if best != front:
            front = best
            firsts.append((contracts[front], str(dates[i])))
    return firsts


def expiry_month(code: str, first_year: int) -> str:
    """Return `YYYY-MM` of a contract code such as 201312, 20131220, ESZ3, ESZ13 or ESZ2013.

    Empty if the code names no month. A short year stands for the first matching year, counted from
    the year before `first_year`.
    """
    digits = re.fullmatch(r"(\d{4})-?(\d\d)(?:-?\d\d)?", code)
    if digits:
        return f"{digits[1]}-{digits[2]}"
    named = re.search(rf"([{MONTHS}])(\d{{4}}|\d{{1,2}})$", code.strip().upper())
    if not named:
        return ""
    year, span = int(named[2]), 10 ** len(named[2])
    if span < 10_000:
        year = first_year - 1 + (year - first_year + 1) % span
    return f"{year}-{MONTHS.index(named[1]) + 1:02d}"


# --- words ------------------------------------------------------------------------------------------------------------


def roll_notes(legs: tuple[Leg, ...], contract: Contract) -> tuple[str, ...]:
    """Write one line per splice, for the first SHOWN splices."""
    lines = []
    for before, leg in pairwise(legs):
        step = (
            "no bar in common before, the price difference is unknown"
            if leg.common is None
            else (f"{leg.step:+.{contract.decimals}f} points at {iso(leg.common)}")
        )
        lines.append(
            f"roll: {leg.expiry} from trade date {leg.first} in place of {before.expiry} ({step}); feature "
            "windows restart there"
        )
    more = len(lines) - SHOWN
    return (*lines[:SHOWN], *((f"roll: ... and {more} more splices",) if more > 0 else ()))
