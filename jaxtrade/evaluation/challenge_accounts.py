"""Evaluation accounts over sessions in any order, and the marks that decide when one ends.

`SessionPaths` is one path per session, from the strategy pass, in exact mills.

The strategy pass holds the same positions as the account pass until an account ends, as long as the
agent does not see the account. What the account rules would have seen inside a bar can therefore be
worked out from its record: the mark that raises the high-water mark, and then the equity that is
tested against the floors (docs/semantics.md, *One step* 5-8 and *Order inside a bar*). A bar gives
one such pair of marks under `stop_first`, one for each fall under `nearer_extreme` and `path`, and
one more for its end. Under `mark=close` the close is the only pair.

Many accounts are played at once, in NumPy, under the rules of `AccountParams`. An account begins
each session flat. What it has from earlier sessions is its balance b, its
high-water mark H and its days with a fill. A session's path (`SessionPaths`) then decides. With
drawdown D and freeze cap C, the floor at a pair of marks is min(max(H, b + M) - D, C), where M is
the highest mark of the session so far. The account is bust at the first pair whose low is at or
below floor - b:

    low <= min(H - D, C) - b,    or with an intraday trail    low <= M - D and low <= C - b.

Each of these is the first time at which the running minimum of a list reaches a level, so it is
found by bisection (`Ladder`), and no account has to walk through the bars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.env.state import OFF, AccountParams, EndReason, EnvParams, ExitReason, Trailing
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.evaluation.trades import mills_at

Ints = np.ndarray  # int64
FAR = 1 << 29  # ticks, further than any price
STOPPED = (ExitReason.STOP, ExitReason.BREAKEVEN, ExitReason.TRAIL)


@dataclass(frozen=True)
class SessionPaths:
    """Paths of S sessions. Money is int64 mills relative to the equity at the session's open.

    Pairs of marks, int64[P] each, by session and then by time:
        session: number of the session.
        bar: index of the decision bar in the record.
        high: live equity at the favourable mark.
        low: equity at the mark that is tested after it, less the commission of leaving.
    Bars that end flat and had a fill, int64[Q] each:
        flat_session, flat_bar: as session and bar.
        balance: realised profit of the session so far.
    Sessions, [S] each:
        result: int64, profit of the session.
        traded: bool, True if it had a fill.
        daily_bar: int64, the bar in which the daily limit was reached and the position was closed,
            or -1. Nothing of the session counts after that bar.
    """

    session: Ints
    bar: Ints
    high: Ints
    low: Ints
    flat_session: Ints
    flat_bar: Ints
    balance: Ints
    result: Ints
    traded: np.ndarray
    daily_bar: Ints

    @property
    def sessions(self) -> int:
        """The number S of sessions."""
        return len(self.result)


class _Bars(NamedTuple):
    """The A bars with a position or a fill, int64[A] each. Money is mills from the session's open.

    index: of the decision bar. session.
    row: market row of the bar.
    held: contracts after the order at the open, with sign.
    entry: their fill price.
    cash: realised money after the order at the open.
    opening: equity at the open, before the order.
    kept: contracts after the bar.
    equity: at the close.
    open, high, low, close: ticks at which `held` would leave.
    best, worst: the two marks of the event.
    """

    index: Ints
    session: Ints
    row: Ints
    held: Ints
    entry: Ints
    cash: Ints
    opening: Ints
    kept: Ints
    equity: Ints
    open: Ints
    high: Ints
    low: Ints
    close: Ints
    best: Ints
    worst: Ints


class _Moves(NamedTuple):
    """K pairs of moves in each of A bars, int64[A, K].

    They are ticks from the open and positive in favour of the position.

    turn: the favourable mark.
    end: the adverse one after it.
    live: bool[A, K], False for a pair that does not exist.
    """

    turn: Ints
    end: Ints
    live: np.ndarray


def _whole(values: Any) -> Ints:
    """Convert to int64, as money and ticks on the host are."""
    return np.asarray(values, np.int64)


def session_paths(
    record: Record, decisions: DecisionBars, params: EnvParams, config: EnvConfig
) -> SessionPaths:
    """Extract the paths of a strategy pass.

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
        high = np.maximum(bars.opening[:, None], _move_equity(bars, moves.turn, params))
        low = _move_equity(bars, moves.end, params) - np.abs(bars.held)[:, None] * commission
        best = np.maximum(
            bars.opening, _move_equity(bars, _side(bars) * (bars.best - bars.open), params)
        )
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
        result=np.diff(_whole(record.equity[decisions.last]), prepend=0),
        traded=np.bincount(bars.session, minlength=count) > 0,
        daily_bar=np.full(count, -1, np.int64),
    )
    limit = int(params.account.daily_loss)
    if limit >= OFF:
        return paths

    def find_exit(pair: int) -> tuple[int | None, int]:
        bar = _Bars(*(each[at[pair] : at[pair] + 1] for each in bars))
        end = None if column[pair] >= moves.end.shape[1] else int(moves.end[at[pair], column[pair]])
        return _daily_exit(bar, end, params, config, -limit)

    return _apply_daily_limit(paths, find_exit, -limit)


