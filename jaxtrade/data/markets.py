"""The market of a run: one symbol, a set of them, or several held jointly; `load_markets` makes it.

Callers use what the three have in common (`Markets`), and need not know which one they have.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.market import MOST
from jaxtrade.data.contracts import Contract
from jaxtrade.data.device import to_device, words_of
from jaxtrade.data.market import INT32, Market, Markets, load_member
from jaxtrade.data.members import member_configs
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import several, short_repr
from jaxtrade.types import (
    IntrabarPath,
    JointMarket,
    MarketData,
    Quotes,
    SessionTable,
    TickValue,
)


def load_markets(config: RunConfig) -> Any:
    """The market of a run on the device (`Markets`): a `Market`, the `MarketSet` of `data.markets`,
    or with `env.task=allocate` the `Portfolio` of them. One symbol is a `Market`, however it is
    named.

    Raises ConfigError or DataError, as `load_market`, `join` and `join_bars` do.
    """
    configs = member_configs(config)
    if config.env.joint:
        return join_bars([load_member(each) for each in configs])
    if len(configs) == 1:
        return load_member(configs[0])
    return join([load_member(each, on_device=False) for each in configs], config)


# A set of symbols as one market: the bars of one symbol after the other, without padding, and a
# symbol per bar.
#
# Each environment trades one symbol of the set. An observation window never reaches into another
# symbol, because the first decision of each symbol has a whole window of its own bars before it.


@dataclass(frozen=True)
class MarketSet(Markets):
    """M symbols in one device pytree. Row i of symbol m is row `offsets[m] + i` of `data`.

    members: the markets, in the order of `data.markets`. The leaves of their `data` are NumPy
        arrays. data: the device
    pytree of all. fingerprint: sha256 (hex) over those of the members. offsets, session_offsets:
    int64[M + 1], the first bar and the first session of each symbol; the last numbers are all bars
    and all sessions.
    """

    members: tuple[Market, ...]
    data: MarketData
    fingerprint: str
    offsets: np.ndarray
    session_offsets: np.ndarray

    def __repr__(self) -> str:
        return short_repr(
            "MarketSet",
            *(
                f"{member.name}: {several(len(member.bars), 'bar')}, "
                f"{several(member.num_sessions, 'session')}"
                for member in self.members
            ),
            f"sha256 {self.fingerprint[:12]}",
        )

    @property
    def parts(self) -> tuple[Market, ...]:
        """Each member: an environment trades one symbol of the set."""
        return self.members

    @property
    def extent(self) -> str:
        """Symbols, sessions and bars in words."""
        return (
            f"{len(self.members)} symbols, one per environment: {self.num_sessions} sessions, "
            f"{self.num_bars:,} bars"
        )

    @property
    def trade_dates(self) -> np.ndarray:
        """`datetime64[D][N]`, one per row of the session table. They increase inside each symbol
        only.
        """
        return np.concatenate([member.trade_dates for member in self.members])

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all members, each with its symbol."""
        return tuple(_notes_of(self.members))

    @property
    def facts(self) -> dict[str, Any]:
        """What a policy's bundle says of it."""
        return {"markets": [member.facts["market"] for member in self.members]}


def _notes_of(members: Sequence[Market]) -> list[str]:
    """The notes of all members, each with its symbol."""
    return [f"{member.name}: {note}" for member in members for note in member.notes]


def join(members: Sequence[Market], config: RunConfig) -> MarketSet:
    """Put markets into one set.

    If any member has two-sided bars, the ask of the others is their bid. If the profits of any
    member are converted, all get a value of a tick in each bar; for dollars it is a whole number,
    so the same integers result.

    Raises:
        ConfigError: too many symbols, one symbol twice, or some members with second bars and some
            without.
        DataError: more bars than int32 can index.
    """
    symbols = [member.name for member in members]
    if len(set(symbols)) < len(symbols) or not 1 < len(symbols) <= MOST:
        raise ConfigError(
            f"a set of symbols has 2 to {MOST} different ones, found {', '.join(symbols)}"
        )
    offsets, session_offsets = (
        np.concatenate([[0], np.cumsum(counts)])
        for counts in (
            [len(member.bars) for member in members],
            [member.num_sessions for member in members],
        )
    )
    _check_size(members, int(offsets[-1]))
    digest = hashlib.sha256("|".join(member.fingerprint for member in members).encode()).hexdigest()
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *_alike(members, offsets))
    # A base that any symbol needs is 0 for the others.
    bases = [int(member.data.view.base or 0) for member in members]
    base = np.array(bases, np.int32) if any(bases) else None
    symbols = np.repeat(np.arange(len(members), dtype=np.int8), np.diff(offsets))
    view = joined.view.replace(base=base)
    joined = joined.replace(fingerprint=words_of(digest), symbol=symbols, view=view)
    data = to_device(joined, config)
    return MarketSet(tuple(members), data, digest, offsets, session_offsets)


def _check_size(members: Sequence[Market], bars: int) -> None:
    width = members[0].data.view.value.shape[-1]
    if bars * width >= INT32:
        raise DataError(
            f"{', '.join(member.name for member in members)}: {bars:,} bars of {width} columns "
            f"are {bars * width:,} numbers, more than int32 can index ({INT32:,}). Fix: fewer symbols, "
            "fewer features (env.features), or fewer years (data.start, data.end)"
        )


