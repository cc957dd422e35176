"""The marks that decide when an evaluation account ends: one path per session, from the strategy
pass, in exact mills.

The strategy pass holds the same positions as the account pass until an account ends, as long as the
agent does not see the account. What the account rules would have seen inside a bar can therefore be
worked out from its record: the mark that raises the high-water mark, and then the equity that is
tested against the floors (docs/semantics.md, *One step* 5-8 and *Order inside a bar*). A bar gives
one such pair of marks under `stop_first`, one for each fall under
`nearer_extreme` and `path`, and one more for its end. Under `mark=close` the close is the only pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.env.state import OFF, EnvParams, ExitReason
from jaxtrade.evaluation.backtest import DecisionBars, Record
from jaxtrade.evaluation.trades import mills_at

FAR = 1 << 29  # ticks, further than any price
STOPPED = (ExitReason.STOP, ExitReason.BREAKEVEN, ExitReason.TRAIL)


@dataclass(frozen=True)
class SessionPaths:
    """Paths of S sessions. Money is int64 mills relative to the equity at the session's open.

    Pairs of marks, int64[P] each, by session and then by time:
        session: number of the session. bar: index of the decision bar in the record. high: live
            equity at the
        favourable mark. low: equity at the mark that is tested after it, less the commission of
        leaving.
    Bars that end flat and had a fill, int64[Q] each:
        flat_session, flat_bar. balance: realised profit of the session so far.
    Sessions, [S] each:
        result: int64, profit of the session. traded: bool, True if it had a fill. daily_bar: int64,
            the bar in which
        the daily limit was reached and the position was closed, or -1. Nothing of the session
        counts after that bar.
    """

    session: np.ndarray
    bar: np.ndarray
    high: np.ndarray
    low: np.ndarray
    flat_session: np.ndarray
    flat_bar: np.ndarray
    balance: np.ndarray
    result: np.ndarray
    traded: np.ndarray
    daily_bar: np.ndarray

    @property
    def sessions(self) -> int:
        """The number S of sessions."""
        return len(self.result)


class _Bars(NamedTuple):
    """The A bars with a position or a fill, int64[A] each. Money is mills from the session's open.

    index: of the decision bar. session. row: market row of the bar. held: contracts after the order
        at the open, with
    sign. entry: their fill price. cash: realised money after the order at the open. opening: equity
    at the open, before the order. kept: contracts after the bar. equity: at the close. open, high,
    low, close: ticks at which `held` would leave. best, worst: the two marks of the event.
    """

    index: np.ndarray
    session: np.ndarray
    row: np.ndarray
    held: np.ndarray
    entry: np.ndarray
    cash: np.ndarray
    opening: np.ndarray
    kept: np.ndarray
    equity: np.ndarray
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    best: np.ndarray
    worst: np.ndarray


class _Moves(NamedTuple):
    """K pairs of moves in each of A bars, ticks from the open and positive in favour of the
    position, int64[A, K].

    turn: the favourable mark. end: the adverse one after it. live: bool[A, K], False for a pair
        that does not exist.
    """

    turn: np.ndarray
    end: np.ndarray
    live: np.ndarray


def session_paths(
    record: Record, decisions: DecisionBars, params: EnvParams, config: EnvConfig
) -> SessionPaths:
    """The paths of a strategy pass.

    Args:
        record: of the strategy pass (`backtest`), in int64 money.
        params: of one symbol, with the account's rules; of these only the daily limit is read.
        config: says how bars are marked (`mark`, `intrabar`).
    """
    bars = _active(record, decisions, params)
    commission = int(params.contract.commission)
    if config.mark == "close":
        high = bars.equity[:, None]
        low = high - np.abs(bars.kept)[:, None] * commission
        moves = _Moves(np.zeros_like(high), np.zeros_like(high), np.ones(high.shape, bool))
    else:
        moves = _moves(bars, record, params, config.intrabar)
        high = np.maximum(bars.opening[:, None], _worth(bars, moves.turn, params))
        low = _worth(bars, moves.end, params) - np.abs(bars.held)[:, None] * commission
        best = np.maximum(bars.opening, _worth(bars, _side(bars) * (bars.best - bars.open), params))
        high, low = np.column_stack([high, best]), np.column_stack([low, bars.equity])
        moves = moves._replace(live=np.column_stack([moves.live, np.ones(len(best), bool)]))
    at, column = np.nonzero(moves.live)
    flat = bars.kept == 0
    count = len(decisions.ids)
    paths = SessionPaths(
        session=bars.session[at],
        bar=bars.index[at],
        high=high[at, column],
        low=low[at, column],
        flat_session=bars.session[flat],
        flat_bar=bars.index[flat],
        balance=bars.equity[flat],
        result=np.diff(record.equity[decisions.last].astype(np.int64), prepend=0),
        traded=np.bincount(bars.session, minlength=count) > 0,
        daily_bar=np.full(count, -1, np.int64),
    )
    limit = int(params.account.daily_loss)
    return (
        paths
        if limit >= OFF
        else _limited(paths, _DailyExit(bars, at, column, moves, params, config), -limit)
    )


def _active(record: Record, decisions: DecisionBars, params: EnvParams) -> _Bars:
    """The bars in which something can happen to an account. All others leave it as it is."""
    event = record.event
    carried, kept = record.carried.astype(np.int64), record.quantity.astype(np.int64)
    bought, left = event.entry_quantity.astype(np.int64), event.order_exit_quantity.astype(np.int64)
    held = np.where(bought != 0, bought, np.where(left != 0, 0, carried))
    latest = np.maximum.accumulate(np.where(bought != 0, np.arange(len(bought)), 0))
    entry = event.entry_price.astype(np.int64)[
        latest
    ]  # of the position after the order; any number where flat
    entry_before = np.concatenate([[0], entry[:-1]])
    row = decisions.rows + 1
    first = _prices(params, row, np.sign(carried))[0]
    open_, high, low, close = _prices(params, row, np.sign(held))

    equity = record.equity.astype(np.int64)
    at_open = np.concatenate([[0], equity[decisions.last[:-1]]])[decisions.session]
    after = equity - at_open
    open_profit = mills_at(kept * (close - entry), row, params)
    same = np.concatenate([[False], decisions.session[1:] == decisions.session[:-1]])
    before = np.where(same, np.concatenate([[0], (after - open_profit)[:-1]]), 0)
    closed = mills_at(left * (event.order_exit_price.astype(np.int64) - entry_before), row, params)
    cash = before + closed - (np.abs(bought) + np.abs(left)) * int(params.contract.commission)
    opening = before + mills_at(carried * (first - entry_before), row, params)
    columns = _Bars(
        np.arange(len(row)),
        decisions.session.astype(np.int64),
        row,
        held,
        entry,
        cash,
        opening,
        kept,
        after,
        open_,
        high,
        low,
        close,
        event.favourable.astype(np.int64),
        event.adverse.astype(np.int64),
    )
    keep = (carried != 0) | (bought != 0)
    return _Bars(*(column[keep] for column in columns))


def _prices(params: EnvParams, row: np.ndarray, side: np.ndarray) -> list[np.ndarray]:
    """Open, high, low, close int64[n] at which a position of `side` leaves: of two-sided bars the
    ask for a short.
    """
    market = params.market
    names = ("open", "high", "low", "close")
    bid = [np.asarray(getattr(market, name))[row].astype(np.int64) for name in names]
    if market.ask is None:
        return bid
    ask = [np.asarray(getattr(market.ask, name))[row].astype(np.int64) for name in names]
    return [np.where(side < 0, above, below) for above, below in zip(ask, bid, strict=True)]


def _side(bars: _Bars) -> np.ndarray:
    return np.sign(bars.held)


def _worth(bars: _Bars, move: np.ndarray, params: EnvParams) -> np.ndarray:
    """Live equity in mills after `move` ticks from the open in favour of the position, int64 [A] or
    [A, K].
    """
    wide = (slice(None), None) if move.ndim == 2 else (slice(None),)
    side, held, entry = _side(bars)[wide], bars.held[wide], bars.entry[wide]
    ticks = held * (bars.open[wide] + side * move - entry)
    return bars.cash[wide] + mills_at(ticks, np.broadcast_to(bars.row[wide], ticks.shape), params)


def _moves(bars: _Bars, record: Record, params: EnvParams, intrabar: str) -> _Moves:
    """The pairs of moves inside each bar in the order in which `intrabar` takes them; none where
    nothing is held.
    """
    side, held = _side(bars), bars.held != 0
    ends = side * (bars.worst - bars.open)
    if intrabar == "stop_first":
        return _Moves((side * (bars.best - bars.open))[:, None], ends[:, None], held[:, None])
    reason = record.event.exit_reason[bars.index]
    at_target, stopped = reason == ExitReason.TARGET, np.isin(reason, STOPPED)
    gain = side * (record.event.exit_price[bars.index].astype(np.int64) - bars.open)
    printed = (at_target & (gain == 0)) | (
        stopped & (gain == -int(params.contract.slippage)) & (ends == 0)
    )
    target = np.where(at_target, gain, FAR)[:, None]
    stop = np.where(stopped, ends, -FAR)[:, None]
    before, high, end, live = _falls(bars, params, intrabar)
    live = live & held[:, None] & (before < target)
    met = live & (end <= stop)
    live &= np.cumsum(met, axis=1) - met == 0  # nothing counts after the fall that met the stop
    turn, end = np.minimum(high, target), np.where(met, stop, end)
    whole = (
        np.arange(turn.shape[1]) == 0
    )  # a bar that closed the position at its open has a single mark
    turn, end = np.where(printed[:, None], 0, turn), np.where(printed[:, None], 0, end)
    return _Moves(turn, end, np.where(printed[:, None], whole & held[:, None], live))


def _falls(
    bars: _Bars, params: EnvParams, intrabar: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(running high before, with it, end, exists) of each fall, [A, K], as `env.execution` orders
    them.
    """
    side = _side(bars)
    up, down = bars.high - bars.open, bars.open - bars.low
    best, worst = np.where(side > 0, up, down), -np.where(side > 0, down, up)
    if intrabar == "nearer_extreme":
        first = np.where(best < -worst, best, 0)
        end = np.column_stack([worst, side * (bars.close - bars.open)])
        turns = np.column_stack([first, best])
        return turns, turns, end, np.ones(end.shape, bool)
    assert params.market.path is not None, "the strategy pass has run under this order"
    short = (side < 0).astype(np.int64)
    known = np.asarray(params.market.path.falls, np.int64)[bars.row, short]
    ambiguous = np.asarray(params.market.path.ambiguous)[bars.row, short][:, None]
    first = np.arange(known.shape[-1]) == 0
    one = [np.zeros_like(best), best, worst]
    before, high, end = (
        np.where(ambiguous, whole[:, None], known[:, i]) for i, whole in enumerate(one)
    )
    return before, high, end, np.where(ambiguous, first, True)


