"""Null markets: a real market's bars with their structure taken away.

The code of real bars makes them into markets.

Every null market has the shapes of the real one, so it is another traced argument of the same
compiled programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import PRICES, Bars, splice_dates
from jaxtrade.data.calendar.schedule import Schedule, local_seconds
from jaxtrade.data.calendar.sessions import schedule_of
from jaxtrade.data.market import Market, build_market
from jaxtrade.data.nulls.spec import NULL_KINDS, NullKind
from jaxtrade.data.sources import load_rates
from jaxtrade.data.synthetic import SUBSTEPS, phase_randomised_prices, with_prices
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.types import IntrabarPath


def anchors(bars: Bars) -> np.ndarray:
    """Find the rows whose step from the previous close is no move of the market (bool[T]).

    These are the first row, and the first row of each later contract of a spliced series.
    """
    found = np.zeros(len(bars), bool)
    found[:1] = True
    legs = np.searchsorted(splice_dates(bars.legs), bars.trade_dates, side="right")
    found[1:] |= legs[1:] != legs[:-1]
    return found


def prices_of(bars: Bars) -> tuple[np.ndarray, np.ndarray]:
    """Return (bid, ask), each open, high, low, close as int64[4, T].

    One-sided bars are returned twice.
    """
    bid, ask = (
        np.stack([getattr(side, name) for name in PRICES]).astype(np.int64) for side in bars.sides
    )
    return bid, ask


def random_signs(count: int, generator: np.random.Generator, after: int = 0) -> np.ndarray:
    """Draw which bars are mirrored (bool[count]), each with probability 1/2.

    Rows before `after` are not.
    """
    mask = generator.random(count) < 0.5
    mask[:after] = False
    return mask


def sign_flipped(bars: Bars, mask: np.ndarray) -> Bars:
    """Mirror the bars of `mask` (bool[T]). Twice with one mask gives the bars again.

    With D[t] = bid' close - bid close (and the same of the ask), D[t] = D[t-1] + mask[t] (S[t] -
    bid close[t] - ask close[t]). A bar that is not mirrored moves by D[t-1]; one that is becomes
    D[t-1] + S[t] - (the other side).

    Raises DataError if a price is below one tick or passes int32.
    """
    bid, ask = prices_of(bars)
    start = anchors(bars)
    total = bid[3] + ask[3]
    centre = np.where(start, bid[0] + ask[0], np.concatenate([[0], total[:-1]]))  # S
    steps = np.where(mask, centre - total, 0)
    # D restarts at 0 with each series: the sum of its own steps alone.
    summed = np.cumsum(steps)
    first = np.maximum.accumulate(np.where(start, np.arange(len(bars)), 0))
    shift = summed - steps - (summed[first] - steps[first])  # D[t-1]

    def side(own: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(mask, centre - other[[0, 2, 1, 3]], own) + shift

    return with_prices(bars, side(bid, ask), side(ask, bid))


def sign_flipped_path(path: IntrabarPath, mask: np.ndarray) -> IntrabarPath:
    """Return the intrabar path of `sign_flipped`, with NumPy leaves.

    Falls are measured from the bar's own open, those of a short on the inverted bar. So in a
    mirrored bar those of the long and of the short change places, exactly.
    """
    falls, ambiguous = np.asarray(path.falls), np.asarray(path.ambiguous)
    falls = np.where(mask[:, None, None, None], falls[:, ::-1], falls)
    ambiguous = np.where(mask[:, None], ambiguous[:, ::-1], ambiguous)
    return IntrabarPath(falls, ambiguous)  # type: ignore[arg-type]  # host leaves


def phase_randomised(bars: Bars, generator: np.random.Generator, after: int = 0) -> Bars:
    """Randomise the phases of the returns of the bars.

    Rows before `after` stay real, and the first close after them too. Raises DataError if a series
    has fewer than three bars, or a price falls below one tick or passes int32.
    """
    begins = np.flatnonzero(anchors(bars))
    edges = np.unique(np.concatenate([begins[begins >= after], [after, len(bars)]]))
    bid = prices_of(bars)[0]
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        bid[:, first:end] = phase_randomised_prices(bars.rows(slice(first, end)), generator)
    return with_prices(bars, bid)


MINUTES = 1440


def minute_volatility(bars: Bars) -> tuple[np.ndarray, np.ndarray]:
    """Compute (relative gap, relative body) as root mean squares by minute of the exchange day.

    Both are float64[1440], 0 where the bars have no such minute. Of two sides: of the mid price.
    The gap to a series' first bar is left out.
    """
    mid = bars.mid
    minute = bars.minutes
    opened, closed = mid.open.astype(np.float64), mid.close.astype(np.float64)
    before = np.concatenate([opened[:1], closed[:-1]])
    known = ~anchors(bars)
    return (
        _root_mean_square(opened[known] / before[known] - 1, minute[known]),
        _root_mean_square(closed / opened - 1, minute),
    )


def _root_mean_square(values: np.ndarray, minute: np.ndarray) -> np.ndarray:
    count = np.bincount(minute, minlength=MINUTES)
    return np.sqrt(np.bincount(minute, values * values, MINUTES) / np.maximum(count, 1))


def martingale_bars(bars: Bars, generator: np.random.Generator, after: int = 0) -> Bars:
    """Generate bars with the stamps, volume and spread of `bars`.

    Rows before `after` stay real. Raises DataError if a price falls below one tick or passes int32.
    """
    gap, body = minute_volatility(bars)
    minute = bars.minutes
    bid = prices_of(bars)[0]  # int64[4, T]: the real prices, replaced date by date
    start = anchors(bars)
    for first, end in zip(bars.date_starts.tolist(), bars.date_ends.tolist(), strict=True):
        begin = max(first, after)
        if begin >= end:
            continue
        level = int(bid[0, begin] if start[begin] else bid[3, begin - 1])
        part = slice(begin, end)
        gaps = np.rint(level * gap[minute[part]] * generator.standard_normal(end - begin)).astype(
            np.int64
        )
        if start[begin]:
            gaps[0] = 0
        sizes = level * body[minute[part]] / np.sqrt(SUBSTEPS)
        moves = sizes[:, None] * generator.standard_normal((end - begin, SUBSTEPS))
        # Consecutive bars: prices from the open of each, and the gap before it.
        path = np.rint(np.cumsum(moves, axis=1)).astype(np.int64)
        close = level + np.cumsum(gaps + path[:, -1])
        open_ = close - path[:, -1]
        high, low = np.maximum(path.max(axis=1), 0), np.minimum(path.min(axis=1), 0)
        bid[:, part] = np.stack([open_, open_ + high, open_ + low, close])
    return with_prices(bars, bid)


LEAST_ORDERS = 1_000  # fewer orders than this would repeat themselves among the draws


def session_order(classes: np.ndarray, generator: np.random.Generator, source: str) -> np.ndarray:
    """Draw an order of sessions: the number of the session that comes to each place (int64[N]).

    Raises DataError if the classes allow fewer than LEAST_ORDERS orders.
    """
    order, orders = np.arange(len(classes)), 0.0
    for each in np.unique(classes[classes >= 0]):
        places = np.flatnonzero(classes == each)
        orders += math.lgamma(len(places) + 1)
        order[places] = generator.permutation(places)
    if orders < math.log(LEAST_ORDERS):
        raise DataError(
            f"{source}: null markets of kind sessions need sessions that can change places, and the "
            f"{len(classes)} trade dates here have {math.exp(orders):.0f} orders (at least {LEAST_ORDERS:,}"
            " are needed). Fix: give more sessions, or use the kind sign"
        )
    return order


def permuted_sessions(
    bars: Bars, path: IntrabarPath | None, schedule: Schedule, order: np.ndarray
) -> tuple[Bars, IntrabarPath | None]:
    """Put the sessions of the bars into another order (`session_order`).

    Also returns their intrabar paths with NumPy leaves. Raises DataError if a price leaves the
    range of prices.
    """
    rows, ends = bars.date_starts, bars.date_ends
    lengths = ends - rows
    source = np.concatenate([np.arange(int(rows[k]), int(ends[k])) for k in order])
    opens = schedule.open[schedule.find(bars.trade_dates[rows])]
    moved = np.repeat(
        np.where(order == np.arange(len(order)), 0, opens - opens[order]), lengths[order]
    )
    factors = np.repeat(_factors(bars, order), lengths[order])
    bid, ask = (_scale_ticks(side[:, source], factors) for side in prices_of(bars))
    made = replace(bars, time=bars.time[source] + moved, volume=bars.volume[source])
    if path is not None:
        # The falls of each bar in its new place: the prices that they stand for, scaled as all
        # prices are.
        falls, times = np.asarray(path.falls)[source].astype(np.int64), factors[:, None, None]
        bid_from, ask_from = (
            side.open[source].astype(np.int64)[:, None, None] for side in bars.sides
        )
        bid_to, ask_to = (side[0][:, None, None] for side in (bid, ask))
        long = _scale_ticks(bid_from + falls[:, 0], times) - bid_to
        short = ask_to - _scale_ticks(ask_from - falls[:, 1], times)
        falls = np.stack([long, short], axis=1).astype(np.int32)
        path = IntrabarPath(falls, np.asarray(path.ambiguous)[source])  # type: ignore[arg-type]  # host leaves
    return with_prices(made, bid, ask), path


def _scale_ticks(ticks: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply ticks by factors, rounded half up (int64).

    It never changes which of two prices of a session is higher.
    """
    return np.floor(ticks * factors + 0.5).astype(np.int64)


