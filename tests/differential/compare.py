"""Both engines on the same decisions: what must be equal, and what may differ by a known amount."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from jaxtrade.env.state import ExitReason
from tests.differential import ours, reference
from tests.differential.reference import Fill


@dataclass
class Tally:
    """Figures of compared passes."""

    trades: int = 0
    same_bar: int = 0
    allowed: int = 0  # open beyond the target, stop touched later in that bar
    reasons: Counter[str] = field(default_factory=Counter)
    gaps: int = 0  # stop or target filled at an open that had passed it
    turns: list[Fill] = field(default_factory=list)

    def add(self, other):
        self.trades += other.trades
        self.same_bar += other.same_bar
        self.allowed += other.allowed
        self.reasons += other.reasons
        self.gaps += other.gaps
        self.turns += other.turns


def slipped(fill, ticks):
    """The round turn with every market and stop fill `ticks` against us; a target fill is not
    slipped."""
    exit_ticks = 0 if fill.reason == ExitReason.TARGET else ticks
    return replace(
        fill,
        entry_price=fill.entry_price + fill.side * ticks,
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
    wanted = [slipped(at_the_open(fill, log), terms.slippage) for fill in theirs]
    moved = np.zeros(
        len(cents), np.int64
    )  # cents by which our equity must differ, from each row on
    for fill, want in zip(theirs, wanted, strict=True):
        tick = fill.side * fill.contracts * terms.tick_cents
        moved[fill.entry_row] -= tick * (want.entry_price - fill.entry_price)
        moved[fill.exit_row] += tick * (want.exit_price - fill.exit_price)
    return wanted, cents + np.cumsum(moved)


def compare(
    config,
    params,
    logits,
    terms=None,
    fine=None,
):
    """Play both engines on the same decisions; every trade and the equity at every bar must be
    equal.

    `terms` replaces the reference's figures (a planted fault), `fine` the bars that it plays.
    Raises AssertionError at the first difference.
    """
    log, turns, equity = ours.play(config, params, logits, fine)
    terms = ours.reference_terms(params, config.quantity) if terms is None else terms
    theirs, their_cents, out_of_step = reference.run(log, terms)
    wanted, cents = expected(log, terms, theirs, their_cents)
    for number, (turn, want) in enumerate(zip(turns, wanted, strict=False)):
        bars = log.bars[want.entry_row : want.exit_row + 1].tolist()
        assert turn == want, (
            f"trade {number}: ours {turn}, expected {want}, bars from its entry on {bars}"
        )
    assert len(turns) == len(wanted)
    assert not out_of_step, (
        f"decisions of rows {out_of_step[:5]} did not fit the reference's position"
    )
    different = np.flatnonzero(equity != 10 * cents)
    assert different.size == 0, (
        f"equity differs first at row {different[0]}: ours {equity[different[0]]}, expected "
        f"{10 * cents[different[0]]} mills"
    )
    return tally(log, theirs, wanted, turns)


def tally(log, theirs, wanted, turns):
    """Counted on the reference's unslipped prices; reasons as we book them."""
    by_level = {ExitReason.STOP, ExitReason.BREAKEVEN, ExitReason.TRAIL, ExitReason.TARGET}
    gaps = [f for f in theirs if f.reason in by_level and f.exit_price == log.bars[f.exit_row, 0]]
    return Tally(
        trades=len(theirs),
        same_bar=sum(f.entry_row == f.exit_row for f in theirs),
        allowed=sum(f.open_beyond_target for f in theirs),
        reasons=Counter(ExitReason(f.reason).name for f in wanted),
        gaps=len(gaps),
        turns=turns,
    )


def compare_random(
    config,
    params,
    seed,
    reversals=False,
    fine=None,
):
    """`compare` on random masked actions, mostly HOLD."""
    logits = ours.random_logits(config, params, seed, reversals)
    return compare(config, params, logits, fine=fine)