class _DailyExit(NamedTuple):
    """What is needed to close a position at the daily limit. at, column: int64[P] bar and column of
    each pair.
    """

    bars: _Bars
    at: np.ndarray
    column: np.ndarray
    moves: _Moves
    params: EnvParams
    config: EnvConfig

    def left(self, pair: int, floor: int) -> tuple[int | None, int]:
        """(high, equity) of a bar that is closed at the daily limit. high: None if the pair's own
        one counts.

        The position leaves at the first price from the open on, or at the close under `mark=close`,
        at which equity less the commission of leaving is at or below `floor`, slipped. A pair for
        the end of a bar has no position.
        """
        at, column = int(self.at[pair]), int(self.column[pair])
        bar = _Bars(*(column_[at : at + 1] for column_ in self.bars))
        closes = self.config.mark == "close"
        size = abs(int((bar.kept if closes else bar.held)[0]))
        if size == 0 or (not closes and column >= self.moves.end.shape[1]):
            return None, int(bar.equity[0])
        if closes:
            gain = _side(bar) * (bar.close - bar.open)
            falls = gain
        else:
            falls = -np.arange(-int(self.moves.end[at, column]) + 1)
        commission = size * int(self.params.contract.commission)
        worth = _worth(bar, falls[None, :], self.params)[0] - commission
        step = int(np.flatnonzero(worth <= floor)[0])
        out = falls[step] - int(self.params.contract.slippage)
        equity = int(_worth(bar, np.asarray([out]), self.params)[0]) - commission
        printed = not closes and step == 0
        return (int(bar.opening[0]) if printed else None), equity