def _active(record: Record, decisions: DecisionBars, params: EnvParams) -> _Bars:
    """Select the bars in which something can happen to an account. All others leave it as it is."""
    event = record.event
    carried, kept = _whole(record.carried), _whole(record.quantity)
    bought, left = _whole(event.entry_quantity), _whole(event.order_exit_quantity)
    held = np.where(bought != 0, bought, np.where(left != 0, 0, carried))
    latest = np.maximum.accumulate(np.where(bought != 0, np.arange(len(bought)), 0))
    entry = _whole(event.entry_price)[
        latest
    ]  # of the position after the order; any number where flat
    entry_before = np.append(0, entry[:-1])
    row = decisions.rows + 1
    first = _prices(params, row, np.sign(carried))[0]
    open_, high, low, close = _prices(params, row, np.sign(held))

    equity = _whole(record.equity)
    at_open = np.append(0, equity[decisions.last[:-1]])[decisions.session]
    after = equity - at_open
    open_profit = mills_at(kept * (close - entry), row, params)
    same = np.append(False, decisions.session[1:] == decisions.session[:-1])
    before = np.where(same, np.append(0, (after - open_profit)[:-1]), 0)
    closed = mills_at(left * (_whole(event.order_exit_price) - entry_before), row, params)
    cash = before + closed - (np.abs(bought) + np.abs(left)) * int(params.contract.commission)
    opening = before + mills_at(carried * (first - entry_before), row, params)
    columns = _Bars(
        np.arange(len(row)),
        _whole(decisions.session),
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
        _whole(event.favourable),
        _whole(event.adverse),
    )
    keep = (carried != 0) | (bought != 0)
    return _Bars(*(column[keep] for column in columns))


def _prices(params: EnvParams, row: Ints, side: Ints) -> list[Ints]:
    """Return open, high, low and close (int64[n]) at which a position of `side` leaves.

    Of two-sided bars, a short leaves at the ask.
    """
    market = params.market
    names = ("open", "high", "low", "close")
    bid = [_whole(np.asarray(getattr(market, name))[row]) for name in names]
    if not market.ask:
        return bid
    ask = [_whole(np.asarray(getattr(market.ask, name))[row]) for name in names]
    return [np.where(side < 0, above, below) for above, below in zip(ask, bid, strict=True)]


def _side(bars: _Bars) -> Ints:
    return np.sign(bars.held)


def _move_equity(bars: _Bars, move: Ints, params: EnvParams) -> Ints:
    """Return live equity after `move` ticks from the open in favour of the position.

    int64[A] or [A, K], mills.
    """
    wide = (slice(None), None) if move.ndim == 2 else (slice(None),)
    side, held, entry = _side(bars)[wide], bars.held[wide], bars.entry[wide]
    ticks = held * (bars.open[wide] + side * move - entry)
    return bars.cash[wide] + mills_at(ticks, np.broadcast_to(bars.row[wide], ticks.shape), params)


