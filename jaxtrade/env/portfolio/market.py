"""Join the markets of several symbols to one market of shared bars (docs/semantics.md, points 1 to
4). Host code.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig, SplitConfig
from jaxtrade.data.contracts import Contract
from jaxtrade.data.device import words_of
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.members import member_configs
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.data.splits import session_set, split_ids
from jaxtrade.env.portfolio.state import JointMarket
from jaxtrade.errors import DataError
from jaxtrade.text import several, short_repr
from jaxtrade.types import Quotes, SessionSet, SessionTable, TickValue


class Joint(NamedTuple):
    """The contract of several symbols, as far as names of runs and pictures need one."""

    symbol: str


@dataclass(frozen=True)
class Portfolio:
    """Several markets held jointly, with their shared bars on the device. T shared bars, N
    sessions, S symbols.

    members: the markets, in the order of the legs. times: int64[T] UTC seconds of the opens of the
        shared bars.
    opens: int64[T, S] those of the first bar that is joined in each symbol, whose open is the
        shared bar's.
    trade_dates: datetime64[D][N]. The other fields are as in `data.market.Market`.
    """

    members: tuple[Market, ...]
    data: JointMarket
    times: np.ndarray
    opens: np.ndarray
    trade_dates: np.ndarray
    fingerprint: str
    notes: tuple[str, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols, in the order of the legs."""
        return tuple(member.contract.symbol for member in self.members)

    @property
    def contract(self) -> Joint:
        """A name for all symbols together: EURUSD-USDJPY."""
        return Joint("-".join(self.symbols))

    @property
    def name(self) -> str:
        """The same name, as `data.market.Market.name`."""
        return self.contract.symbol

    @property
    def num_bars(self) -> int:
        """T, the number of shared bars."""
        return len(self.times)

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """The contract of each symbol."""
        return tuple(member.contract for member in self.members)

    @property
    def num_sessions(self) -> int:
        """N, the number of sessions that all symbols have."""
        return len(self.trade_dates)

    @property
    def bar_seconds(self) -> int:
        """Length of a bar."""
        return self.members[0].bars.bar_seconds

    @property
    def synthetic(self) -> bool:
        """Whether any symbol's bars are generated."""
        return any(member.synthetic for member in self.members)

    @property
    def has_volume(self) -> bool:
        """Whether every symbol's bars have volume."""
        return all(member.has_volume for member in self.members)

    def __repr__(self) -> str:
        return short_repr(
            "Portfolio",
            *self.symbols,
            several(len(self.times), "shared bar"),
            several(self.num_sessions, "session"),
        )


class _Rows(NamedTuple):
    """Rows of the shared bars in each symbol: first and last row of the bars that are joined,
    int64[T, S]. sessions: (row of the first, row of the flat bar) per session."""

    first: np.ndarray
    last: np.ndarray
    sessions: np.ndarray
    dates: np.ndarray
    complete: np.ndarray
    skipped: int


def load_portfolio(config: RunConfig) -> Portfolio:
    """Load each symbol of `data.markets` onto the device, and join them. Raises ConfigError,
    DataError.
    """
    return join_markets([load_market(member) for member in member_configs(config)])


def split_portfolio(market: Portfolio, config: SplitConfig) -> dict[str, SessionSet]:
    """SessionSets `train`, `validation`, `test` and `all` of the sessions that all symbols share,
    in time order.

    Raises ConfigError as `data.splits.split_ids`.
    """
    ids = split_ids(market.num_sessions, config)
    return {name: session_set(rows, market.num_sessions) for name, rows in ids.items()}


def join_markets(members: Sequence[Market]) -> Portfolio:
    """The joint market of several symbols.

    Raises DataError if their bars have different lengths, or no session has two shared bars.
    """
    lengths = {member.contract.symbol: member.bars.bar_seconds for member in members}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{symbol}: {seconds} s" for symbol, seconds in lengths.items())
        raise DataError(
            f"data.markets: env.task=allocate needs bars of one length, found {found}; give files with "
            "equal bars"
        )
    rows = _shared_rows(members)
    if not len(rows.sessions):
        spans = "; ".join(
            f"{m.contract.symbol} {m.trade_dates[0]}..{m.trade_dates[-1]}" for m in members
        )
        raise DataError(
            f"data.markets: no trade date has two bars that all symbols share ({spans}); give data of the "
            "same years, with stamps of the same zone"
        )
    arrays = _arrays(members, rows)
    digest = hashlib.sha256("|".join(member.fingerprint for member in members).encode()).hexdigest()
    opens = np.stack(
        [member.bars.time[rows.first[:, s]] for s, member in enumerate(members)], axis=1
    )
    return Portfolio(
        tuple(members),
        _on_device(arrays, members, rows, digest),
        members[0].bars.time[rows.last[:, 0]],
        opens,
        rows.dates,
        digest,
        _notes(members, rows),
    )


