"""The market of a run: one symbol, a set of them, or several held jointly; `load_markets` makes it.

Callers use what the three have in common (`Markets`), and need not know which one they have.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.market import MOST
from jaxtrade.data.bars import INT32, PRICES, Bars, Side
from jaxtrade.data.contracts import Contract
from jaxtrade.data.device import to_device, words_of
from jaxtrade.data.market import Market, Markets, load_member
from jaxtrade.data.members import member_configs
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import several
from jaxtrade.types import (
    IntrabarPath,
    JointMarket,
    MarketData,
    Quotes,
    SessionTable,
    TickValue,
)


def load_markets(config: RunConfig) -> Any:
    """Load the market of a run onto the device (`Markets`).

    It is a `Market`, the `MarketSet` of `data.markets`, or with `env.task=allocate` the `Portfolio`
    of them. One symbol is a `Market`, however it is named. Raises ConfigError or DataError, as
    `load_market`, `join` and `join_bars` do.
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


@dataclass(frozen=True, repr=False)
class MarketSet(Markets):
    """M symbols in one device pytree. Row i of symbol m is row `offsets[m] + i` of `data`.

    members: the markets, in the order of `data.markets`. The leaves of their `data` are
        NumPy arrays.
    data: the device pytree of all.
    fingerprint: sha256 (hex) over those of the members.
    offsets, session_offsets: int64[M + 1], the first bar and the first session of each symbol; the
        last numbers are all bars and all sessions.
    """

    members: tuple[Market, ...]
    data: MarketData
    fingerprint: str
    offsets: np.ndarray
    session_offsets: np.ndarray

    @property
    def parts(self) -> tuple[Market, ...]:
        """Each member: an environment trades one symbol of the set."""
        return self.members

    @property
    def extent(self) -> str:
        """Symbols, sessions and bars in words."""
        return (
            f"{len(self.members)} symbols, one per environment: {several(self.num_sessions, 'session')}, "
            f"{self.num_bars:,} bars"
        )

    @property
    def trade_dates(self) -> np.ndarray:
        """`datetime64[D][N]`, one per row of the session table.

        They increase inside each symbol only.
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
    """List the notes of all members, each with its symbol."""
    return [f"{member.name}: {note}" for member in members for note in member.notes]


def join(members: Sequence[Market], config: RunConfig) -> MarketSet:
    """Put markets into one set.

    If any member has two-sided bars, the ask of the others is their bid. If the profits of any
    member are converted, all get a value of a tick in each bar; for dollars it is a whole number,
    so the same integers result.

    Raises:
        ConfigError: too many symbols, one symbol twice, or some members with second bars and
            some without.
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
    bars, width = int(offsets[-1]), members[0].data.view.value.shape[-1]
    if bars * width >= INT32:
        raise DataError(
            f"{', '.join(symbols)}: {bars:,} bars of {width} columns "
            f"are {bars * width:,} numbers, more than int32 can index ({INT32:,}). Fix: fewer symbols, "
            "fewer features (env.features), or fewer years (data.start, data.end)"
        )
    digest = hashlib.sha256("|".join(member.fingerprint for member in members).encode()).hexdigest()
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *_alike(members, offsets))
    # A base that any symbol needs is 0 for the others.
    bases = [int(member.data.view.base or 0) for member in members]
    base = np.array(bases, np.int32) if any(bases) else None
    symbol = np.repeat(np.arange(len(members), dtype=np.int8), np.diff(offsets))
    view = joined.view.replace(base=base)
    joined = joined.replace(fingerprint=words_of(digest), symbol=symbol, view=view)
    data = to_device(joined, config)
    return MarketSet(tuple(members), data, digest, offsets, session_offsets)


def _alike(members: Sequence[Market], offsets: np.ndarray) -> list[MarketData]:
    """Give the members' data the same leaves, so that their rows can stand one after the other.

    What any symbol has, all have.
    """
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
        if converts:
            part = part.replace(tick_value=_tick_value(member))
        found.append(
            part.replace(view=view, sessions=sessions, path=path, fingerprint=None, symbol=None)
        )
    return found


def _tick_value(member: Market) -> TickValue:
    """Return the value of a tick in each bar, with NumPy leaves.

    Also of dollars, whose value is the same in all of them.
    """
    if (value := member.data.tick_value) is not None:
        return jax.tree.map(np.asarray, value)
    ones = np.ones(len(member.bars), np.int32)
    return TickValue(ones * np.int32(member.contract.tick_mills), ones)  # type: ignore[arg-type]  # host leaves


def _paths(members: Sequence[Market]) -> list[IntrabarPath | None]:
    """Return the paths of all symbols, padded to the most falls of any."""
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
    """The contract of several symbols, as far as names of runs and plots need one."""

    symbol: str