def _moves(bars: _Bars, record: Record, params: EnvParams, intrabar: str) -> _Moves:
    """Pair the moves inside each bar in the order in which `intrabar` takes them.

    There are none where nothing is held.
    """
    side, held = _side(bars), bars.held != 0
    ends = side * (bars.worst - bars.open)
    if intrabar == "stop_first":
        return _Moves((side * (bars.best - bars.open))[:, None], ends[:, None], held[:, None])
    reason = record.event.exit_reason[bars.index]
    at_target, stopped = reason == ExitReason.TARGET, np.isin(reason, STOPPED)
    gain = side * (_whole(record.event.exit_price[bars.index]) - bars.open)
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


def _falls(bars: _Bars, params: EnvParams, intrabar: str) -> tuple[Ints, Ints, Ints, np.ndarray]:
    """Return each fall as (running high before, with it, end, exists), [A, K].

    The order is that of `env.execution`.
    """
    side = _side(bars)
    up, down = bars.high - bars.open, bars.open - bars.low
    best, worst = np.where(side > 0, up, down), -np.where(side > 0, down, up)
    if intrabar == "nearer_extreme":
        first = np.where(best < -worst, best, 0)
        end = np.column_stack([worst, side * (bars.close - bars.open)])
        turns = np.column_stack([first, best])
        return turns, turns, end, np.ones(end.shape, bool)
    assert params.market.path, "the strategy pass has run under this order"
    short = (side < 0).astype(np.int64)
    known = np.asarray(params.market.path.falls, np.int64)[bars.row, short]
    ambiguous = np.asarray(params.market.path.ambiguous)[bars.row, short][:, None]
    first = np.arange(known.shape[-1]) == 0
    one = [np.zeros_like(best), best, worst]
    before, high, end = (
        np.where(ambiguous, whole[:, None], known[:, i]) for i, whole in enumerate(one)
    )
    return before, high, end, np.where(ambiguous, first, True)


def _daily_exit(
    bar: _Bars, end: int | None, params: EnvParams, config: EnvConfig, floor: int
) -> tuple[int | None, int]:
    """Return (high, equity) of a bar that is closed at the daily limit.

    high is None if the pair's own one counts. The position leaves at the first price from the open
    on, or at the close under `mark=close`, at which equity less the commission of leaving is at or
    below `floor`, slipped.

    Args:
        bar: the only one.
        end: the adverse move of the pair; None for the end of a bar, which has no position.
    """
    closes = config.mark == "close"
    size = abs(int((bar.kept if closes else bar.held)[0]))
    if size == 0 or (not closes and end is None):
        return None, int(bar.equity[0])
    falls = _side(bar) * (bar.close - bar.open) if closes else -np.arange(1 - (end or 0))
    commission = size * int(params.contract.commission)
    worth = _move_equity(bar, falls[None, :], params)[0] - commission
    step = int(np.flatnonzero(worth <= floor)[0])
    out = falls[step] - int(params.contract.slippage)
    equity = int(_move_equity(bar, np.asarray([out]), params)[0]) - commission
    printed = not closes and step == 0
    return (int(bar.opening[0]) if printed else None), equity


def _apply_daily_limit(
    paths: SessionPaths, left: Callable[[int], tuple[int | None, int]], floor: int
) -> SessionPaths:
    """End each path with the bar in which equity reached the daily limit.

    Args:
        left: pair -> how its position leaves there (`_daily_exit`).
        floor: mills below 0.
    """
    reached = np.flatnonzero(paths.low <= floor)
    _, first = np.unique(paths.session[reached], return_index=True)
    high, low, result = paths.high.copy(), paths.low.copy(), paths.result.copy()
    daily_bar, balance = paths.daily_bar.copy(), paths.balance.copy()
    keep, keep_flat = np.ones(len(low), bool), np.ones(len(balance), bool)
    number = np.arange(len(low))
    for pair in reached[first]:
        session, bar = paths.session[pair], paths.bar[pair]
        opening, equity = left(int(pair))
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


