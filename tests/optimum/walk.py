"""The exact optimum of `entry` and `manage` on the walk of one tick a bar (trend, martingale), by
dynamic programming.

As `tests.optimum.dp`, but the walk has no levels: a position is written relative to the last close,
so that the same few positions come up again wherever the price is. State: (bars left, position). A
bar goes one tick up with probability (1 + drift) / 2, else one tick down, and every question about
a bar is asked of the oracle.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tests.optimum.dp import FLAT, IMPOSSIBLE, Key, Stepper
from tests.optimum.learner import planned

BASE = 10_000  # the close from which a bar is computed
MOVES = (-1, 1)


class OneStep(Stepper):
    """The oracle at the close `BASE`, with any position, for one bar down or up."""

    def __init__(self, settings):
        rows = []
        for move in MOVES:
            ends = (BASE, BASE + move)
            rows += [(BASE,) * 4, (BASE, max(ends), min(ends), BASE + move)]
        super().__init__(rows, settings, 1)

    def mask(self, key, bars_left):
        self.put(0, BASE, key, bars_left)
        return self.env.mask()

    def after(self, move, key, bars_left, action):
        """The position after the bar is relative to its close."""
        self.put(2 * move, BASE, key, bars_left)
        return self.stepped(action, BASE + MOVES[move])


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


def optimal_walker(env, solved):
    """The optimum as an agent of the evaluator."""

    def seen(carry, state, params, left):
        """The best actions of all positions, and what their prices are relative to."""
        return carry[left], params.market.close[state.row]

    return planned(env, seen, jnp.asarray(solved.action), solved.keys)


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
