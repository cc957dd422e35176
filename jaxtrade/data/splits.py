"""Split a market's sessions in time order. Splits are traced data, so walk-forward training never
recompiles.

A set of symbols is split by date, on the trade dates that all of its symbols share. Otherwise one
symbol would train on the days on which another is tested.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.config import SplitConfig
from jaxtrade.config.protocol import split_of
from jaxtrade.data.expected import check_split
from jaxtrade.data.market import Market
from jaxtrade.errors import ConfigError
from jaxtrade.types import MarketData, SessionSet

if TYPE_CHECKING:
    from jaxtrade.data.market import MarketSet


def session_set(ids: np.ndarray, size: int, symbols: np.ndarray | None = None) -> SessionSet:
    """A SessionSet of rows of the session table, padded to `size` (the market's number of
    sessions).

    symbols: int[size], the symbol of each row of the table, in increasing order; None for one
        symbol.
    """
    import jax.numpy as jnp

    padded = np.full(size, ids[0] if len(ids) else 0, np.int32)
    padded[: len(ids)] = ids
    offsets = (
        None
        if symbols is None
        else jnp.asarray(np.searchsorted(symbols[ids], np.arange(symbols[-1] + 2)).astype(np.int32))
    )
    return SessionSet(ids=jnp.asarray(padded), count=jnp.int32(len(ids)), offsets=offsets)


def split_ids(sessions: int, config: SplitConfig) -> dict[str, np.ndarray]:
    """Session rows of `train`, `validation`, `test` and `all`, int64 each.

    Numbers that `config` does not give follow from `sessions` (`config.protocol`). Held-out blocks
    are counted from the end. The `embargo_sessions` before each held-out block belong to no split.
    Raises ConfigError if no training session is left.
    """
    check_split(sessions, config)
    known = split_of(config, sessions)
    ids, end = {}, sessions
    for name, count in (
        ("test", known.test_sessions or 0),
        ("validation", known.validation_sessions or 0),
    ):
        ids[name] = np.arange(max(end - count, 0), end)
        end -= count + (known.embargo_sessions or 0 if count else 0)
    return {
        "train": np.arange(end),
        "validation": ids["validation"],
        "test": ids["test"],
        "all": np.arange(sessions),
    }


def shared_dates(dates: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """The trade dates that every symbol has, increasing. dates: datetime64[D][N]. symbols:
    int[N].
    """
    return functools.reduce(
        np.intersect1d, [dates[symbols == symbol] for symbol in np.unique(symbols)]
    )


def split_ids_by_date(
    dates: np.ndarray, symbols: np.ndarray, config: SplitConfig
) -> dict[str, np.ndarray]:
    """Rows of `train`, `validation`, `test` and `all` of the session table of several symbols,
    int64 each.

    Held-out blocks are the last dates of those that all symbols share, so each symbol has as many
    held-out sessions, and at least one for training. Sessions from the first date that is held out
    (or embargoed) on are not trained on, whether their date is shared or not. Sessions after the
    last shared date belong to no split.

    dates: datetime64[D][N], the trade date of each row. symbols: int[N], its symbol, in increasing
        order.

    Raises ConfigError if no shared date is left for training.
    """
    shared = shared_dates(dates, symbols)
    if not len(shared):
        raise ConfigError(
            "data.markets: the symbols have no trade date in common, and a split needs dates that all "
            "of them have; choose other symbols or files, or other data.start and data.end"
        )
    blocks = split_ids(len(shared), config)
    known = dates <= shared[-1]
    held = len(blocks["train"])  # the first shared date that is held out or embargoed
    trained = known if held == len(shared) else known & (dates < shared[held])
    found = {"train": np.flatnonzero(trained), "all": np.flatnonzero(known)}
    for name in ("validation", "test"):
        found[name] = np.flatnonzero(np.isin(dates, shared[blocks[name]]))
    return found


def countable(market: Any) -> int:
    """The number of sessions that a split counts: of several symbols (`MarketSet`) the trade dates
    that all share.
    """
    symbols = getattr(market, "session_symbols", None)
    return (
        market.num_sessions if symbols is None else len(shared_dates(market.trade_dates, symbols))
    )


def decision_count(market: MarketData, sessions: SessionSet) -> int:
    """The number of decision bars of a session set, over all its symbols."""
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    return int(
        (np.asarray(market.sessions.last)[ids] - np.asarray(market.sessions.first)[ids] + 1).sum()
    )


def sessions_of(market: Market | MarketSet, ids: np.ndarray) -> SessionSet:
    """A SessionSet of some rows of a market's session table, in increasing order."""
    symbols = None if isinstance(market, Market) else market.session_symbols
    return session_set(ids, market.num_sessions, symbols)


def split_sessions(market: Market | MarketSet, config: SplitConfig) -> dict[str, SessionSet]:
    """SessionSets `train`, `validation`, `test` and `all` of a market, in time order; of a set, in
    the order of its symbols and then of time.

    Raises ConfigError as `split_ids` does, or as `split_ids_by_date` does for a set.
    """
    ids = (
        split_ids(market.num_sessions, config)
        if isinstance(market, Market)
        else split_ids_by_date(market.trade_dates, market.session_symbols, config)
    )
    return {name: sessions_of(market, rows) for name, rows in ids.items()}
