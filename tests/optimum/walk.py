"""The exact optimum of `entry` and `manage` on the walk of one tick a bar (trend, martingale), by
dynamic programming.

As `tests.optimum.dp`, but the walk has no levels: a position is written relative to the last close,
so that the same few positions come up again wherever the price is. State: (bars left, position). A
bar goes one tick up with probability (1 + drift) / 2, else one tick down, and every question about
a bar is asked of the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.evaluation.baselines import Agent
from tests.optimum.dp import FLAT, IMPOSSIBLE, Key
from tests.oracle.model import Account, Bars, Position, Session, Stats
from tests.oracle.oracle import OracleEnv

BASE = 10_000  # the close from which a bar is computed
MOVES = (-1, 1)


class OneStep:
    """The oracle at the close `BASE`, with any position, for one bar down or up."""

    def __init__(self, settings):
        rows = [
            row
            for move in MOVES
            for row in (
                (BASE,) * 4,
                (BASE, max(BASE, BASE + move), min(BASE, BASE + move), BASE + move),
            )
        ]
        count = len(rows)
        prices = np.array(rows).T.tolist()
        bars = Bars(
            *prices,
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
        self.env.tr_sum = [14] * count  # every true range is one tick

    def place(self, move, key, bars_left):
        """Before the bar `move` (0 or 1), holding `key`; `bars_left` 1 means that this bar is the
        flat bar.
        """
        env, row = self.env, 2 * move
        env.reset(0, row)
        side, entry, stop, target, trailing = key
        if side:
            env.position = Position(
                side, BASE + entry, BASE + stop, BASE + target, trailing=trailing
            )
        env.account, env.stats = Account(), Stats()
        closes, count = 60 * (row + 1), len(env.bars.close)
        env.bars = replace(
            env.bars,
            sessions=[Session(0, count, row, row if bars_left == 1 else 10**6)],
            flat_time=[closes + 60 * bars_left] * count,
        )

    def mask(self, key, bars_left):
        self.place(0, key, bars_left)
        return self.env.mask()

    def after(self, move, key, bars_left, action):
        """-> (position after the bar, relative to its close; cash in mills that the bar
        brought).
        """
        self.place(move, key, bars_left)
        self.env.step(action)
        position, close = self.env.position, BASE + MOVES[move]
        if not position.quantity:
            return FLAT, self.env.account.balance
        assert position.stop is not None
        assert position.target is not None
        return (
            position.side,
            position.entry - close,
            position.stop - close,
            position.target - close,
            position.trailing,
        ), self.env.account.balance


def _reachable(bar):
    found, todo = [FLAT], [FLAT]
    while todo:
        key = todo.pop()
        for action in np.flatnonzero(bar.mask(key, 9)).tolist():
            for move in range(len(MOVES)):
                following, _ = bar.after(move, key, 9, action)
                if following not in found:
                    found.append(following)
                    todo.append(following)
    return found


class Solved(NamedTuple):
    """keys: the P positions, the flat one first. value: float64[M + 1, P] mills expected with m
    bars left. action: int8[M + 1, P], the best one."""

    keys: list[Key]
    value: np.ndarray
    action: np.ndarray


def solve_walk(settings, drift, bars):
    """Backward induction from the flat bar over `bars` decisions."""
    bar = OneStep(settings)
    keys = _reachable(bar)
    index = {key: k for k, key in enumerate(keys)}
    chance = np.array([(1 - drift) / 2, (1 + drift) / 2])
    tables = {left: _table(bar, keys, index, settings.num_actions, left) for left in (1, 9)}
    value = np.zeros((bars + 1, len(keys)))
    action = np.zeros(value.shape, np.int8)
    for left in range(1, bars + 1):
        following, cash, legal = tables[1 if left == 1 else 9]
        expected = (cash + value[left - 1][following]).transpose(0, 2, 1) @ chance  # [A, P]
        expected = np.where(legal, expected, IMPOSSIBLE)
        action[left], value[left] = expected.argmax(axis=0), expected.max(axis=0)
    return Solved(keys, value, action)


@dataclass(frozen=True)
class WalkAct:
    """The solved policy, by table look-up. Carry: action int8[M + 1, P], positions int32[P, 5]."""

    env: TradingEnv

    def __call__(self, carry, state, ref, params, key):
        del ref, key
        actions, positions = carry
        p, session, close = (
            state.position,
            params.sessions.ids[state.slot],
            params.market.close[state.row],
        )
        held = jnp.stack(
            [p.quantity, p.entry - close, p.stop - close, p.target - close, p.trailing]
        )
        same = (positions == jnp.where(p.quantity != 0, held, 0)).all(axis=1)
        left = params.market.sessions.last[session] - state.row + 1
        action = jnp.where(same.any(), actions[left, jnp.argmax(same)], -1).astype(jnp.int32)
        order = self.env.decode(jnp.maximum(action, 0), state, params)
        # a position that the enumeration does not know: money that no assertion can overlook
        unknown = (action < 0) | ~self.env.mask(state, params)[jnp.maximum(action, 0)]
        return carry, order.replace(quantity=jnp.where(unknown, 10**6, order.quantity)), action


def optimal_walker(env, solved):
    """The optimum as an agent of the evaluator."""
    carry = (
        jnp.asarray(solved.action),
        jnp.asarray([[int(x) for x in key] for key in solved.keys], jnp.int32),
    )
    return Agent("optimum", WalkAct(env), carry, "exact dynamic programming")


def _table(bar, keys, index, actions, left):
    """(next position int[A, moves, P], cash float64[A, moves, P], legal bool[A, P])."""
    following, cash = (
        np.zeros((actions, len(MOVES), len(keys)), int),
        np.zeros((actions, len(MOVES), len(keys))),
    )
    legal = np.zeros((actions, len(keys)), bool)
    for k, key in enumerate(keys):
        legal[:, k] = bar.mask(key, left)
        for action in np.flatnonzero(legal[:, k]).tolist():
            for move in range(len(MOVES)):
                after, cash[action, move, k] = bar.after(move, key, left, action)
                following[action, move, k] = index[after]
    return following, cash, legal
