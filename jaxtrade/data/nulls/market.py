"""Null markets: a real market's bars with their structure taken away, made into markets by the code
of real bars.

Every null market has the shapes of the real one, so it is another traced argument of the same
compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import Schedule, schedule_for, trade_dates
from jaxtrade.data.conversion import load_rates
from jaxtrade.data.market import Market, host_market, market_of
from jaxtrade.data.nulls.martingale import martingale_bars
from jaxtrade.data.nulls.prices import Prices, anchors, prices_of, with_prices
from jaxtrade.data.nulls.sessions import permuted_sessions
from jaxtrade.data.nulls.sign import random_signs, sign_flipped, sign_flipped_path
from jaxtrade.data.nulls.spec import NULL_KINDS, NullKind
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import Side
from jaxtrade.data.synthetic.surrogate import LEAST, phase_randomised_prices, spread_kept
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.types import IntrabarPath

STREAM = 20  # keeps the draws of nulls apart from the other generators that a seed begins
NullBars = tuple[Bars, IntrabarPath | None]


@dataclass(frozen=True)
class NullSource:
    """What null markets are made from. T bars.

    bars: the real bars. path: their intrabar paths with NumPy leaves; None without second bars.
        days: datetime64[D][T],
    the trade date of each bar. decisions: int64[T], the number of decision bars of its session; 0
    outside the session table. schedule: of the bars' trade dates. after: rows before it stay real.
    """

    bars: Bars
    path: IntrabarPath | None
    days: np.ndarray
    decisions: np.ndarray
    schedule: Schedule
    after: int = 0


def null_source(market: Market, config: RunConfig, after: int = 0) -> NullSource:
    """The source of a market's nulls. config: with which the market was built. after: see
    `NullSource`.
    """
    bars, table, path = market.bars, market.data.sessions, market.data.path
    if path is not None:
        path = IntrabarPath(np.asarray(path.falls), np.asarray(path.ambiguous))  # type: ignore[arg-type]
    decisions = np.zeros(len(bars), np.int64)
    for start, end, first, last in zip(
        *(np.asarray(each) for each in (table.start, table.end, table.first, table.last)),
        strict=True,
    ):
        decisions[start:end] = last - first + 1
    schedule = schedule_for(
        config.data.calendar, bars.contract, bars.time, bars.bar_seconds, bars.source
    )
    return NullSource(bars, path, trade_dates(bars.time, bars.contract), decisions, schedule, after)


def _sign(real: NullSource, generator: np.random.Generator) -> NullBars:
    mask = random_signs(len(real.bars), generator, real.after)
    return sign_flipped(real.bars, mask), None if real.path is None else sign_flipped_path(
        real.path, mask
    )


def _sessions(real: NullSource, generator: np.random.Generator) -> NullBars:
    return permuted_sessions(
        real.bars, real.path, real.days, real.decisions, real.schedule, generator, real.after
    )


def _phase(real: NullSource, generator: np.random.Generator) -> NullBars:
    return phase_randomised(real.bars, generator, real.after), _unknown(real.path)


def _martingale(real: NullSource, generator: np.random.Generator) -> NullBars:
    return martingale_bars(real.bars, real.days, generator, real.after), _unknown(real.path)


def _unknown(path: IntrabarPath | None) -> IntrabarPath | None:
    """A path of the same shape that tells no order of prices in any bar."""
    if path is None:
        return None
    return IntrabarPath(np.zeros_like(path.falls), np.ones_like(path.ambiguous))  # type: ignore[arg-type]


MAKERS: dict[NullKind, Callable[[NullSource, np.random.Generator], NullBars]] = {
    "sign": _sign,
    "sessions": _sessions,
    "phase": _phase,
    "martingale": _martingale,
}
WITHOUT_PATH = ("phase", "martingale")  # their bars are new, so no second bars rebuild them


def null_bars(real: NullSource, kind: NullKind, seed: int, draw: int) -> NullBars:
    """Null bars, marked as synthetic, and their intrabar paths. The same arguments give the same
    bytes.

    seed, draw: whole numbers from 0; each pair begins a random stream of its own. Raises DataError
        as the kind does.
    """
    generator = np.random.default_rng([STREAM, NULL_KINDS.index(kind), seed, draw])
    bars, path = MAKERS[kind](real, generator)
    note = f"the bars are synthetic: null market {draw} of kind {kind}, seed {seed}"
    return replace(
        bars,
        synthetic=True,
        places=None,
        notes=(note,),
        source=f"null {kind} {draw}, seed {seed}, of {real.bars.source}",
    ), path


@contextmanager
def null_named(kind: NullKind, seed: int, draw: int) -> Iterator[None]:
    """Errors of a null market as DataErrors that say which one it is, and what to do."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise DataError(
            f"null market {draw} of kind {kind} (seed {seed}) cannot be used, though the real market can: "
            f"{error}. No null may be left out, because the p-value would then be wrong: fix what is "
            "named, or choose another kind of null, for the whole test"
        ) from error


