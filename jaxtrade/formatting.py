"""How money, shares, prices, durations and dates are written: the one place that says so.

A number that is undefined is `n/a`, never 0; losses are as visible as gains. Loads nothing heavy.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

NOT_AVAILABLE = "n/a"
POLICY = "greedy"  # key of the trained policy among the agents of files and tables
MINUS = "\u2212"  # of pages and plots; a console has "-"


class NumberFormat(NamedTuple):
    """What stands before and after a number, its decimals, and what it is multiplied by."""

    before: str = ""
    digits: int = 0
    after: str = ""
    times: int = 1


FORMS = {
    "money": NumberFormat("$", 2),  # $1,234.50
    "signed": NumberFormat("$", 2),  # +$3.00
    "number": NumberFormat("", 2),  # 1,234.50
    "ratio": NumberFormat("", 2),  # 1234.50
    "count": NumberFormat(),  # 1,235
    "share": NumberFormat("", 1, " %", 100),  # of 0..1: 31.6 %
    "percent": NumberFormat("", 2, " %"),  # of 0..100: 31.60 %
}


def format_number(
    value: float | None,
    form: str,
    digits: int | None = None,
    minus: str = "-",
    none: str = NOT_AVAILABLE,
) -> str:
    """Format a number. What rounds to 0 has no sign.

    form: of `FORMS`, or `metric`, four significant digits.
    digits: decimals in place of the form's.
    minus: the sign.
    none: the text of a number that is undefined.
    """
    if value is None:
        return none
    if form == "metric":
        return f"{value:.4g}".replace("-", minus)
    before, own, after, times = FORMS[form]
    digits = own if digits is None else digits
    rounded = round(times * value, digits)
    sign = minus if rounded < 0 else "+" if form == "signed" and rounded > 0 else ""
    comma = "" if form in ("ratio", "percent") else ","
    return f"{sign}{before}{abs(rounded):{comma}.{digits}f}{after}"


def name_agent(key: str) -> str:
    """Return the name that people read of an agent: `your policy` for the key `greedy`."""
    return f"your policy{key[len(POLICY) :]}" if key.split(" ")[0] == POLICY else key


def money(value: float | None, digits: int = 2) -> str:
    """Format dollars: `$1,234.50`, `-$3.00`."""
    return format_number(value, "money", digits)


def share(value: float | None, digits: int = 1) -> str:
    """Format a share of 0..1 as `31.6 %`."""
    return format_number(value, "share", digits)


def cost(value: float) -> str:
    """Format a cost in dollars: `$2.08`, or `$0.125` where cents would not be exact."""
    return money(value, 2 if abs(value - round(value, 2)) < 1e-9 else 3)


def short_number(value: float) -> str:
    """Format a number in few characters: `0`, `50k`, `1.5M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


class HasPrices(Protocol):
    """What has prices: a contract, or the clock of an evaluation.

    decimals: of a price.
    """

    @property
    def tick_size(self) -> Decimal | float: ...
    @property
    def decimals(self) -> int: ...


def points(ticks: Any, market: HasPrices) -> float:
    """Convert a price in ticks to points."""
    return round(float(ticks) * float(market.tick_size), market.decimals)


def price(ticks: Any, market: HasPrices) -> str:
    """Format a price in ticks as points, with all the market's decimals."""
    return f"{float(ticks) * float(market.tick_size):.{market.decimals}f}"


def clock_time(seconds: float) -> str:
    """Format a duration as `1:05` or `1:01:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """Format a duration as `4.2 s` below a minute, else as `1:05` or `1:01:05`."""
    return f"{seconds:.1f} s" if seconds < 59.95 else clock_time(seconds)


def at(seconds: float, zone: str) -> datetime.datetime:
    """Convert UTC seconds to a time of an IANA zone."""
    return datetime.datetime.fromtimestamp(seconds, ZoneInfo(zone))


def local(seconds: float, zone: str, layout: str = "%Y-%m-%d %H:%M") -> str:
    """Format UTC seconds as wall time of a zone, by the `layout` of `strftime`."""
    return at(seconds, zone).strftime(layout)


def stamp(seconds: int, zone: str) -> str:
    """Format UTC seconds as an ISO time stamp of a zone, as `2013-10-07T09:31:00-04:00`."""
    return at(seconds, zone).isoformat()


def iso(seconds: int) -> str:
    """Format UTC seconds as `2013-10-07T13:30:00Z`."""
    import numpy as np  # its years reach further than those of datetime

    return f"{np.datetime64(int(seconds), 's')}Z"


def date_span(dates: Sequence[datetime.date]) -> str:
    """Format dates as `Fri 11 Oct 2013`, or `7 Oct 2013 to 11 Oct 2013, 5 sessions`."""
    first, last = dates[0], dates[-1]
    if len(dates) == 1:
        return f"{first:%a} {first.day} {first:%b %Y}"
    return f"{first.day} {first:%b %Y} to {last.day} {last:%b %Y}, {len(dates)} sessions"
