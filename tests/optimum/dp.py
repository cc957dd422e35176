"""The exact optimum of `entry` and `manage` on the mean-reverting chain, by dynamic programming in
NumPy.

State: (bars left, state of the chain, position); a position is (side, entry fill, stop, target,
    trailing), in ticks
above the lowest level. A bar is a function of the two levels it joins and the true range is
constant, so the set of positions is finite; it is enumerated from the flat one. What one bar does
to a position, masks, fills and costs included, is asked of the oracle (`tests.oracle`), a second
implementation of the trading rules that shares no code with the environment. The reward is the
change of equity, every session ends flat, and account rules are off: the value of a state is the
expected money still to be made, undiscounted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jaxtrade.data.synthetic import RANGE, bar_between, level_of, transitions
from tests.oracle.model import BUY, SELL, Account, Bars, Position, Session, Stats
from tests.oracle.oracle import OracleEnv

FLAT = (0, 0, 0, 0, False)
Key = tuple[int, int, int, int, bool]  # side, entry, stop, target, trailing
Row = tuple[Key, tuple[int, int], int, Key, int]
IMPOSSIBLE = -1e18


def edges(pull):
    """(state, next state, probability) of every possible move of the chain."""
    matrix = transitions(pull)
    return [(i, j, float(matrix[i, j])) for i, j in np.argwhere(matrix > 0).tolist()]


class Stepper:
    """The oracle before one bar, with any position. rows: open, high, low, close of pairs of bars,
    of which the first only gives the last close.
    """

    def __init__(self, rows, settings, true_range):
        count = len(rows)
        bars = Bars(
            *np.array(rows).T.tolist(),
            volume=[1.0] * count,
            stamps=[60 * k for k in range(count)],
            bar_seconds=60,
            window_open=[0] * count,
            flat_time=[10**9] * count,
            window_minutes=449,
            trade_date=[0] * count,
            sessions=[Session(0, count, 0, count)],
        )
        self.env = OracleEnv(bars, settings)
        self.env.tr_sum = [14 * true_range] * count

    def put(self, row, base, key, bars_left):
        """At the close of a row, holding a position whose prices are above `base`; `bars_left` 1
        means that the next bar is the flat bar.
        """
        env, count = self.env, len(self.env.bars.close)
        env.reset(0, row)
        side, *prices, trailing = key
        if side:
            env.position = Position(side, *(base + price for price in prices), trailing=trailing)
        env.account, env.stats = Account(), Stats()
        env.bars = replace(
            env.bars,
            sessions=[Session(0, count, row, row if bars_left == 1 else 10**6)],
            flat_time=[60 * (row + 1 + bars_left)] * count,
        )

    def stepped(self, action, base):
        """-> (position after the bar above `base`, cash in mills that the bar brought)."""
        self.env.step(action)
        held, balance = self.env.position, self.env.account.balance
        if not held.quantity:
            return FLAT, balance
        prices = (price - base for price in (held.entry, held.stop, held.target))
        return (held.side, *prices, held.trailing), balance


class OneBar(Stepper):
    """The oracle at any state of the chain, with any position, for one bar to any next state."""

    def __init__(self, moves, settings):
        rows = []
        for i, j, _ in moves:
            before, after = level_of(i), level_of(j)
            rows += [bar_between(before, before), bar_between(before, after)]
        super().__init__(rows, settings, RANGE)
        self.row = {(i, j): 2 * k for k, (i, j, _) in enumerate(moves)}

    def mask(self, move, key, bars_left):
        self.put(self.row[move], 0, key, bars_left)
        return self.env.mask()

    def after(self, move, key, bars_left, action):
        self.put(self.row[move], 0, key, bars_left)
        return self.stepped(action, 0)


@dataclass(frozen=True)
class Optimum:
    """value: float64[M + 1, K, P] mills expected with m bars left. action: int8[M + 1, K, P], the
    best one.

    positions: the P keys, the flat one first. M bars left at the first decision of a full session.
    """

    positions: list[Key]
    value: np.ndarray
    action: np.ndarray


def _enumerate(bar, moves):
    """(position, move, action, next position, cash) of every legal action of every reachable
    position.
    """
    todo = [(state, FLAT) for state in sorted({i for i, _, _ in moves})]
    seen = set(todo)
    while todo:
        state, key = todo.pop()
        for i, j, _ in moves:
            if i != state:
                continue
            for action in np.flatnonzero(bar.mask((i, j), key, 9)).tolist():
                following, cash = bar.after((i, j), key, 9, action)
                yield key, (i, j), action, following, cash
                if (j, following) not in seen:
                    seen.add((j, following))
                    todo.append((j, following))


def solve(settings, pull, bars):
    """Backward induction from the flat bar over `bars` decisions."""
    moves = edges(pull)
    bar = OneBar(moves, settings)
    found = list(_enumerate(bar, moves))
    positions = [FLAT, *sorted({key for row in found for key in (row[0], row[3])} - {FLAT})]
    index = {key: k for k, key in enumerate(positions)}
    shape = (settings.num_actions, len(positions), len(moves))
    following, cash = np.zeros(shape, int), np.zeros(shape)
    states = len(transitions(pull))
    legal = np.zeros((settings.num_actions, states, len(positions)), bool)
    edge_of = {(i, j): k for k, (i, j, _) in enumerate(moves)}
    for key, move, action, after, money in found:
        following[action, index[key], edge_of[move]] = index[after]
        cash[action, index[key], edge_of[move]] = money
        legal[action, move[0], index[key]] = True
    start, end, chance = (np.array(column) for column in zip(*moves, strict=True))
    origin = np.zeros((len(moves), states))
    origin[np.arange(len(moves)), start] = chance

    value = np.zeros((bars + 1, states, len(positions)))
    best = np.zeros(value.shape, np.int8)
    forced, may = _last_bar(bar, found, index, edge_of, shape, legal)
    for left in range(1, bars + 1):
        if left == 1:
            outcome, allowed = forced, may
        else:
            outcome, allowed = cash + value[left - 1][end[None, None, :], following], legal
        expected = np.where(allowed, (outcome @ origin).transpose(0, 2, 1), IMPOSSIBLE)  # [A, K, P]
        best[left] = expected.argmax(axis=0)
        value[left] = np.where(
            allowed.any(axis=0), expected.max(axis=0), 0.0
        )  # unreachable pairs stay 0
    return Optimum(positions, value, best)


def _last_bar(bar, found, index, edge_of, shape, legal):
    """Cash of the flat bar, where every position leaves, and what may be done before it (opening
    may not).
    """
    cash, may = np.zeros(shape), legal.copy()
    for key, move, action, _, _ in found:
        if not bar.mask(move, key, 1)[action]:
            may[action, move[0], index[key]] = False
            continue
        after, money = bar.after(move, key, 1, action)
        assert after == FLAT
        cash[action, index[key], edge_of[move]] = money
    assert not may[[BUY, SELL]].any()
    return cash, may