@dataclass(frozen=True)
class NullMarkets:
    """The null markets of one market, made one at a time: `markets(draw)` for draw 0, 1, ...

    market: the real one. config: with which it was built. kind: of null. seed: of all draws.
        source: from
    `null_source`. rates: bars of the exchange rate, which stay real; None if none is needed.
    """

    market: Market
    config: RunConfig
    kind: NullKind
    seed: int
    source: NullSource
    rates: Bars | None = None

    def __call__(self, draw: int) -> Market:
        """Null market number `draw`, with features, session table and view computed as those of
        real bars.

        Raises DataError, naming draw and fix, if its prices leave their range or its shapes are not
        the real ones.
        """
        with null_named(self.kind, self.seed, draw):
            bars, path = null_bars(self.source, self.kind, self.seed, draw)
            made = market_of(
                host_market(bars, self.config, rates=self.rates, path=path), self.config
            )
            _check_alike(made, self.market)
            return made


def null_markets(
    market: Market, config: RunConfig, kind: NullKind, seed: int, after: int = 0
) -> NullMarkets:
    """The null markets of `market`.

    after: rows before it stay real. A policy that was trained on them is then tested on null bars
        alone.
    Raises ConfigError for `env.intrabar=path` with a kind whose bars have no known order of prices.
    """
    if config.env.intrabar == "path" and kind in WITHOUT_PATH:
        kept = ", ".join(each for each in NULL_KINDS if each not in WITHOUT_PATH)
        raise ConfigError(
            f"null markets of kind {kind} have no second bars, and env.intrabar=path needs them; choose "
            f"another kind ({kept}), or a run with env.intrabar=stop_first"
        )
    rates = load_rates(config.data, market.contract)
    return NullMarkets(market, config, kind, seed, null_source(market, config, after), rates)


def _check_alike(made: Market, real: Market) -> None:
    """Check that the same compiled programs take both. Raises DataError."""
    import jax

    table, own = made.data.sessions, real.data.sessions
    if made.num_sessions != real.num_sessions or not np.array_equal(
        made.trade_dates, real.trade_dates
    ):
        raise DataError(
            f"{made.bars.source}: it has {made.num_sessions} sessions with decision bars, and the real "
            f"market has {real.num_sessions} on other dates; use the kind sign, which keeps every stamp"
        )
    counts, wanted = (np.asarray(each.last) - np.asarray(each.first) for each in (table, own))
    if not np.array_equal(counts, wanted):
        day = made.trade_dates[np.flatnonzero(counts != wanted)[0]]
        raise DataError(
            f"{made.bars.source}: the session of {day} has another number of decision bars than the real "
            "one; use the kind sign, which keeps every stamp"
        )
    if _shapes(jax.tree.leaves(made.data)) != _shapes(jax.tree.leaves(real.data)) or (
        jax.tree.structure(made.data) != jax.tree.structure(real.data)
    ):
        raise DataError(
            f"{made.bars.source}: its arrays have other shapes than those of the real market (prices pass "
            "2^24 ticks in one of them alone); use a coarser tick_size in the contract file, or fewer "
            "years (data.start)"
        )


def _shapes(leaves: list[np.ndarray]) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(leaf.shape, leaf.dtype) for leaf in leaves]


def phase_randomised(bars: Bars, generator: np.random.Generator, after: int = 0) -> Bars:
    """The bars with phase-randomised returns: `data.synthetic.surrogate`, for any bars, each
    contract of a spliced series by itself. Rows before `after` stay real, and the first close after
    them too.

    This keeps variance and linear autocorrelation of close-to-close returns, and destroys the
    intraday shape of volatility. A policy that trades by the clock meets another market there, so
    it is no default.

    Raises DataError if a series has fewer than three bars, or a price falls below one tick or
    passes int32.
    """
    begins = np.flatnonzero(anchors(bars))
    edges = np.unique(np.concatenate([begins[begins >= after], [after, len(bars)]]))
    bid = np.stack(prices_of(bars)[0])
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if end - first < LEAST:
            raise DataError(
                f"{bars.source}: {end - first} bars of one contract are too few for a phase-randomised "
                f"copy ({LEAST} are needed). Fix: use the kind sign, or leave that contract out "
                "(data.start, data.end)"
            )
        bid[:, first:end] = phase_randomised_prices(bars.rows(slice(first, end)), generator)
    made: Prices = tuple(bid)
    ask: Prices | None = None if bars.ask is None else tuple(spread_kept(bars, Side(*made)))
    return with_prices(bars, made, ask)
