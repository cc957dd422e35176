"""Two-sided bars on the host: bid and ask columns of a table.

Quotes are never invented. A bar that is not quoted on both sides is left out and counted; if more
than a few bars are affected, an error is raised. Crossed quotes (ask below bid) are widened to ask
= bid and reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxtrade.data.read.tabular import Table

PRICES = ("open", "high", "low", "close")
SIDES = ("bid", "ask")
QUOTE_FIELDS = tuple(f"{side}_{price}" for side in SIDES for price in PRICES)
MISSING_LIMIT = (
    0.01  # default of data.quotes_tolerance: largest share of bars without a quote on both sides
)
MOST_TOLERATED = 0.5  # an error suggests no limit above this share
SHOWN = 3
TWO_SIDED = "two-sided bars: fills buy at the ask and sell at the bid, features see the mid; no slippage by default"


class Side(NamedTuple):
    """Prices of one side, int32[T] ticks each."""

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray


def is_two_sided(table: Table, given: Mapping[str, str]) -> bool:
    """Whether a file is read as quotes: as `given` maps its columns, else if it has all eight bid
    and ask columns.

    Records a fault if `given` maps both one-sided and two-sided prices.
    """
    one, two = ([key for key in given if key in fields] for fields in (PRICES, QUOTE_FIELDS))
    if one and two:
        table.fault(
            f"data.columns maps {one[0]} (one-sided bars) and {two[0]} (two-sided bars)",
            f"map either {', '.join(PRICES)}, or {', '.join(QUOTE_FIELDS)}",
        )
    present = {name.lower() for name in table.columns}
    return bool(two) or (not one and present.issuperset(QUOTE_FIELDS))


def side_columns(names: Mapping[str, str], side: str) -> dict[str, str]:
    """Field -> column name, where open, high, low and close are the columns of one side."""
    return {**names, **{price: names[f"{side}_{price}"] for price in PRICES}}


def quoted_rows(table: Table, names: Mapping[str, str], limit: float) -> Table:
    """The rows that are quoted on both sides. A note counts the others, where all four cells of a
    side are empty, because that side was not quoted.

    A side with only some empty cells counts as quoted; the price checks refuse it later. Records a
    fault if the share of the others is above `limit`.
    """
    whole = np.ones(len(table), bool)
    for side in SIDES:
        whole &= ~np.all([table.empty(names[f"{side}_{price}"]) for price in PRICES], axis=0)
    lost = np.flatnonzero(~whole)
    if not len(lost):
        return table
    share = len(lost) / len(table)
    counted = f"{len(lost)} of {len(table)} rows"
    if share > limit:
        table.fault(
            f"{counted} ({100 * share:.2f} %, limit {100 * limit:g} %) have no bid or "
            "no ask at all",
            "choose a contract that is quoted throughout (data.expiry), or remove those rows"
            + way_out("leave them out", "quotes_tolerance", share),
            names["time"],
            int(lost[0]),
        )
    table.notes.append(
        f"{counted} have no bid or no ask and are left out, as if there were no bar: "
        f"{_places(table, lost)}{' ...' if len(lost) > SHOWN else ''}"
    )
    return table.chosen(whole)


def _places(table: Table, rows: np.ndarray) -> str:
    return ", ".join(map(table.place, rows[:SHOWN].tolist()))


def way_out(what: str, key: str, share: float) -> str:
    """The end of a fix: the limit that admits a share of faulty bars. Empty if it is most bars: the
    file is wrong then.

    what: what the flag does with those bars. key: of `data`, with a flag of the same name.
    """
    if share > MOST_TOLERATED:
        return ""
    limit = math.ceil(1000 * share) / 1000
    return f"; or {what} with --{key.replace('_', '-')} {limit:g} (data.{key})"


def widen(table: Table, seconds: np.ndarray, bid: Side, ask: Side) -> Side:
    """The ask, raised to the bid wherever it lies below. A note counts the crossed bars per date.

    The maximum is taken field by field. It keeps the high the highest and the low the lowest, so
    the result is a valid bar.
    """
    crossed = np.any([a < b for a, b in zip(ask, bid, strict=True)], axis=0)
    if not crossed.any():
        return ask
    days, counts = np.unique(seconds[crossed] // 86_400, return_counts=True)
    dates = [
        f"{np.datetime64(int(day), 'D')}: {count}" for day, count in zip(days, counts, strict=True)
    ]
    table.notes.append(
        f"{int(crossed.sum())} crossed bars (ask below bid), widened to ask = bid: {', '.join(dates[:10])}"
        f"{' ...' if len(dates) > 10 else ''} (UTC dates; first {_places(table, np.flatnonzero(crossed))})"
    )
    return Side(*(np.maximum(a, b) for a, b in zip(ask, bid, strict=True)))
