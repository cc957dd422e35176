"""Prices of a market lie in a known range each year: bars of another market, or in another unit, do
not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxtrade.data.contracts import CONTRACTS, Contract
from jaxtrade.data.read.faults import Faults
from jaxtrade.data.read.tabular import Table
from jaxtrade.text import year_runs

SCALES = tuple(10.0**power for power in range(-9, 10) if power)  # between units of prices


def check_range(
    table: Table,
    names: Mapping[str, str],
    rows: np.ndarray,
    seconds: np.ndarray,
    points: Mapping[str, np.ndarray],
    contract: Contract,
    price_scale: float,
    faults: Faults,
    notes: list[str],
) -> None:
    """Check that prices are plausible for the market in their year, to refuse bars of another
    market or unit.

    points: float64[n] for each price field, the file's prices times `price_scale`. Records faults
        and notes.

    If most bars are implausible, the market or the unit is the wrong one. The check then raises at
    once, because faults about the tick would only hide the cause.
    """
    other_market, unknown = False, list[int]()
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    for year in np.unique(years[seconds != 0]):
        bounds = contract.price_range(int(year))
        if bounds is None:
            unknown.append(int(year))
            continue
        of_year = years == year
        wrong = np.flatnonzero(
            of_year & ((points["low"] < bounds[0]) | (points["high"] > bounds[1]))
        )
        if not len(wrong):
            continue
        i = int(wrong[0])
        field = "low" if points["low"][i] < bounds[0] else "high"
        others = [
            c.symbol
            for c in CONTRACTS.values()
            if not c.micro and _fits(c, int(year), points, of_year)
        ]
        hint = f"; they fit {' or '.join(others)}" if others else ""
        faults.add(
            f"{len(wrong)} of {int(of_year.sum())} bars of {year} contradict {contract.symbol}, which traded "
            f"between {bounds[0]:.{contract.decimals}f} and {bounds[1]:.{contract.decimals}f}{hint}",
            _fix(contract, price_scale, bounds, points["close"][of_year]),
            int(rows[i]),
            names[field],
            table.cell(names[field], int(rows[i])),
        )
        other_market |= 2 * len(wrong) > int(of_year.sum())
    if unknown:
        notes.append(
            f"{year_runs(unknown)}: no price range is known for {contract.symbol}; its prices are not checked "
            "against one"
        )
    if other_market:
        faults.stop()


def _fits(
    contract: Contract, year: int, points: Mapping[str, np.ndarray], of_year: np.ndarray
) -> bool:
    bounds = contract.price_range(year)
    return bounds is not None and bool(
        (points["low"][of_year] >= bounds[0]).all() and (points["high"][of_year] <= bounds[1]).all()
    )


def _fix(
    contract: Contract, price_scale: float, bounds: tuple[float, float], close: np.ndarray
) -> str:
    """What to set. If another power of ten brings the closes into the range, the unit that the file
    seems to have.
    """
    known = close[np.isfinite(close)]
    middle = float(np.median(known)) if len(known) else 0.0
    units = [scale for scale in SCALES if bounds[0] <= middle * scale <= bounds[1]]
    if middle <= 0 or len(units) != 1:
        return (
            "check data.market and data.price_scale (back-adjusted prices are not tradable prices)"
        )
    found = f"{price_scale * units[0]:.12f}".rstrip("0").rstrip(".")
    return (
        f"if the file holds {contract.symbol} in another unit, set data.price_scale={found} (for this symbol "
        f"alone, data.per_market.{contract.symbol}.price_scale={found}); otherwise check data.market"
    )