NEVER = np.iinfo(np.int64).max
_ROOM = 1 << 40  # mills, more than any account moves; keeps the sessions of a ladder apart


class Ladder(NamedTuple):
    """The records that a value sets in each session, R in all.

    A record is its highest value so far, and when it was reached.

    key: int64[R], session and value as one rising number.
    session, bar: int64[R].
    """

    key: Ints
    session: Ints
    bar: Ints

    @classmethod
    def of(cls, session: Ints, bar: Ints, value: Ints) -> Ladder:
        """Build the ladder from int64[P], ordered by session and then by time."""
        key = running_max_by_session(session, value)
        new = np.append(True, key[1:] > key[:-1])[: len(key)]
        return cls(key[new], session[new], bar[new])

    def first(self, session: Ints, level: Ints) -> Ints:
        """Find each session's first bar with a value at or above a level, else NEVER (int64[n])."""
        if not len(self.key):
            return np.full(len(session), NEVER)
        at = np.searchsorted(self.key, session * 4 * _ROOM + np.clip(level, -_ROOM, _ROOM))
        found = np.minimum(at, len(self.key) - 1)
        return np.where(
            (at < len(self.key)) & (self.session[found] == session), self.bar[found], NEVER
        )


def running_max_by_session(session: Ints, value: Ints) -> Ints:
    """Return the running maximum of `value` in each session (int64[P]).

    The session is added as a large multiple.
    """
    return np.maximum.accumulate(session * 4 * _ROOM + value)


class Accounts(NamedTuple):
    """n open accounts between two sessions, int64[n].

    They are mills from the start balance, and trade dates with a fill.
    """

    balance: Ints
    high_water: Ints
    days: Ints

    @classmethod
    def new(cls, count: int) -> Accounts:
        """Open `count` new accounts."""
        return cls(*np.zeros((3, count), np.int64))

    def where(self, keep: np.ndarray) -> Accounts:
        """Select accounts. keep: bool[n]."""
        return Accounts(*(column[keep] for column in self))


class SessionOutcome(NamedTuple):
    """One session of n accounts.

    after: the accounts at its end.
    end: int64[n] EndReason (BUST, DAILY_LOSS, TARGET or NONE) by which the rules ended them.
    reached: bool[n], True if the realised profit reached the target before that.
    """

    after: Accounts
    end: Ints
    reached: np.ndarray