def _limited(paths: SessionPaths, exits: _DailyExit, floor: int) -> SessionPaths:
    """The paths under a daily limit: each ends with the bar in which equity reached `floor` (mills
    below 0).
    """
    reached = np.flatnonzero(paths.low <= floor)
    _, first = np.unique(paths.session[reached], return_index=True)
    high, low, result = paths.high.copy(), paths.low.copy(), paths.result.copy()
    daily_bar, balance = paths.daily_bar.copy(), paths.balance.copy()
    keep, keep_flat = np.ones(len(low), bool), np.ones(len(balance), bool)
    number = np.arange(len(low))
    for pair in reached[first]:
        session, bar = paths.session[pair], paths.bar[pair]
        opening, equity = exits.left(int(pair), floor)
        high[pair] = high[pair] if opening is None else opening
        low[pair] = result[session] = equity
        daily_bar[session] = bar
        keep &= (paths.session != session) | (number <= pair)
        keep_flat &= (paths.flat_session != session) | (paths.flat_bar < bar)
    sessions = np.concatenate([paths.flat_session[keep_flat], np.flatnonzero(daily_bar >= 0)])
    bars = np.concatenate([paths.flat_bar[keep_flat], daily_bar[daily_bar >= 0]])
    money = np.concatenate([balance[keep_flat], result[daily_bar >= 0]])
    order = np.argsort(bars, kind="stable")
    return SessionPaths(
        paths.session[keep],
        paths.bar[keep],
        high[keep],
        low[keep],
        sessions[order],
        bars[order],
        money[order],
        result,
        paths.traded,
        daily_bar,
    )
