"""The raw slots: named values at a bar's close, with their units and ranges, that prompts and rules
may use.

Names are those of the market's features. Values are never normalised. Before the first question,
`check_columns` makes sure that columns hold raw values, not normalised ones. `checked_value` checks
each value of a question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxtrade.advisor.host.names import nearest
from jaxtrade.errors import ConfigError, DataError


class RawSlot(NamedTuple):
    """A raw value at a bar's close: its inclusive range, the decimals that prompts show, and a
    description.
    """

    low: float
    high: float
    decimals: int
    about: str


_TINY, _HUGE = 1e-9, 1e9  # bounds of prices in the market's quote unit: positive and finite
RAW_SLOTS: Mapping[str, RawSlot] = MappingProxyType(
    {
        "close": RawSlot(
            _TINY, _HUGE, 5, "last price, in the market's quote unit (points, dollars), not ticks"
        ),
        "vwap": RawSlot(_TINY, _HUGE, 5, "volume-weighted average price of the day, same unit"),
        "atr": RawSlot(0.0, _HUGE, 5, "average true range of 14 bars, same unit"),
        "adx": RawSlot(0.0, 100.0, 1, "average directional index, 0 to 100"),
        "plus_di": RawSlot(0.0, 100.0, 1, "positive directional indicator, 0 to 100"),
        "minus_di": RawSlot(0.0, 100.0, 1, "negative directional indicator, 0 to 100"),
        "rsi": RawSlot(0.0, 100.0, 1, "relative strength index of 14 bars, 0 to 100"),
        "roc": RawSlot(-1.0, 10.0, 6, "close / close 10 bars ago - 1"),
        "price_to_vwap": RawSlot(-1.0, 10.0, 6, "close / vwap - 1"),
        "efficiency_ratio": RawSlot(0.0, _HUGE, 3, "net move of 20 bars / the way travelled"),
        "price_change_60min": RawSlot(-1.0, 10.0, 6, "close / close 60 bars ago - 1"),
        "volume_ratio_20min": RawSlot(0.0, _HUGE, 2, "volume / mean volume of the last 20 bars"),
    }
)


def check_columns(columns: Mapping[str, Iterable[float]]) -> None:
    """Check that each column holds values in its slot's raw unit.

    NaN (warm-up) is allowed, because such bars are not asked about. A normalised ADX or RSI column
    of a few bars may pass, but not one of a whole session: z-scores fall below 0, and raw
    percentages exceed 1 somewhere.

    Raises DataError where a column is not in its raw unit, ConfigError for an unknown name.
    """
    for name, values in columns.items():
        slot = known_slot(name)
        found = [float(value) for value in values if not math.isnan(value)]
        for value in found:
            checked_value("column", name, value)
        if slot.high == 100.0 and len(found) >= 30 and 0.0 < max(found) <= 1.0:
            raise DataError(
                f"raw slot {name!r}: no value above {max(found):g} in {len(found)} bars; expected 0 to "
                "100, not a share: pass raw values"
            )


def known_slot(name: str) -> RawSlot:
    """The slot of a name. Raises ConfigError, with the nearest known name, for an unknown one."""
    if name not in RAW_SLOTS:
        raise ConfigError(f"raw slot {name[:60]!r}: unknown{nearest(name, RAW_SLOTS)}")
    return RAW_SLOTS[name]


def checked_value(where: str, name: str, value: float) -> float:
    """`value` of a known slot as a float. Raises DataError where it is not finite or outside its
    raw range.
    """
    slot, value = RAW_SLOTS[name], float(value)
    if not math.isfinite(value):
        raise DataError(
            f"{where}: raw slot {name!r} is {value}; ask only about bars past the warm-up"
        )
    if not slot.low <= value <= slot.high:
        raise DataError(
            f"{where}: raw slot {name!r} is {value:g}, expected {slot.low:g} to {slot.high:g} "
            f"({slot.about}); pass raw values, never normalised ones"
        )
    return value
