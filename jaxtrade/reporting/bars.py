"""The bars of the evaluated sessions, and the trades of the shown agent placed on them.

Columns of integers become text that a browser unpacks quickly: differences as int16, raw deflate,
base64. The page decodes it in `web/bundle.js`. Nothing in it depends on the clock or on the machine.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.evaluation.records import ABSENT, BarRecords


@dataclass(frozen=True)
class PageClock:
    """How the page shows times and prices.

    zone: IANA zone of the exchange.
    tick_size: points.
    decimals: of a price.
    """

    bar_seconds: int
    zone: str
    tick_size: float
    decimals: int


@dataclass(frozen=True)
class PlacedTrade:
    """A trade on the bars.

    row: its line of `trades.csv`.
    decision, entry, exit: numbers of bars.
    side: +1 or -1.

    legal: names of the actions that were legal at the decision.
    stops: (bar, ticks), the levels of the stop from the close of that bar on, as it was moved;
        empty without a stop, and where the position was closed in the bar of its entry.
    target: ticks, None likewise.
    """

    row: dict[str, str]
    decision: int
    entry: int
    exit: int
    side: int
    legal: tuple[str, ...]
    stops: tuple[tuple[int, int], ...] = ()
    target: int | None = None

    @property
    def stop(self) -> int | None:
        """The first stop, in ticks."""
        return self.stops[0][1] if self.stops else None


def place_trades(
    lines: Sequence[dict[str, str]], bars: BarRecords, shown: str, actions: Sequence[str]
) -> list[PlacedTrade]:
    """Place the trades of the agent `shown` on the bars. Raises ValueError if the lines are others.

    Args:
        lines: of its `trades.csv`.
        actions: names by id.
    """
    columns = bars.trades[shown]
    if len(lines) != len(columns["side"]):
        raise ValueError(f"{len(lines):,} trades, but {len(columns['side']):,} in records.npz")
    decision, entry, left = (
        np.searchsorted(bars.row, columns[name])
        for name in ("decision_row", "entry_row", "exit_row")
    )
    number = np.searchsorted(bars.decision, decision)  # of the decision bar
    return [
        PlacedTrade(
            line,
            int(decision[k]),
            int(entry[k]),
            int(left[k]),
            int(columns["side"][k]),
            tuple(
                name
                for name, allowed in zip(actions, bars.strategy["mask"][number[k]], strict=True)
                if allowed
            ),
            *_levels(bars, int(number[k]), int(left[k] - entry[k])),
        )
        for k, line in enumerate(lines)
    ]


def _levels(
    bars: BarRecords, first: int, held: int
) -> tuple[tuple[tuple[int, int], ...], int | None]:
    """Return (stops, target) of a position.

    Args:
        first: number of its decision bar.
        held: closes of bars at which it is open.
    """
    if not held:
        return (), None
    stop, target = bars.strategy["stop"][first : first + held], int(bars.strategy["target"][first])
    changed = [
        i for i in range(len(stop)) if stop[i] != ABSENT and (i == 0 or stop[i] != stop[i - 1])
    ]
    at = bars.decision[first : first + held] + 1
    return tuple((int(at[i]), int(stop[i])) for i in changed), None if target == ABSENT else target


def extremes(values: np.ndarray, most: int) -> np.ndarray:
    """Select at most `most` values that keep the shape, and return their numbers (int64[M]).

    They are first, last, and least and largest of each group.

    values: float[N]. All N if they are no more than `most`.
    """
    size = len(values)
    if size <= most:
        return np.arange(size)
    found: list[Any] = [0, size - 1]
    for group in np.array_split(np.arange(size), max(1, (most - 2) // 2)):
        found += [group[np.argmin(values[group])], group[np.argmax(values[group])]]
    return np.unique(found)


LEVEL = 6  # of deflate; 9 takes several times as long on prices and saves about 1 %
TYPES = (np.uint8, np.int16, np.int32)  # of differences, the first that holds them all


def pack_columns(
    columns: Mapping[str, np.ndarray], above: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Pack columns, all of one length, as JSON values.

    Args:
        columns: name -> int[N]. Each is stored as its first value and the N - 1 differences of
            its neighbours.
        above: name -> an earlier column; such a column is stored as N differences from that one.

    Returns:
        rows: N.
        columns: of each its `name`, `type` (u1, i2 or i4), `first`, and `above`, a name or None.
        data: the differences of all columns one after the other, little-endian, deflated without a
            header, as base64.
    Raises ValueError if differences do not fit int32.
    """
    described, parts = [], []
    size = len(next(iter(columns.values()), ()))
    for name, column in columns.items():
        values, other = np.asarray(column, np.int64), (above or {}).get(name)
        deltas = (
            np.diff(values, prepend=values[:1])
            if not other
            else values - np.asarray(columns[other], np.int64)
        )
        kind = next(
            (
                each
                for each in TYPES
                if not len(deltas)
                or (np.iinfo(each).min <= deltas.min() and deltas.max() <= np.iinfo(each).max)
            ),
            None,
        )
        if not kind:
            raise ValueError(
                f"{name}: neighbours differ by {np.abs(deltas).max():,}, more than 32 bits hold"
            )
        described.append(
            {
                "name": name,
                "type": f"{np.dtype(kind).kind}{np.dtype(kind).itemsize}",
                "first": int(values[0]) if size else 0,
                "above": other,
            }
        )
        parts.append(deltas.astype(np.dtype(kind).newbyteorder("<")).tobytes())
    squeeze = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    data = squeeze.compress(b"".join(parts)) + squeeze.flush()
    return {"rows": size, "columns": described, "data": base64.b64encode(data).decode("ascii")}