def _shared_rows(members: Sequence[Market]) -> _Rows:
    tables = [
        {name: np.asarray(getattr(m.data.sessions, name)) for name in ("first", "last", "complete")}
        for m in members
    ]
    common = functools.reduce(np.intersect1d, [m.trade_dates for m in members])
    firsts, lasts, sessions, dates, complete, count, skipped = [], [], [], [], [], 0, 0
    for date in common:
        at = [int(np.searchsorted(m.trade_dates, date)) for m in members]
        ranges = [
            (int(t["first"][i]), int(t["last"][i]) + 1) for t, i in zip(tables, at, strict=True)
        ]
        stamps = [m.bars.time[a : b + 1] for m, (a, b) in zip(members, ranges, strict=True)]
        shared = functools.reduce(np.intersect1d, stamps)
        if len(shared) < 2:
            continue
        own = np.stack(
            [
                a + np.searchsorted(each, shared)
                for (a, _), each in zip(ranges, stamps, strict=True)
            ],
            axis=1,
        )
        begin = np.concatenate([own[:1], own[:-1] + 1])
        skipped += int((own - begin).sum())
        firsts.append(begin)
        lasts.append(own)
        sessions.append((count, count + len(shared) - 1))
        dates.append(date)
        complete.append(all(bool(t["complete"][i]) for t, i in zip(tables, at, strict=True)))
        count += len(shared)
    none = np.zeros((0, len(members)), np.int64)
    return _Rows(
        np.concatenate([none, *firsts]),
        np.concatenate([none, *lasts]),
        np.array(sessions, np.int64),
        np.array(dates, "datetime64[D]"),
        np.array(complete, bool),
        skipped,
    )


def _joined(side: Any, first: np.ndarray, last: np.ndarray) -> dict[str, np.ndarray]:
    """One side of one symbol's shared bars, int32[T] each. side: its own bars with the attributes
    `PRICES`.
    """

    def extreme(values: np.ndarray, of: np.ufunc) -> np.ndarray:
        result = values[last].copy()
        for i in np.flatnonzero(last > first):  # few: bars at which another symbol has none
            result[i] = of.reduce(values[first[i] : last[i] + 1])
        return result

    return {
        "open": side.open[first],
        "high": extreme(side.high, np.maximum),
        "low": extreme(side.low, np.minimum),
        "close": side.close[last],
    }


def _arrays(members: Sequence[Market], rows: _Rows) -> dict[str, np.ndarray]:
    """Host arrays of the shared bars by name, `ask.` before those of the ask side."""
    found: dict[str, list[np.ndarray]] = {}
    two_sided = any(member.bars.ask is not None for member in members)
    converted = any(member.contract.currency != ACCOUNT for member in members)
    for s, member in enumerate(members):
        first, last = rows.first[:, s], rows.last[:, s]
        bid, ask = member.bars.sides
        columns = _joined(bid, first, last)
        if two_sided:
            columns |= {f"ask.{name}": values for name, values in _joined(ask, first, last).items()}
        if converted:
            value = member.data.tick_value
            columns["times"] = (
                np.full(len(first), member.contract.tick_mills)
                if value is None
                else np.asarray(value.times)[first]
            )
            columns["over"] = (
                np.ones(len(first)) if value is None else np.asarray(value.over)[first]
            )
        for name, values in columns.items():
            found.setdefault(name, []).append(values.astype(np.int32))
    arrays = {name: np.stack(columns, axis=1) for name, columns in found.items()}
    arrays["rows"] = rows.last.astype(np.int32)
    for name in ("bars_to_flat", "tr_sum"):
        own = [np.asarray(getattr(m.data, name))[rows.last[:, s]] for s, m in enumerate(members)]
        arrays[name] = np.min(own, axis=0).astype(np.int32)
    return arrays


def _on_device(
    arrays: dict[str, np.ndarray], members: Sequence[Market], rows: _Rows, digest: str
) -> JointMarket:
    import jax

    device = {name: jax.device_put(array) for name, array in arrays.items()}
    first, flat = rows.sessions[:, 0].astype(np.int32), rows.sessions[:, 1].astype(np.int32)
    sessions = SessionTable(
        *(
            jax.device_put(x)
            for x in (
                first,
                flat + 1,
                first,
                flat - 1,
                rows.dates.astype(np.int64).astype(np.int32),
                rows.complete,
            )
        )
    )
    ask = Quotes(*(device.pop(f"ask.{name}") for name in PRICES)) if "ask.open" in device else None
    value = TickValue(device.pop("times"), device.pop("over")) if "times" in device else None
    return JointMarket(
        **device,
        sessions=sessions,
        views=tuple(m.data.view for m in members),
        fingerprint=jax.device_put(words_of(digest)),
        ask=ask,
        tick_value=value,
    )


def _notes(members: Sequence[Market], rows: _Rows) -> tuple[str, ...]:
    notes = [f"{member.contract.symbol}: {note}" for member in members for note in member.notes]
    sessions = sum(member.num_sessions for member in members) / len(members)
    notes.append(
        f"{len(rows.dates)} sessions of all symbols ({sessions:,.0f} on average per symbol)"
    )
    if rows.skipped:
        notes.append(
            f"{several(rows.skipped, 'bar')} that another symbol lacks joined to the next shared bar"
        )
    return tuple(notes)
