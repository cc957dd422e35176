"""The reference engine: a decision log replayed in backtesting.py 0.6.6, in whole ticks and cents.

backtesting.py (AGPL, used by tests only) is an independent engine with the fills that the semantics
page asks for: orders chosen at the close of bar t fill at the open of t+1, stops and targets are
live in the entry bar, a gap fills at the open, and where one bar touches both the stop is booked.
Everything here is written from the semantics page; from jaxtrade it takes only the bars, the
session rows and the decisions. How each trait of the engine is met:

- Floats: prices are ticks, a position's size is contracts x tick value in cents, commission is whole cents and cash
  1e12, so every sum is an integer below 2^53 and exact.
- `next()` first runs at bar 1, after the broker has worked through that bar; it acts at the bar's close. No decision
  falls on bar 0, which is still inside the 14-bar warm-up.
- The order's constructor refuses a bracket that the *last close* has already passed, although it will stand around the
  next open. So a naked market order is made and its `sl` and `tp` are replaced before it fills. The
  next open is read from the bar table for that: it is where the broker, not the strategy, will put
  the bracket.
- A market order that fills has the queue processed once more, stop orders in front, so brackets work in the entry bar.
- `Trade.close()` puts its order at the front of the queue: it fills at the next open before stop and target are looked
  at, and takes them away.
- Assigning `trade.sl` replaces the stop order; it is first tested on the next bar and, opened through, fills at that
  open. A price of 0 would mean "no level": prices here are thousands of ticks.
- Where second bars are known they are what the engine plays, decisions and stop moves at the last of each bar alone.
- The engine has no exit at a close. One bar O=H=L=C=close follows each flat bar, `close()` is called at the flat bar,
  and exit and equity are read back as the flat bar's. `finalize_trades` stays off (it would exit at
  an *open*).
- `spread` is relative, so slippage is not simulated: see `Replay.slippage`.
- An open beyond the target in a bar that later touches the stop is booked as the stop, because stop orders come first.
  We book the target at the open. That is the one allowed difference; `Fill.open_beyond_target`
  marks it.
"""

import contextlib
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from backtesting import Backtest, Strategy, backtesting

from jaxtrade.env.actions import Action
from jaxtrade.env.state import ExitReason

CASH = 1e12
SIDE = {int(Action.BUY): 1, int(Action.SELL): -1}
REVERSE = 100  # not an action of a task: close and open the other side at one open, as baselines do


@dataclass(frozen=True)
class Terms:
    """The contract and the brackets of one replay; ticks, cents, thousandths of ATR."""

    contracts: int
    tick_cents: int
    commission_cents: int
    slippage: int
    min_stop: int
    be_ticks: int
    stop_atr: int
    target_multiple: int
    trail_atr: int


@dataclass(frozen=True)
class Fine:
    """Finer bars that follow one another without a jump inside each bar: int64[F, 4] ticks,
    int64[F] rows.
    """

    bars: np.ndarray
    row: np.ndarray


@dataclass(frozen=True)
class Log:
    """Bars (int64[T, 4], ticks), the action taken at each row (-1 where none was), flat rows and
    their reason.
    """

    bars: np.ndarray
    action: np.ndarray
    flat_reason: np.ndarray  # int[T]: 0, or the forced exit's ExitReason at a flat bar
    fine: Fine | None = None  # what is played in place of the bars


@dataclass(frozen=True)
class Fill:
    """One round turn; rows of the flat time axis, prices in ticks, commission in cents."""

    side: int
    contracts: int
    entry_row: int
    entry_price: int
    exit_row: int
    exit_price: int
    reason: int
    commission: int
    open_beyond_target: bool = False


def true_ranges(bars):
    """int64[T]; row 0 has no previous close and is left 0 (no decision comes within 14 bars of
    it).
    """
    high, low, previous = bars[1:, 1], bars[1:, 2], bars[:-1, 3]
    return np.concatenate([[0], np.maximum(high, previous) - np.minimum(low, previous)])