class Challenge:
    """Sessions prepared for one set of account rules.

    It is built once, and then serves any number of accounts.
    """

    def __init__(self, paths: SessionPaths, rules: AccountParams) -> None:
        self.sessions = paths.sessions
        self.drawdown, self.cap = int(rules.drawdown), int(rules.floor_cap)
        self.target, self.min_days = int(rules.target), int(rules.min_days)
        self.trailing = Trailing(int(rules.trailing))
        self.stop_at_target, self.fails = (
            bool(rules.stop_at_target),
            (bool(rules.fail_on_daily_loss) and int(rules.daily_loss) < OFF),
        )
        self.result, self.traded = paths.result, _whole(paths.traded)
        self.daily = np.where(paths.daily_bar >= 0, paths.daily_bar, NEVER)
        top = running_max_by_session(paths.session, paths.high) - paths.session * 4 * _ROOM
        self.top = np.zeros(
            self.sessions, np.int64
        )  # a session without a position marks its opening equity alone
        np.maximum.at(self.top, paths.session, paths.high)
        self.lows = Ladder.of(paths.session, paths.bar, -paths.low)
        deep = top - paths.low >= self.drawdown
        self.deep = Ladder.of(paths.session[deep], paths.bar[deep], -paths.low[deep])
        self.flats = Ladder.of(paths.flat_session, paths.flat_bar, paths.balance)

    def play(self, accounts: Accounts, session: Ints) -> SessionOutcome:
        """Play one session of each account (int64[n]). Bars are compared within a session only."""
        bust = np.full(len(session), NEVER)
        if self.drawdown < OFF:
            floor = np.minimum(accounts.high_water - self.drawdown, self.cap) - accounts.balance
            bust = self.lows.first(session, -floor)
            if self.trailing == Trailing.INTRADAY:
                deep = self.deep.first(session, accounts.balance - self.cap)
                bust = np.minimum(bust, deep)
        target: Any = NEVER
        if self.target < OFF:
            enough = accounts.days + 1 >= self.min_days  # a bar of a path lies on a day with a fill
            target = np.where(
                enough, self.flats.first(session, self.target - accounts.balance), NEVER
            )
        daily = self.daily[session] if self.fails else NEVER
        ended = target if self.stop_at_target else NEVER
        last = np.minimum(np.minimum(bust, daily), ended)
        end = np.select(
            [last == NEVER, last == bust, last == daily],
            [EndReason.NONE, EndReason.BUST, EndReason.DAILY_LOSS],
            EndReason.TARGET,
        )
        reached = (target < NEVER) & (target < bust) & (target < daily)
        # The accounts at the end of the session, for those that did not end in it.
        balance, high = accounts.balance + self.result[session], accounts.high_water
        if self.trailing == Trailing.INTRADAY:
            high = np.maximum(high, accounts.balance + self.top[session])
        elif self.trailing == Trailing.END_OF_DAY:
            high = np.maximum(high, balance)
        after = Accounts(balance, high, accounts.days + self.traded[session])
        return SessionOutcome(after, end, reached)

    def in_a_row(self, sessions: Ints) -> Accounts:
        """Return the accounts at the start of their sessions, leaves int64[..., n].

        They are new at the first one, and ended by no rule.

        sessions: int64[..., n], those of each account in a row.
        """
        result, traded = self.result[sessions], self.traded[sessions]
        after = np.cumsum(result, axis=-1)
        balance = after - result
        if self.trailing == Trailing.INTRADAY:
            marks = balance + self.top[sessions]
        elif self.trailing == Trailing.END_OF_DAY:
            marks = after
        else:
            marks = np.zeros_like(after)
        high = np.zeros_like(after)  # what a session marks counts from the next one on
        high[..., 1:] = np.maximum.accumulate(np.maximum(marks, 0), axis=-1)[..., :-1]
        return Accounts(balance, high, np.cumsum(traded, axis=-1) - traded)


def ends_in_order(challenge: Challenge, orders: Ints) -> Ints:
    """Return the EndReason of an account in each session, else NONE, as the account pass has it.

    After an end, a new account opens at the next session. The result is int64[n, N].

    orders: int64[n, N], sessions in the order in which they are traded.
    """
    accounts, ends = Accounts.new(len(orders)), np.zeros(orders.shape, np.int64)
    for i in range(orders.shape[1]):
        played = challenge.play(accounts, orders[:, i])
        ends[:, i] = played.end
        over = played.end != EndReason.NONE
        accounts = Accounts(*(np.where(over, 0, column) for column in played.after))
    return ends


class AccountFates(NamedTuple):
    """How n accounts fared, each int64[n] number of the session, from 1, or 0 if it did not happen.

    passed: the target was reached.
    bust, daily: the account ended by a floor, after the target too where the rules let it go on.
    """

    passed: Ints
    bust: Ints
    daily: Ints


def play_accounts(challenge: Challenge, orders: Ints) -> AccountFates:
    """Play one account over each row of `orders`, until it ends or the N sessions are over.

    orders: int64[n, N] sessions.
    """
    found = AccountFates(*np.zeros((3, len(orders)), np.int64))
    number, accounts = np.arange(len(orders)), Accounts.new(len(orders))
    for i in range(orders.shape[1]):
        played = challenge.play(accounts, orders[number, i])
        first = number[played.reached]
        found.passed[first[found.passed[first] == 0]] = i + 1
        found.bust[number[played.end == EndReason.BUST]] = i + 1
        found.daily[number[played.end == EndReason.DAILY_LOSS]] = i + 1
        going_on = played.end == EndReason.NONE
        number, accounts = number[going_on], played.after.where(going_on)
        if not len(number):
            break
    return found
