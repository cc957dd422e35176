"""Split a market's sessions in time order, once or in the folds of a walk-forward.

Splits are traced data, so walk-forward training never recompiles.

A set of symbols is split by date, on the trade dates that all of its symbols share. Otherwise one
symbol would train on the days on which another is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig, SplitConfig, WalkConfig
from jaxtrade.config.run import split_of
from jaxtrade.data.features.schema import (
    RANK_BARS,
    TRUE_RANGES,
    context_features,
    feature_spec,
    is_built_in,
)
from jaxtrade.data.market import Market, Markets, history_needed
from jaxtrade.data.members import check_split
from jaxtrade.errors import ConfigError
from jaxtrade.types import MarketData, SessionSet


def session_set(ids: np.ndarray, size: int, symbols: np.ndarray | None = None) -> SessionSet:
    """Make a SessionSet of rows of the session table.

    It is padded to `size` (the market's number of sessions).
    symbols: int[size], the symbol of each row of the table, in increasing order; None for
        one symbol.
    """
    padded = np.full(size, ids[0] if len(ids) else 0, np.int32)
    padded[: len(ids)] = ids
    offsets = (
        None
        if symbols is None
        else jnp.asarray(np.searchsorted(symbols[ids], np.arange(symbols[-1] + 2)).astype(np.int32))
    )
    return SessionSet(ids=jnp.asarray(padded), count=jnp.int32(len(ids)), offsets=offsets)


def split_ids(sessions: int, config: SplitConfig) -> dict[str, np.ndarray]:
    """Return the session rows of `train`, `validation`, `test` and `all`, int64 each.

    Numbers that `config` does not give follow from `sessions` (`config.run`). Held-out blocks are
    counted from the end. The `embargo_sessions` before each held-out block belong to no split.
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
    """Return the trade dates that every symbol has, increasing.

    dates: datetime64[D][N].
    symbols: int[N].
    """
    return reduce(np.intersect1d, [dates[symbols == symbol] for symbol in np.unique(symbols)])


def split_ids_by_date(
    dates: np.ndarray, symbols: np.ndarray, config: SplitConfig
) -> dict[str, np.ndarray]:
    """Return the rows of `train`, `validation`, `test` and `all` of several symbols.

    They are rows of the session table, int64 each. Held-out blocks are the last dates of those that
    all symbols share, so each symbol has as many held-out sessions, and at least one for training.
    Sessions from the first date that is held out (or embargoed) on are not trained on, whether
    their date is shared or not. Sessions after the last shared date belong to no split.

    dates: datetime64[D][N], the trade date of each row.
    symbols: int[N], its symbol, in increasing order.
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
    chosen = {name: np.isin(dates, shared[blocks[name]]) for name in ("validation", "test")}
    return {
        name: np.flatnonzero(rows)
        for name, rows in ({"train": trained} | chosen | {"all": known}).items()
    }


def count_sessions(market: Markets) -> int:
    """Count the sessions that a split counts: the trade dates that all parts share."""
    return len(shared_dates(market.trade_dates, market.session_parts))


def decision_count(market: MarketData, sessions: SessionSet) -> int:
    """Count the decision bars of a session set, over all its symbols."""
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    return int(
        (np.asarray(market.sessions.last)[ids] - np.asarray(market.sessions.first)[ids] + 1).sum()
    )


def sessions_of(market: Markets, ids: np.ndarray) -> SessionSet:
    """Make a SessionSet of some rows of a market's session table, in increasing order."""
    symbols = market.session_parts if len(market.parts) > 1 else None
    return session_set(ids, market.num_sessions, symbols)


def split_sessions(market: Markets, config: SplitConfig) -> dict[str, SessionSet]:
    """Make the SessionSets `train`, `validation`, `test` and `all` of a market, in time order.

    For a set, they are in the order of its symbols and then of time. Raises ConfigError as
    `split_ids_by_date` does.
    """
    ids = split_ids_by_date(market.trade_dates, market.session_parts, config)
    return {name: sessions_of(market, rows) for name, rows in ids.items()}


# The folds of a walk-forward: which sessions each fold trains on, and which it is tested on. Pure
# NumPy.
#
# A fold may train on a session only if nothing that the session uses or decides reaches into a test
# session: the bars that its observations look back on, its own bars, and the bars to which its last
# episode or label runs. Sessions that reach into one are purged (Lopez de Prado 2018, "Advances in
# Financial Machine Learning", section 7.4.1); next to them an embargo leaves out further sessions
# (section 7.4.2). Both are counted in bars of the data, not in days, so they hold for any bar
# length and across holes.
#
# What purging does not forbid: a test session's own observations look back on training sessions.
# They are the past that a trader has on that day.


class Fold(NamedTuple):
    """The sessions of one fold, as rows of the session table, int64 and increasing.

    train: trained on.
    test: evaluated.
    purged: left out because they reach into a test session.
    embargoed: left out beside those.
    groups: of cpcv the tested blocks; empty otherwise.

    Sessions that are in none of these were never candidates: those after the test of a forward
    fold, and those before the training block of a rolling one.
    """

    train: np.ndarray
    test: np.ndarray
    purged: np.ndarray
    embargoed: np.ndarray
    groups: tuple[int, ...] = ()


class Reach(NamedTuple):
    """How far a decision reaches.

    look_back: bars before the decision bar that its observation uses, one number; or int64[N], one
        for each session (`add_look_backs`).
    look_ahead: bars after the decision bar to which a label of it runs; at least 1, the bar in
        which the order is filled.
    episode: sessions of an episode; a decision of its first session is rewarded by what happens
        until the end of its last one.
    date_back: the observation also uses the trade date of the bar so many bars before the decision
        bar, from its first bar on (vwap); None without such a feature.
    """

    look_back: int | np.ndarray
    look_ahead: int = 1
    episode: int = 1
    date_back: int | None = None


def reach_of(config: RunConfig) -> Reach:
    """Return the reach of the decisions of a configuration.

    look_back is the window and the longest reach of a feature (`reach_bars`): its warm-up or,
    where it smooths exponentially, the bars that hold all but a billionth of its weight. A feature
    of the user's own counts with its warm-up. look_ahead is `advisor.horizon` if an advisor's
    answers are scored.
    """
    window, shown, context = (
        config.env.window,
        config.env.features,
        context_features(config.env.task),
    )
    needed = max(
        history_needed(config),
        *(window + reach_bars(name) for name in shown),
        *map(reach_bars, context),
    )
    dated = [
        back
        for names, back in ((shown, window), (context, 0))
        if any(name in OF_DATE and is_built_in(name) for name in names)
    ]
    ahead = max(1, config.advisor.horizon) if config.advisor.on else 1
    return Reach(needed - 1, ahead, config.episode.sessions, max(dated, default=None))


def add_look_backs(reach: Reach, first: np.ndarray, opens: np.ndarray) -> Reach:
    """Give the reach a look-back for each session.

    The look-back includes the trade dates that features begin with.
    first: as in `find_touching_sessions`.
    opens: int[T], for each bar the row of the first bar of its trade date.
    """
    if reach.date_back is None:
        return reach
    begins = opens[np.maximum(first - reach.date_back, 0)]
    return reach._replace(look_back=np.maximum(reach.look_back, first - begins))


def find_touching_sessions(
    first: np.ndarray, last: np.ndarray, test: np.ndarray, reach: Reach
) -> np.ndarray:
    """Find the sessions of which some decision touches a test session (bool[N]).

    A decision reaches from its look-back to its look-ahead or the end of its episode. Test sessions
    touch themselves.
    first, last: int[N], rows of the first and last decision bar of each session, in time order. The
        bar after the last one closes a session's positions, so it belongs to the session.
    test: ids of the test sessions.
    """
    count = len(first)
    until = last[np.minimum(np.arange(count) + reach.episode - 1, count - 1)] + 1
    begins, ends = first - reach.look_back, np.maximum(until, last + reach.look_ahead)
    return np.any((begins[:, None] <= last[test] + 1) & (ends[:, None] >= first[test]), axis=1)


def fold_of(
    first: np.ndarray,
    last: np.ndarray,
    candidates: np.ndarray,
    test: np.ndarray,
    reach: Reach,
    embargo: int,
    groups: tuple[int, ...] = (),
) -> Fold:
    """Return the fold that tests `test` and trains on what purge and embargo leave of `candidates`.

    candidates: ids, increasing.
    first, last: as in `find_touching_sessions`.
    embargo: sessions left out on each side of a run of purged and tested ones, as far as they
        are candidates.
    """
    ids, closed = np.arange(len(first)), find_touching_sessions(first, last, test, reach)
    near = closed.copy()
    for shift in range(1, embargo + 1):
        near[:-shift] |= closed[shift:]
        near[shift:] |= closed[:-shift]
    asked, tested = np.isin(ids, candidates), np.isin(ids, test)
    return Fold(
        np.flatnonzero(asked & ~near),
        test,
        np.flatnonzero(asked & closed & ~tested),
        np.flatnonzero(asked & near & ~closed & ~tested),
        groups,
    )


def walk_folds(first: np.ndarray, last: np.ndarray, walk: WalkConfig, reach: Reach) -> list[Fold]:
    """List the folds of a walk, in time order of their test sessions.

    rolling: test blocks of `walk.test` sessions, counted from the end of the data so that the
        newest are tested; before each the last `walk.train` sessions that purge and embargo leave.
        Blocks with fewer before them are left out.
    anchored: the same blocks; each fold trains on all sessions before its block that purge and
        embargo leave.
    cpcv: combinatorial purged cross-validation (Lopez de Prado 2018, chapter 12). The sessions form
        `walk.groups` blocks of equal length (the first ones have one more where it does not
        divide), and each choice of `walk.test_groups` of them is the test of a fold.

    first, last: as in `find_touching_sessions`.
    Raises ConfigError if there are too few sessions.
    """
    count, embargo = len(first), walk.embargo_of(len(first))
    fold = partial(fold_of, first, last, reach=reach, embargo=embargo)
    if walk.mode == "cpcv":
        return _make_combinations(count, walk, fold)
    folds = []
    for end in range(count, walk.test, -walk.test):
        test = np.arange(end - walk.test, end)
        found = fold(np.arange(test[0]), test)
        if len(found.train) < walk.train:
            break  # every earlier block has fewer sessions before it
        train = found.train if walk.mode == "anchored" else found.train[-walk.train :]
        folds.append(found._replace(train=train))
    if not folds:
        ids = np.arange(count)
        test = ids[-walk.test :]
        lost = fold(ids[: test[0]], test)  # of the newest fold
        purged, left_out = len(lost.purged), len(lost.embargoed)
        raise ConfigError(
            f"walk.train={walk.train} (--train), walk.test={walk.test} (--test): one fold takes "
            f"{walk.train + purged + left_out + walk.test} sessions (purge {purged} and embargo "
            f"{left_out} among them), and the data have {count} sessions: "
            "lower them, or give more data"
        )
    return folds[::-1]


def blocks(sessions: int, groups: int) -> list[np.ndarray]:
    """Divide session ids into the blocks of cpcv: `groups` parts of equal length.

    The first ones have one more if need be.
    """
    return np.array_split(np.arange(sessions), groups)


def _make_combinations(count: int, walk: WalkConfig, fold_of: Callable[..., Fold]) -> list[Fold]:
    if count < walk.groups:
        raise ConfigError(
            f"walk.groups={walk.groups} (--groups): more blocks than the data have sessions ({count}): "
            "lower it, or give more data"
        )
    parts, ids, folds = blocks(count, walk.groups), np.arange(count), []
    for chosen in combinations(range(walk.groups), walk.test_groups):
        test = np.concatenate([parts[group] for group in chosen])
        fold = fold_of(ids, test, groups=chosen)
        if not len(fold.train):
            raise ConfigError(
                f"walk.groups={walk.groups}, walk.test_groups={walk.test_groups}: the fold that tests "
                f"the blocks {', '.join(map(str, chosen))} has no training session left (purged "
                f"{len(fold.purged)}, embargoed {len(fold.embargoed)}, of {count}): lower "
                "walk.test_groups or walk.embargo, shorten env.window or the features' look-back, or "
                "give more data"
            )
        folds.append(fold)
    return folds


def paths_of(folds: list[Fold], groups: int) -> np.ndarray:
    """Find the fold whose test of a block belongs to a path (int[P, groups]).

    Each path tests every block once. With N blocks of which k are tested there are P = C(N - 1, k -
    1) paths (Lopez de Prado 2018, section 12.4). Path p takes, of each block, the p-th fold that
    tests it.
    """
    return np.array(
        [[i for i, fold in enumerate(folds) if group in fold.groups] for group in range(groups)]
    ).T


def reach_on(market: Market, config: RunConfig) -> Reach:
    """Return `reach_of` on a market.

    It has a look-back for each session where a feature begins with its trade date.
    """
    dates = market.bars.trade_dates
    opens = np.searchsorted(dates, dates)  # dates never decrease, so this is the first bar of each
    return add_look_backs(reach_of(config), np.asarray(market.data.sessions.first, np.int64), opens)


def folds_of(market: Market, config: RunConfig) -> list[Fold]:
    """Return the folds of a market, for the section `walk`. Raises ConfigError as `walk_folds`."""
    sessions = market.data.sessions
    first, last = np.asarray(sessions.first, np.int64), np.asarray(sessions.last, np.int64)
    return walk_folds(first, last, config.walk, reach_on(market, config))


# The share of its weight that a smoothed value may have on bars beyond its reach. The float32 table
# rounds at 6e-8 of a value, so bars beyond the reach change nothing there unless they move sixty
# times as much as those within it.
LEFT_OVER = 1e-9
MACD_SLOW = 26  # the longer span of `macd`
RANKED = "vol_percentile"  # its ranks reach back far beyond the bars that it needs at least
# These read their trade date from its first bar on; a feature of the user's own is not asked.
OF_DATE = ("vwap", "price_to_vwap")


def smoothed_bars(alpha: float) -> int:
    """Count the newest values k that hold almost all weight of an exponential smoothing.

    They hold all but `LEFT_OVER`. From y[t] = y[t-1] + alpha (x[t] - y[t-1]) it follows that x[t-j]
    has the weight alpha (1 - alpha)^j. The values of age k and more, the start of the series among
    them, have together (1 - alpha)^k, which is at most `LEFT_OVER` from k = log(LEFT_OVER) / log(1
    - alpha) on. Wilder's smoothing over N bars has alpha = 1/N, so k is about 20.7 N; an EMA has
    alpha = 2/(N + 1), so k is about 10.4 N.

    alpha: in (0, 1].
    """
    return 1 if alpha == 1 else math.ceil(math.log(LEFT_OVER) / math.log1p(-alpha))


def reach_bars(name: str) -> int:
    """Count the bars, its own one included, that a feature's value depends on.

    Of a feature that starts with its trade date (`OF_DATE`) only its own bar is counted; of a
    user's own feature the declared warm-up. Raises ConfigError for an unknown name.
    """
    spec = feature_spec(name)
    if not is_built_in(name):
        return spec.warm_up
    kind = name.partition("_")[0] if spec.period else ""
    if kind in (
        "rsi",
        "atr",
    ):  # Wilder's; each of the smoothed values reads the close of the bar before it too
        return smoothed_bars(1 / spec.period) + 1
    if kind == "ema":
        return smoothed_bars(2 / (spec.period + 1))
    if name == "macd":
        return smoothed_bars(2 / (MACD_SLOW + 1))
    return TRUE_RANGES + RANK_BARS if name == RANKED else spec.warm_up
