"""Evaluation accounts over sessions in any order: many accounts at once, in NumPy, under the rules
of `AccountParams`.

An account begins each session flat. What it has from earlier sessions is its balance b, its
high-water mark H and its days with a fill. A session's path (`challenge_paths`) then decides. With
drawdown D and freeze cap C, the floor at a pair of marks is min(max(H, b + M) - D, C), where M is
the highest mark of the session so far. The account is bust at the first pair whose low is at or
below floor - b:

    low <= min(H - D, C) - b,    or with an intraday trail    low <= M - D and low <= C - b.

Each of these is the first time at which the running minimum of a list reaches a level, so it is
found by bisection (`Ladder`), and no account has to walk through the bars.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxtrade.env.state import OFF, AccountParams, EndReason, Trailing
from jaxtrade.evaluation.challenge_paths import SessionPaths

NEVER = np.iinfo(np.int64).max
_ROOM = 1 << 40  # mills, more than any account moves; keeps the sessions of a ladder apart


class Ladder(NamedTuple):
    """The records that a value sets in each session, R in all: its highest value so far, and when
    it was reached.

    key: int64[R], session and value as one rising number. session, bar: int64[R].
    """

    key: np.ndarray
    session: np.ndarray
    bar: np.ndarray

    @classmethod
    def of(cls, session: np.ndarray, bar: np.ndarray, value: np.ndarray) -> Ladder:
        """From int64[P] by session and then by time."""
        key = running_key(session, value)
        new = np.append(True, key[1:] > key[:-1])[: len(key)]
        return cls(key[new], session[new], bar[new])

    def first(self, session: np.ndarray, level: np.ndarray) -> np.ndarray:
        """int64[n]: the first bar of each session at which the value is at or above a level, else
        NEVER.
        """
        if not len(self.key):
            return np.full(len(session), NEVER)
        at = np.searchsorted(self.key, session * 4 * _ROOM + np.clip(level, -_ROOM, _ROOM))
        found = np.minimum(at, len(self.key) - 1)
        return np.where(
            (at < len(self.key)) & (self.session[found] == session), self.bar[found], NEVER
        )


def running_key(session: np.ndarray, value: np.ndarray) -> np.ndarray:
    """int64[P]: the running maximum of `value` in each session, with the session added as a large
    multiple.
    """
    return np.maximum.accumulate(session * 4 * _ROOM + value)


class Accounts(NamedTuple):
    """n open accounts between two sessions, int64[n]: mills from the start balance, and trade dates
    with a fill.
    """

    balance: np.ndarray
    high_water: np.ndarray
    days: np.ndarray

    @classmethod
    def new(cls, count: int) -> Accounts:
        """`count` new accounts."""
        return cls(*(np.zeros(count, np.int64) for _ in cls._fields))

    def where(self, keep: np.ndarray) -> Accounts:
        """The selected accounts. keep: bool[n]."""
        return Accounts(*(column[keep] for column in self))


class Played(NamedTuple):
    """One session of n accounts. after: the accounts at its end. end: int64[n] EndReason (BUST,
    DAILY_LOSS, TARGET or NONE) by which the rules ended them. reached: bool[n], True if the
    realised profit reached the target before that.
    """

    after: Accounts
    end: np.ndarray
    reached: np.ndarray


class Challenge:
    """Sessions prepared for one set of account rules. It is built once, and then serves any number
    of accounts.
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
        self.result, self.traded = paths.result, paths.traded.astype(np.int64)
        self.daily = np.where(paths.daily_bar >= 0, paths.daily_bar, NEVER)
        top = running_key(paths.session, paths.high) - paths.session * 4 * _ROOM
        self.top = np.zeros(
            self.sessions, np.int64
        )  # a session without a position marks its opening equity alone
        np.maximum.at(self.top, paths.session, paths.high)
        self.lows = Ladder.of(paths.session, paths.bar, -paths.low)
        deep = top - paths.low >= self.drawdown
        self.deep = Ladder.of(paths.session[deep], paths.bar[deep], -paths.low[deep])
        self.flats = Ladder.of(paths.flat_session, paths.flat_bar, paths.balance)

    def play(self, accounts: Accounts, session: np.ndarray) -> Played:
        """One session of each account, int64[n]. Bars are compared within a session only."""
        bust = self._bust(accounts, session)
        target = np.full(len(session), NEVER)
        if self.target < OFF:
            enough = accounts.days + 1 >= self.min_days  # a bar of a path lies on a day with a fill
            target = np.where(
                enough, self.flats.first(session, self.target - accounts.balance), NEVER
            )
        daily = self.daily[session] if self.fails else np.full(len(session), NEVER)
        ended = target if self.stop_at_target else np.full(len(session), NEVER)
        last = np.minimum(np.minimum(bust, daily), ended)
        end = np.select(
            [last == NEVER, last == bust, last == daily],
            [EndReason.NONE, EndReason.BUST, EndReason.DAILY_LOSS],
            EndReason.TARGET,
        )
        reached = (target < NEVER) & (target < bust) & (target < daily)
        return Played(self._after(accounts, session), end, reached)

    def in_a_row(self, sessions: np.ndarray) -> Accounts:
        """The accounts at the start of their sessions, leaves int64[..., n]: new at the first one,
        and ended by no rule. sessions: int64[..., n], those of each account in a row."""
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

    def _bust(self, accounts: Accounts, session: np.ndarray) -> np.ndarray:
        """int64[n]: the bar at which the drawdown floor is reached, else NEVER."""
        if self.drawdown >= OFF:
            return np.full(len(session), NEVER)
        floor = np.minimum(accounts.high_water - self.drawdown, self.cap) - accounts.balance
        bust = self.lows.first(session, -floor)
        if self.trailing != Trailing.INTRADAY:
            return bust
        return np.minimum(bust, self.deep.first(session, accounts.balance - self.cap))

    def _after(self, accounts: Accounts, session: np.ndarray) -> Accounts:
        """The accounts at the end of the session, for those that did not end in it."""
        balance, high = accounts.balance + self.result[session], accounts.high_water
        if self.trailing == Trailing.INTRADAY:
            high = np.maximum(high, accounts.balance + self.top[session])
        elif self.trailing == Trailing.END_OF_DAY:
            high = np.maximum(high, balance)
        return Accounts(balance, high, accounts.days + self.traded[session])


def ends_in_order(challenge: Challenge, orders: np.ndarray) -> np.ndarray:
    """int64[n, N] EndReason by which an account ended in each session, else NONE, as the account
    pass has them.

    orders: int64[n, N], sessions in the order in which they are traded. After an end, a new account
        opens at the next
    session.
    """
    accounts, ends = Accounts.new(len(orders)), np.zeros(orders.shape, np.int64)
    for i in range(orders.shape[1]):
        played = challenge.play(accounts, orders[:, i])
        ends[:, i] = played.end
        over = played.end != EndReason.NONE
        accounts = Accounts(*(np.where(over, 0, column) for column in played.after))
    return ends


class Lives(NamedTuple):
    """How n accounts fared, each int64[n] number of the session, from 1, or 0 if it did not happen.

    passed: the target was reached. bust, daily: the account ended by a floor, after the target too
        where the rules let
    it go on.
    """

    passed: np.ndarray
    bust: np.ndarray
    daily: np.ndarray


def lives(challenge: Challenge, orders: np.ndarray) -> Lives:
    """One account over each row of `orders`, int64[n, N] sessions: until it ends, or the N sessions
    are over.
    """
    found = Lives(*(np.zeros(len(orders), np.int64) for _ in Lives._fields))
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