@dataclass(frozen=True, repr=False)
class Portfolio(Markets):
    """Several markets held jointly, with their shared bars on the device.

    T shared bars, N sessions, S symbols.

    members: the markets, in the order of the legs.
    times: int64[T] UTC seconds of the opens of the shared bars.
    opens: int64[T, S] those of the first bar that is joined in each symbol, whose open is the
        shared bar's.
    trade_dates: datetime64[D][N].
    The other fields are as in `Market`.
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


class _Rows(NamedTuple):
    """Rows of the shared bars in each symbol.

    first, last: int64[T, S], first and last row of the bars that are joined.
    sessions: the number of shared bars of each session.
    """

    first: np.ndarray
    last: np.ndarray
    sessions: list[int]
    dates: np.ndarray
    complete: list[bool]


def join_bars(members: Sequence[Market]) -> Portfolio:
    """Build the joint market of several symbols.

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
    digest = hashlib.sha256("|".join(member.fingerprint for member in members).encode()).hexdigest()
    opens = [m.bars.time[first] for m, first in zip(members, rows.first.T, strict=True)]
    return Portfolio(
        tuple(members),
        _joint_data(members, rows, digest),
        members[0].bars.time[rows.last[:, 0]],
        np.stack(opens, axis=1),
        rows.dates,
        digest,
        _notes(members, rows),
    )


def _shared_rows(members: Sequence[Market]) -> _Rows:
    """Find the rows of shared bars. Raises DataError if no session has two shared bars."""
    tables = [jax.tree.map(np.asarray, member.data.sessions) for member in members]
    firsts, lasts, dates, complete = [], [], [], []
    for date in functools.reduce(np.intersect1d, [m.trade_dates for m in members]):
        at = [int(np.searchsorted(m.trade_dates, date)) for m in members]
        begins = [int(table.first[i]) for table, i in zip(tables, at, strict=True)]
        stamps = [
            m.bars.time[begin : table.last[i] + 2]
            for m, table, begin, i in zip(members, tables, begins, at, strict=True)
        ]
        shared = functools.reduce(np.intersect1d, stamps)
        if len(shared) < 2:
            continue
        own = np.stack([np.searchsorted(each, shared) for each in stamps], axis=1) + begins
        firsts.append(np.concatenate([own[:1], own[:-1] + 1]))
        lasts.append(own)
        dates.append(date)
        complete.append(all(bool(table.complete[i]) for table, i in zip(tables, at, strict=True)))
    if not dates:
        spans = "; ".join(f"{m.name} {m.trade_dates[0]}..{m.trade_dates[-1]}" for m in members)
        raise DataError(
            f"data.markets: no trade date has two bars that all symbols share ({spans}); give data of the "
            "same years, with stamps of the same zone"
        )
    return _Rows(
        np.concatenate(firsts),
        np.concatenate(lasts),
        [len(own) for own in lasts],
        np.array(dates, "datetime64[D]"),
        complete,
    )


def _spread_side(side: Bars, first: np.ndarray, last: np.ndarray) -> Side:
    """Spread one side of one symbol over its shared bars, int32[T] each.

    side: its own bars.
    """

    def extreme(values: np.ndarray, of: np.ufunc) -> np.ndarray:
        result = values[last].copy()
        for i in np.flatnonzero(last > first):  # few: bars at which another symbol has none
            result[i] = of.reduce(values[first[i] : last[i] + 1])
        return result

    return Side(
        side.open[first],
        extreme(side.high, np.maximum),
        extreme(side.low, np.minimum),
        side.close[last],
    )


def _joint_data(members: Sequence[Market], rows: _Rows, digest: str) -> JointMarket:
    """Build the shared bars on the device."""

    def of_each(values: Callable[[Market, np.ndarray, np.ndarray], Any]) -> Any:
        """Return the values of every symbol (int32[T, S])."""
        return jax.tree.map(
            lambda *columns: np.stack(columns, axis=1).astype(np.int32),
            *map(values, members, rows.first.T, rows.last.T),
        )

    bid, ask = of_each(
        lambda member, first, last: [_spread_side(side, first, last) for side in member.bars.sides]
    )
    two_sided = any(member.bars.ask for member in members)
    converted = any(member.contract.currency != ACCOUNT for member in members)
    value = of_each(
        lambda member, first, last: jax.tree.map(lambda leaf: leaf[first], _tick_value(member))
    )
    nearest = {
        name: of_each(
            lambda member, first, last, name=name: np.asarray(getattr(member.data, name))[last]
        ).min(axis=1)
        for name in ("bars_to_flat", "tr_sum")
    }
    end = np.cumsum(rows.sessions, dtype=np.int32)
    first = end - np.array(rows.sessions, np.int32)
    dates = rows.dates.astype(np.int64).astype(np.int32)
    host: Any = {
        **bid._asdict(),
        **nearest,
        "rows": rows.last.astype(np.int32),
        "sessions": SessionTable(first, end, first, end - 2, dates, np.array(rows.complete)),  # type: ignore[arg-type]
        "fingerprint": words_of(digest),
        "ask": Quotes(*ask) if two_sided else None,
        "tick_value": value if converted else None,
    }
    return JointMarket(**jax.device_put(host), views=tuple(member.data.view for member in members))


def _notes(members: Sequence[Market], rows: _Rows) -> tuple[str, ...]:
    notes = _notes_of(members)
    sessions = sum(member.num_sessions for member in members) / len(members)
    notes.append(
        f"{len(rows.dates)} sessions of all symbols ({sessions:,.0f} on average per symbol)"
    )
    skipped = int((rows.last - rows.first).sum())
    if skipped:
        notes.append(
            f"{several(skipped, 'bar')} that another symbol lacks joined to the next shared bar"
        )
    return tuple(notes)