def _factors(bars: Bars, order: np.ndarray) -> np.ndarray:
    """Compute f of each place (float64[N]). It is 1 where a series begins."""
    rows, ends = bars.date_starts, bars.date_ends - 1
    bid, ask = prices_of(bars)
    start, middle = anchors(bars)[rows], (bid[3] + ask[3]) / 2
    factors, close = np.ones(len(order)), 0.0
    for place, k in enumerate(order.tolist()):
        if not start[place]:
            factors[place] = close / middle[rows[k] - 1]
        last = np.array([bid[3][ends[k]], ask[3][ends[k]]])
        close = float(_scale_ticks(last, factors[place]).sum()) / 2
    return factors


STREAM = 20  # keeps the draws of nulls apart from the other generators that a seed begins


@contextmanager
def name_null_errors(kind: NullKind, seed: int, draw: int) -> Iterator[None]:
    """Raise errors of a null market as DataErrors that say which one it is, and what to do."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise DataError(
            f"null market {draw} of kind {kind} (seed {seed}) cannot be used, though the real market can: "
            f"{error}. No null may be left out, because the p-value would then be wrong: fix what is "
            "named, or choose another kind of null, for the whole test"
        ) from error


WITHOUT_PATH = ("phase", "martingale")  # their bars are new, so no second bars rebuild them


@dataclass(frozen=True)
class NullMarkets:
    """The null markets of one market, made one at a time: `markets(draw)` for draw 0, 1, ...

    market: the real one.
    config: with which it was built.
    kind: of null.
    seed: of all draws.
    after: rows before it stay real. A policy that was trained on them is then tested on null
        bars alone.
    rates: bars of the exchange rate, which stay real; None if none is needed.
    """

    market: Market
    config: RunConfig
    kind: NullKind
    seed: int
    after: int = 0
    rates: Bars | None = None

    def __call__(self, draw: int) -> Market:
        """Make null market number `draw`.

        Features, session table and view are computed as those of real bars.

        Raises DataError, naming draw and fix, if its prices leave their range or its shapes are not
        the real ones.
        """
        with name_null_errors(self.kind, self.seed, draw):
            bars, path = self.bars(draw)
            made = build_market(bars, self.config, rates=self.rates, path=path)
            _check_alike(made, self.market)
            return made

    def bars(self, draw: int) -> tuple[Bars, IntrabarPath | None]:
        """Return null bars, marked as synthetic, and their intrabar paths with NumPy leaves.

        The same arguments give the same bytes.
        draw: a whole number from 0; each pair of seed and draw begins a random stream of its own.
        Raises DataError as the kind does.
        """
        real, path, after = self.market.bars, self.market.data.path, self.after
        generator = np.random.default_rng([STREAM, NULL_KINDS.index(self.kind), self.seed, draw])
        if path is not None:
            path = jax.tree.map(np.asarray, path)
        match self.kind:
            case "sign":
                mask = random_signs(len(real), generator, after)
                bars, path = sign_flipped(real, mask), path and sign_flipped_path(path, mask)
            case "sessions":
                schedule = schedule_of(real, self.config.data.calendar)
                order = session_order(self._session_classes(schedule), generator, real.source)
                bars, path = permuted_sessions(real, path, schedule, order)
            case "phase":
                bars = phase_randomised(real, generator, after)
            case "martingale":
                bars = martingale_bars(real, generator, after)
        if path is not None and self.kind in WITHOUT_PATH:  # it tells no order of prices in any bar
            path = path.replace(
                falls=np.zeros_like(path.falls), ambiguous=np.ones_like(path.ambiguous)
            )
        return replace(
            bars,
            synthetic=True,
            places=None,
            notes=(
                f"the bars are synthetic: null market {draw} of kind {self.kind}, seed {self.seed}",
            ),
            source=f"null {self.kind} {draw}, seed {self.seed}, of {real.source}",
        ), path

    def _session_classes(self, schedule: Schedule) -> np.ndarray:
        """Return the calendar class of each trade date (int64[N]).

        It is -1 for one that stays where it is.
        """
        bars, table = self.market.bars, self.market.data.sessions
        rows = bars.date_starts
        days = bars.trade_dates[rows]
        own = np.searchsorted(self.market.trade_dates, days)
        own = np.where(np.isin(days, self.market.trade_dates), own, -1)
        decisions = np.append(np.asarray(table.last) - np.asarray(table.first) + 1, 0)[own]
        at = schedule.find(days)
        midnight = days.astype("datetime64[s]").astype(np.int64)
        hours = np.stack(
            [schedule.open[at], schedule.close[at], schedule.flat[at], *schedule.halts[at].T]
        )
        local = local_seconds(hours.reshape(-1), bars.contract.zone).reshape(hours.shape) - midnight
        since = np.diff(schedule.dates, prepend=schedule.dates[:1]).astype(np.int64)[at]
        keys = np.column_stack([*local, since, decisions])
        classes = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        stays = (at < 0) | (decisions == 0) | anchors(bars)[rows] | (rows < self.after)
        return np.where(stays, -1, classes)


def null_markets(
    market: Market, config: RunConfig, kind: NullKind, seed: int, after: int = 0
) -> NullMarkets:
    """Make the null markets of `market`. The arguments are those of `NullMarkets`.

    Raises ConfigError for `env.intrabar=path` with a kind whose bars have no known order of prices.
    """
    if config.env.intrabar == "path" and kind in WITHOUT_PATH:
        kept = ", ".join(each for each in NULL_KINDS if each not in WITHOUT_PATH)
        raise ConfigError(
            f"null markets of kind {kind} have no second bars, and env.intrabar=path needs them; choose "
            f"another kind ({kept}), or a run with env.intrabar=stop_first"
        )
    return NullMarkets(market, config, kind, seed, after, load_rates(config.data, market.contract))


def _check_alike(made: Market, real: Market) -> None:
    """Check that the same compiled programs take both markets. Raises DataError."""

    def form(market: Market) -> dict[str, Any]:
        table = market.data.sessions
        decisions = np.asarray(table.last) - np.asarray(table.first) + 1
        return {
            "trade dates with decision bars": market.trade_dates.tolist(),
            "decision bars in each session": decisions.tolist(),
            "shapes of arrays (do prices pass 2^24 ticks in one of them?)": jax.tree.map(
                lambda leaf: (leaf.shape, leaf.dtype), market.data
            ),
        }

    own = form(real)
    for what, found in form(made).items():
        if found != own[what]:
            raise DataError(
                f"{made.bars.source}: it has other {what} than the real market; use the kind sign, which "
                "keeps every stamp, or a coarser tick_size in the contract file"
            )
