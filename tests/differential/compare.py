"""Both engines on the same decisions: what must be equal, and what may differ by a known amount."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from jaxtrade.env.state import ExitReason
from tests.differential import ours, reference
from tests.differential.reference import Fill


@dataclass
class Tally:
    """Figures of compared passes. equity_bars: rows at which equity was compared (and equal)."""

    trades: int = 0
    same_bar: int = 0
    allowed: int = 0  # open beyond the target, stop touched later in that bar
    equity_bars: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    gaps: int = 0  # stop or target filled at an open that had passed it
    spreads: int = 0  # ... at the open of their entry bar: a spread as wide as the stop
    turns: list[Fill] = field(default_factory=list)

    def add(self, other):
        self.trades += other.trades
        self.same_bar += other.same_bar
        self.allowed += other.allowed
        self.equity_bars += other.equity_bars
        self.reasons += other.reasons
        self.gaps += other.gaps
        self.spreads += other.spreads
        self.turns += other.turns

    def __str__(self):
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.reasons.items()))
        return (
            f"{self.trades} trades identical, equity equal at {self.equity_bars} bars; {kinds}; "
            f"same-bar {self.same_bar}, filled at a gap {self.gaps}, of those at a spread "
            f"{self.spreads}, allowed difference {self.allowed}"
        )


def slipped(fill, ticks, enters):
    """The round turn entered at the open of its own side, and with every market and stop fill
    `ticks` against us; a target fill is not slipped."""
    exit_ticks = 0 if fill.reason == ExitReason.TARGET else ticks
    return replace(
        fill,
        entry_price=int(enters[fill.entry_row]) + fill.side * ticks,
        exit_price=fill.exit_price - fill.side * exit_ticks,
    )


def at_the_open(fill, log):
    """Our booking of the allowed difference: the target, at the open that had already passed it."""
    if not fill.open_beyond_target:
        return fill
    return replace(
        fill,
        exit_price=int(log.bars[fill.exit_row, 0]),
        reason=int(ExitReason.TARGET),
        open_beyond_target=False,
    )


def expected(log, terms, theirs, cents):
    """Round turns and equity (cents at each row, int64[T]) as we must have them, from the
    reference's.
    """
    assert all(fill.entry_price == log.bars[fill.entry_row, 0] for fill in theirs), (
        "an entry away from the open"
    )
    wanted = [slipped(at_the_open(fill, log), terms.slippage, log.enters) for fill in theirs]
    moved = np.zeros(
        len(cents), np.int64
    )  # cents by which our equity must differ, from each row on
    for fill, want in zip(theirs, wanted, strict=True):
        tick = fill.side * fill.contracts * terms.tick_cents
        moved[fill.entry_row] -= tick * (want.entry_price - fill.entry_price)
        moved[fill.exit_row] += tick * (want.exit_price - fill.exit_price)
    return wanted, cents + np.cumsum(moved)


def in_dollars(ticks, turns, value):
    """Equity in ticks less commission in cents -> mills, int64[T]: each exit at its bar's rate, the
    open position at each bar's own, rounded half-even."""
    times, over = (np.asarray(x).tolist() for x in (value.times, value.over))
    paid, realised, booked = np.zeros((3, len(ticks)), np.int64)
    for turn in turns:
        made = turn.side * turn.contracts * (turn.exit_price - turn.entry_price)
        realised[turn.exit_row] += made
        booked[turn.exit_row] += round(Fraction(made * times[turn.exit_row], over[turn.exit_row]))
        for row in (turn.entry_row, turn.exit_row):
            paid[row] += turn.commission // 2
    paid, realised, booked = np.cumsum((paid, realised, booked), axis=1)
    still_open = ticks + paid - realised
    for row in np.flatnonzero(still_open).tolist():
        booked[row] += round(Fraction(int(still_open[row]) * times[row], over[row]))
    return booked - 10 * paid


def compare(
    config,
    params,
    logits,
    terms=None,
    fine=None,
):
    """Play both engines on the same decisions; every trade and the equity at every bar must be
    equal.

    `terms` replaces the reference's figures (a planted fault), `fine` the bars that it plays. Two-sided bars are
    played by the reference once for each side. Raises AssertionError at the first difference.
    """
    log, turns, equity = ours.play(config, params, logits, fine)
    terms = ours.reference_terms(params, config.quantity) if terms is None else terms
    total, wanted, cents, out_of_step = Tally(equity_bars=len(equity), turns=turns), [], 0, []
    for part in ours.by_side(log, params.market, turns):
        theirs, their_cents, astray = reference.run(part, terms)
        fills, own_cents = expected(part, terms, theirs, their_cents)
        total.add(tally(part, theirs, fills))
        wanted, cents, out_of_step = wanted + fills, cents + own_cents, out_of_step + astray
    wanted.sort(key=lambda fill: fill.entry_row)
    value = params.market.tick_value
    wanted_equity = 10 * cents if value is None else in_dollars(cents, wanted, value)
    for number, (turn, want) in enumerate(zip(turns, wanted, strict=False)):
        bars = log.bars[want.entry_row : want.exit_row + 1].tolist()
        assert turn == want, (
            f"trade {number}: ours {turn}, expected {want}, bars from its entry on {bars}"
        )
    assert len(turns) == len(wanted)
    assert not out_of_step, (
        f"decisions of rows {out_of_step[:5]} did not fit the reference's position"
    )
    different = np.flatnonzero(equity != wanted_equity)
    assert different.size == 0, (
        f"equity differs first at row {different[0]}: ours {equity[different[0]]}, expected "
        f"{wanted_equity[different[0]]} mills; largest difference {np.abs(equity - wanted_equity).max()}"
    )
    return total


def tally(log, theirs, wanted):
    """Counted on the reference's unslipped prices; reasons as we book them."""
    by_level = {ExitReason.STOP, ExitReason.BREAKEVEN, ExitReason.TRAIL, ExitReason.TARGET}
    gaps = [f for f in theirs if f.reason in by_level and f.exit_price == log.bars[f.exit_row, 0]]
    return Tally(
        trades=len(theirs),
        same_bar=sum(f.entry_row == f.exit_row for f in theirs),
        allowed=sum(f.open_beyond_target for f in theirs),
        reasons=Counter(ExitReason(f.reason).name for f in wanted),
        gaps=len(gaps),
        spreads=sum(f.entry_row == f.exit_row for f in gaps),
    )


def compare_random(
    config,
    params,
    seed,
    reversals=False,
    fine=None,
):
    """`compare` on random masked actions, mostly HOLD."""
    choices = ours.choices_of(config, reversals)
    return compare(config, params, ours.random_logits(params, seed, choices), fine=fine)