def atr_ticks(thousandths, sum_of_14, least):
    """max(least, ceil(multiple x mean true range)) in Python integers."""
    return max(least, -(-thousandths * int(sum_of_14) // 14_000))


class Replay(Strategy):
    """Takes the logged decisions at the closes of their bars and manages stop and trail by the
    semantics page.

    `slippage` only enters where the position's own fill does (the break-even level); prices stay unslipped.
    """

    log: Log | None = None
    terms: Terms | None = None
    row_of: np.ndarray | None = None  # bar of the engine -> row of the time axis
    decides: np.ndarray | None = None  # the last bar of the engine in its row, and not inserted

    def init(self):
        self.tr_sum = np.convolve(true_ranges(self.log.bars), np.ones(14, np.int64))[
            : len(self.log.bars)
        ]
        self.trailing = False
        self.kind = ExitReason.STOP
        self.kinds = []  # of each closed trade: what its stop was when it left
        self.out_of_step = []  # rows whose decision does not fit this engine's position

    def next(self):
        self.kinds += [self.kind] * (len(self._broker.closed_trades) - len(self.kinds))
        bar = len(self.data) - 1
        if not self.decides[bar]:
            return
        row = int(self.row_of[bar])
        trade = self.trades[0] if self.trades else None
        if self.log.flat_reason[row]:
            if trade is not None:
                trade.close()
            return
        if trade is not None and self.trailing:
            self._ratchet(trade, row)
        self._act(trade, int(self.log.action[row]), row)

    def _act(self, trade, action, row):
        if action > 0 and (action in SIDE) != (trade is None):
            self.out_of_step.append(
                row
            )  # the engines have parted before: the comparison shows where
        elif action in SIDE:
            self._enter(SIDE[action], row)
        elif action > 0:
            side = 1 if trade.is_long else -1
            if action == REVERSE:
                trade.close()
                self._enter(-side, row)
            elif action == Action.CLOSE:
                trade.close()
            elif action == Action.MOVE_STOP_TO_BREAKEVEN:
                entry = trade.entry_price
                trade.sl = entry + side * (self.terms.slippage + self.terms.be_ticks)
                self.kind = ExitReason.BREAKEVEN
            else:
                self.trailing = action == Action.ENABLE_TRAIL

    def _enter(self, side, row):
        terms = self.terms
        stop = atr_ticks(terms.stop_atr, self.tr_sum[row], terms.min_stop)
        size = terms.contracts * terms.tick_cents
        order = self.buy(size=size) if side > 0 else self.sell(size=size)
        opens_at = float(self.log.bars[row + 1, 0])
        order._replace(
            sl_price=opens_at - side * stop, tp_price=opens_at + side * terms.target_multiple * stop
        )
        self.trailing, self.kind = False, ExitReason.STOP

    def _ratchet(self, trade, row):
        side = 1 if trade.is_long else -1
        level = float(
            self.log.bars[row, 3] - side * atr_ticks(self.terms.trail_atr, self.tr_sum[row], 1)
        )
        if side * (level - trade.sl) > 0:
            trade.sl = level
            self.kind = ExitReason.TRAIL


def run(log, terms):
    """Replay a log.

    -> (round turns in order of exit, unslipped; equity at each row in cents relative to the start, int64[T]; rows whose
    decision did not fit the position here, empty where both engines agree). Raises where the engine refuses an order,
    ends with an open trade or has a figure that is not a whole number.
    """
    fine = log.fine or Fine(log.bars, np.arange(len(log.bars)))
    last = np.diff(fine.row, append=len(log.bars)) > 0  # of its row
    flat = np.flatnonzero(last & (log.flat_reason[fine.row] > 0))
    source = np.insert(np.arange(len(fine.row)), flat + 1, flat)
    row_of, inserted = fine.row[source], np.insert(np.zeros(len(fine.row), bool), flat + 1, True)
    table = fine.bars[source].astype(float)
    table[inserted] = table[inserted, 3:]

    def commission(size, price):
        del price
        return abs(size) / terms.tick_cents * terms.commission_cents

    with warnings.catch_warnings(), _no_progress_bar():
        warnings.filterwarnings("ignore", message="Data index is not datetime")
        warnings.filterwarnings("error", message=".*(insufficient margin|remain open)")
        frame = pd.DataFrame(table, columns=["Open", "High", "Low", "Close"])
        engine = Backtest(frame, Replay, cash=CASH, commission=commission, finalize_trades=False)
        strategy = engine.run(
            log=log, terms=terms, row_of=row_of, decides=last[source] & ~inserted
        )["_strategy"]

    broker = strategy._broker
    strategy.kinds += [strategy.kind] * (len(broker.closed_trades) - len(strategy.kinds))
    equity = np.full(len(log.bars), 0)
    equity[row_of[1:]] = whole(
        broker._equity[1:] - CASH
    )  # the inserted bar, later, overwrites its flat bar
    fills = [
        _fill(trade, kind, log, terms, row_of, inserted)
        for trade, kind in zip(broker.closed_trades, strategy.kinds, strict=True)
    ]
    return fills, equity, strategy.out_of_step


def _fill(
    trade,
    kind,
    log,
    terms,
    row_of,
    inserted,
):
    side = 1 if trade.is_long else -1
    row, price = int(row_of[trade.exit_bar]), trade.exit_price
    beyond = False
    if inserted[trade.exit_bar]:
        reason = int(log.flat_reason[row])
    elif row > row_of[trade.entry_bar] and log.action[row - 1] in (Action.CLOSE, REVERSE):
        reason = int(ExitReason.ORDER)
    elif side * (price - trade.tp) >= 0:
        reason = int(ExitReason.TARGET)
    else:
        assert side * (price - trade.sl) <= 0, "left neither at its stop nor at its target"
        reason = int(kind)
        beyond = bool(side * (log.bars[row, 0] - trade.tp) >= 0)
    return Fill(
        side=side,
        contracts=int(whole(abs(trade.size) / terms.tick_cents)),
        entry_row=int(row_of[trade.entry_bar]),
        entry_price=int(whole(trade.entry_price)),
        exit_row=row,
        exit_price=int(whole(price)),
        reason=reason,
        commission=int(whole(trade._commissions)),
        open_beyond_target=beyond,
    )


def whole(value):
    """int64 of floats that must be whole numbers."""
    rounded = np.round(value)
    assert np.array_equal(rounded, value), "the engine's figures are not whole ticks or cents"
    return rounded.astype(np.int64)


@contextlib.contextmanager
def _no_progress_bar():
    bar = backtesting._tqdm
    backtesting._tqdm = lambda iterable, **_: iterable
    try:
        yield
    finally:
        backtesting._tqdm = bar
