"""The record of an evaluation: one row per decision bar, the bars themselves, and its checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from flax import struct

from jaxtrade.env.state import OFF, AccountParams, EndReason, Trailing
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import money
from jaxtrade.types import MarketData, SessionSet

MONEY_LIMIT = OFF // 2  # beyond this |equity| one more bar could overflow int32
Leaf = Any  # jax.Array inside the scan, np.ndarray on the host
Pass = Literal["account", "strategy"]
PASSES: tuple[Pass, ...] = ("strategy", "account")


class Record(struct.PyTreeNode):
    """One row per decision bar, L in all.

    The decision is at the close of bar `row`; its effects happen in `row + 1`.

    row: int32[L] market row.
    ref: reference of the observation at the decision, ObservationRef with leaves [L, ...].
    action: int32[L] id of the action, or NO_ACTION.
    legal: bool[L] True if the mask allowed the action, and calendar and account permitted
        the order.
    carried, quantity: int32[L] position before and after bar `row + 1`, in contracts.
    stop: int32[L] its stop after it.
    event: Event with leaves [L].
    equity, high_water: mills after the bar; int32[L] in the scan, int64[L] on the host.
        `high_water` is the level that the drawdown floor follows, by the account's `Trailing`. A
        mark at the end of a session appears from the next session on.
    account: int32[L] number of the account, from 0.
    active: bool[L] True if it was still open when the bar began.
    end: int32[L] EndReason if the account ended in this bar, else NONE.
    target: bool[L] True if the realised profit has reached the target.
    reward: float32[L] as in training, 0 where not active. None (static) if it was not requested.
    target_level: int32[L] the position's target after bar `row + 1`, as `Position.target`.
    """

    row: Leaf
    ref: Any  # ObservationRef
    action: Leaf
    legal: Leaf
    carried: Leaf
    quantity: Leaf
    stop: Leaf
    event: Any  # Event
    equity: Leaf
    high_water: Leaf
    account: Leaf
    active: Leaf
    end: Leaf
    target: Leaf
    reward: Leaf = None
    target_level: Leaf = None

    @property
    def mask(self) -> Leaf:
        """bool[L, A] legal actions at each decision."""
        return self.ref.mask


class EvaluationSteps(NamedTuple):
    """What the programs of an evaluation step.

    bars: over all sessions.
    longest: bars of the longest session.
    sessions: their number.
    """

    bars: int
    longest: int
    sessions: int


@dataclass(frozen=True)
class DecisionBars:
    """The L decision bars of a set of n sessions, on the host.

    rows: int64[L] market rows in time order.
    session: int64[L] number of each bar's session in the set, 0..n-1.
    ids: int64[n] rows of the session table.
    date: datetime64[D][n] trade dates.
    steps: what the compiled programs step, as much as these sessions have or more; what they do
        beyond is left out of the record. None: as much.
    """

    rows: np.ndarray
    session: np.ndarray
    ids: np.ndarray
    date: np.ndarray
    steps: EvaluationSteps | None = None

    @property
    def own_steps(self) -> EvaluationSteps:
        """What these sessions have."""
        return EvaluationSteps(len(self.rows), int(np.bincount(self.session).max()), len(self.ids))

    @property
    def length(self) -> int:
        """The number of bars that a program steps through all sessions."""
        return (self.steps or self.own_steps).bars

    @property
    def longest(self) -> int:
        """The number of bars that a program steps in each session."""
        return (self.steps or self.own_steps).longest

    @property
    def num_sessions(self) -> int:
        """The number of sessions that a program steps side by side."""
        return (self.steps or self.own_steps).sessions

    @property
    def last(self) -> np.ndarray:
        """int64[n] index (0..L-1) of the last decision bar of each session."""
        return np.append(np.flatnonzero(np.diff(self.session)), len(self.rows) - 1)


def decision_bars(
    market: MarketData, sessions: SessionSet, steps: EvaluationSteps | None = None
) -> DecisionBars:
    """List every decision bar of `sessions`.

    Raises DataError if the set is empty, repeats a session or is out of order.

    steps: see `DecisionBars`. The symbols of a set have the same number, so that one program serves
        them all.
    """
    ids = np.asarray(sessions.ids, np.int64)[: int(sessions.count)]
    if not len(ids):
        raise DataError(
            "evaluation: the session set is empty; hold out at least one session "
            "(split.test_sessions or split.validation_sessions)"
        )
    first = np.asarray(market.sessions.first, np.int64)[ids]
    last = np.asarray(market.sessions.last, np.int64)[ids]
    if np.any(first[1:] <= last[:-1]):
        raise DataError("evaluation: sessions must be in time order and must not repeat")
    rows = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
    days = np.asarray(market.sessions.date, np.int64)[ids]
    bars = last - first + 1
    number = np.repeat(np.arange(len(ids)), bars)
    found = DecisionBars(rows, number, ids, days.astype("datetime64[D]"), steps)
    own = found.own_steps
    if steps and own != tuple(map(min, own, steps)):
        raise DataError(f"evaluation: {steps} are too few for {own}; give as many")
    return found


def longest(of: Sequence[DecisionBars]) -> EvaluationSteps:
    """Return the steps of programs that serve several sets of sessions."""
    return EvaluationSteps(
        max(each.length for each in of),
        max(each.longest for each in of),
        max(each.num_sessions for each in of),
    )


def without_rules(account: AccountParams) -> AccountParams:
    """Return the account rules of the STRATEGY pass: drawdown, daily loss and target off.

    The contract cap and the reward unit stay. The high-water mark follows live equity.
    """
    off, no = np.int32(OFF), np.bool_(False)
    return account.replace(
        drawdown=off,
        daily_loss=off,
        target=off,
        floor_cap=off,
        min_days=np.int32(0),
        stop_at_target=no,
        fail_on_daily_loss=no,
        trailing=np.int32(Trailing.INTRADAY),
    )


def check_record(record: Record, name: str, decisions: DecisionBars, renew: bool) -> Record:
    """Check the invariants of a record, and return it with its money in int64.

    Raises as `backtest`.
    """
    if not np.array_equal(record.row, decisions.rows):
        missed = len(np.setdiff1d(decisions.rows, record.row))
        raise RuntimeError(
            f"{name}: {missed} of {len(decisions.rows)} decision bars not visited in order"
        )
    if np.any(record.quantity[record.end != EndReason.NONE]) or np.any(
        record.quantity[decisions.last]
    ):
        raise RuntimeError(f"{name}: a position outlived its account or its session's flat bar")
    record = record.replace(
        equity=record.equity.astype(np.int64), high_water=record.high_water.astype(np.int64)
    )
    large = np.flatnonzero(np.abs(record.equity) >= MONEY_LIMIT)
    if len(large):
        date = decisions.date[decisions.session[large[0]]]
        moved = record.equity[large[0]] / 1000
        raise ConfigError(
            f"evaluation of '{name}': an account's equity moved by {money(moved, 0)} by {date}, near the "
            f"int32 limit of mills (${MONEY_LIMIT // 1000:,}); evaluate fewer sessions at a time or "
            "lower env.quantity"
        )
    return _added_up(record, decisions) if renew else record


def _added_up(record: Record, decisions: DecisionBars) -> Record:
    """Turn money counted per session into running totals over the sessions of each account."""
    number, change = record.account[decisions.last], record.equity[decisions.last]
    before = np.cumsum(change) - change
    offset = (before - before[np.searchsorted(number, number)])[decisions.session]
    high_water = record.high_water + offset
    for account in np.unique(number):
        rows = record.account == account
        high_water[rows] = np.maximum.accumulate(high_water[rows])
    return record.replace(equity=record.equity + offset, high_water=high_water)