def _alike(members: Sequence[Market], offsets: np.ndarray) -> list[MarketData]:
    """The members' data with the same leaves, whose rows can stand one after the other: what any
    symbol has, all have."""
    parts = [member.data for member in members]
    two_sided = any(part.ask is not None for part in parts)
    converts = any(part.tick_value is not None for part in parts)
    has_levels = any(part.view.level is not None for part in parts)
    found = []
    for member, part, path, offset in zip(members, parts, _paths(members), offsets, strict=False):
        view = part.view.replace(windows=None, level_windows=None, base=None)
        if has_levels and view.level is None:
            view = view.replace(level=np.zeros_like(view.value))
        sessions = part.sessions.replace(
            **{
                name: getattr(part.sessions, name) + np.int32(offset)
                for name in ("start", "end", "first", "last")
            }
        )
        if two_sided and part.ask is None:
            part = part.replace(ask=Quotes(**{name: getattr(part, name) for name in PRICES}))
        if converts and part.tick_value is None:  # dollars, in the form of a converted value
            ones = np.ones(len(member.bars), np.int32)
            mills = ones * np.int32(member.contract.tick_mills)
            part = part.replace(tick_value=TickValue(mills, ones))  # type: ignore[arg-type]  # host leaves
        found.append(
            part.replace(view=view, sessions=sessions, path=path, fingerprint=None, symbol=None)
        )
    return found


def _paths(members: Sequence[Market]) -> list[IntrabarPath | None]:
    """The paths of all symbols, padded to the most falls of any."""
    paths = [member.data.path for member in members]
    known = [path for path in paths if path is not None]
    if not known:
        return paths
    if len(known) < len(paths):
        without = [member.name for member in members if member.data.path is None]
        raise ConfigError(
            f"data.markets: {', '.join(without)} has no second bars and other symbols have some; give "
            "seconds for all of them (data.per_market.SYMBOL.seconds), or for none"
        )
    most = max(path.falls.shape[-1] for path in known)
    return [
        path.replace(
            falls=np.pad(np.asarray(path.falls), [(0, 0)] * 3 + [(0, most - path.falls.shape[-1])])
        )
        for path in known
    ]


# Several symbols that are held jointly: one market of the bars that all of them share
# (docs/semantics.md, "Several symbols in one account", points 1 to 4).


class Joint(NamedTuple):
    """The contract of several symbols, as far as names of runs and pictures need one."""

    symbol: str


@dataclass(frozen=True)
class Portfolio(Markets):
    """Several markets held jointly, with their shared bars on the device. T shared bars, N
    sessions, S symbols.

    members: the markets, in the order of the legs. times: int64[T] UTC seconds of the opens of the
        shared bars.
    opens: int64[T, S] those of the first bar that is joined in each symbol, whose open is the
        shared bar's.
    trade_dates: datetime64[D][N]. The other fields are as in `Market`.
    """

    members: tuple[Market, ...]
    data: JointMarket
    times: np.ndarray
    opens: np.ndarray
    trade_dates: np.ndarray
    fingerprint: str
    notes: tuple[str, ...]

    @property
    def contract(self) -> Joint:
        """A name for all symbols together: EURUSD-USDJPY."""
        return Joint("-".join(self.symbols))

    @property
    def name(self) -> str:
        """The same name, as `Market.name`."""
        return self.contract.symbol

    @property
    def extent(self) -> str:
        """Sessions and bars in words."""
        return f"{several(self.num_sessions, 'shared session')}, {self.num_bars:,} shared bars"

    @property
    def num_bars(self) -> int:
        """T, the number of shared bars."""
        return len(self.times)

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """The contract of each symbol."""
        return tuple(member.contract for member in self.members)

    @property
    def bar_seconds(self) -> int:
        """Length of a bar."""
        return self.members[0].bars.bar_seconds

    @property
    def has_volume(self) -> bool:
        """Whether every symbol's bars have volume."""
        return all(member.has_volume for member in self.members)

    @property
    def facts(self) -> dict[str, Any]:
        """What a policy's bundle says of it."""
        return {
            "market": {
                "symbol": self.name,
                "symbols": list(self.symbols),
                "synthetic": self.synthetic,
                "tick_size": [str(contract.tick_size) for contract in self.contracts],
                "bar_seconds": self.bar_seconds,
            }
        }

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


def join_bars(members: Sequence[Market]) -> Portfolio:
    """The joint market of several symbols.

    Raises DataError if their bars have different lengths, or no session has two shared bars.
    """
    lengths = {member.name: member.bars.bar_seconds for member in members}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{symbol}: {seconds} s" for symbol, seconds in lengths.items())
        raise DataError(
            f"data.markets: env.task=allocate needs bars of one length, found {found}; give files with "
            "equal bars"
        )
    rows = _shared_rows(members)
    if not len(rows.sessions):
        spans = "; ".join(f"{m.name} {m.trade_dates[0]}..{m.trade_dates[-1]}" for m in members)
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
    notes = _notes_of(members)
    sessions = sum(member.num_sessions for member in members) / len(members)
    notes.append(
        f"{len(rows.dates)} sessions of all symbols ({sessions:,.0f} on average per symbol)"
    )
    if rows.skipped:
        notes.append(
            f"{several(rows.skipped, 'bar')} that another symbol lacks joined to the next shared bar"
        )
    return tuple(notes)
