"""A set of symbols as one market: the bars of one symbol after the other, without padding, and a
symbol per bar.

Each environment trades one symbol of the set. An observation window never reaches into another
symbol, because the first decision of each symbol has a whole window of its own bars before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.symbols import MOST
from jaxtrade.data.device import to_device, wants_tables, with_tables, words_of
from jaxtrade.data.market import INT32, Market, load_host, market_of
from jaxtrade.data.members import member_configs, set_name
from jaxtrade.data.read.validate import PRICES
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import several, short_repr
from jaxtrade.types import IntrabarPath, MarketData, Quotes, TickValue


@dataclass(frozen=True)
class MarketSet:
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
                f"{member.contract.symbol}: {several(len(member.bars), 'bar')}, "
                f"{several(member.num_sessions, 'session')}"
                for member in self.members
            ),
            f"sha256 {self.fingerprint[:12]}",
        )

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in their order."""
        return tuple(member.contract.symbol for member in self.members)

    @property
    def name(self) -> str:
        """A short name for folders and titles (`members.set_name`)."""
        return set_name(self.symbols)

    @property
    def num_sessions(self) -> int:
        """N, the number of rows in the session table: the sessions of all symbols."""
        return int(self.session_offsets[-1])

    @property
    def num_bars(self) -> int:
        """T, the bars of all symbols."""
        return int(self.offsets[-1])

    @property
    def trade_dates(self) -> np.ndarray:
        """`datetime64[D][N]`, one per row of the session table. They increase inside each symbol
        only.
        """
        return np.concatenate([member.trade_dates for member in self.members])

    @property
    def session_symbols(self) -> np.ndarray:
        """int64[N]: the symbol of each row of the session table, as its place in `members`."""
        return np.repeat(np.arange(len(self.members)), np.diff(self.session_offsets))

    @property
    def synthetic(self) -> bool:
        """Whether any bars are generated."""
        return any(member.synthetic for member in self.members)

    @property
    def has_volume(self) -> bool:
        """Whether any symbol has volume."""
        return any(member.has_volume for member in self.members)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all members, each with its symbol."""
        return tuple(
            f"{member.contract.symbol}: {note}" for member in self.members for note in member.notes
        )


def load_markets(config: RunConfig) -> Market | MarketSet:
    """The market of a run, or the set of `data.markets`. One symbol is a `Market`, however it is
    named.

    Raises ConfigError or DataError, as `load_market` and `join` do.
    """
    configs = member_configs(config)
    if len(configs) == 1:
        return market_of(load_host(configs[0]), configs[0])
    return join([market_of(load_host(each), each, on_device=False) for each in configs], config)


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
    symbols = [member.contract.symbol for member in members]
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
    data = to_device(
        joined.replace(
            fingerprint=words_of(digest), symbol=symbols, view=joined.view.replace(base=base)
        )
    )
    if wants_tables(config):
        data = data.replace(view=with_tables(data.view, config.env.window))
    return MarketSet(tuple(members), data, digest, offsets, session_offsets)


def _check_size(members: Sequence[Market], bars: int) -> None:
    width = members[0].data.view.value.shape[-1]
    if bars * width >= INT32:
        raise DataError(
            f"{', '.join(member.contract.symbol for member in members)}: {bars:,} bars of {width} columns "
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
        without = [member.contract.symbol for member in members if member.data.path is None]
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
