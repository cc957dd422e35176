"""The best policy on the mean-reverting chain (`data.synthetic`), and exactly what it makes.

It is found by dynamic programming over (bars left, state of the chain, position).

It is known for the task `manage` with account rules off, if no stop, target or trail of the
brackets can be met: a position is then its side, the level at which it was opened, and whether its
stop stands at break-even.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.data.synthetic import (
    CHAINS,
    LEVELS,
    RANGE,
    bar_between,
    chain_pull,
    level_of,
    transitions,
)
from jaxtrade.env.actions import Action
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.record import DecisionBars

ACTIONS = (
    Action.HOLD,
    Action.BUY,
    Action.SELL,
    Action.MOVE_STOP_TO_BREAKEVEN,
    Action.CLOSE,
)  # a trail that is never met changes nothing
IMPOSSIBLE = -1e18


class Costs(NamedTuple):
    """What a trade of one contract costs, and where its break-even stop stands.

    commission, tick: mills. slippage, breakeven: ticks.
    """

    commission: int
    tick: int
    slippage: int
    breakeven: int


class Holding(NamedTuple):
    """A position.

    side: 1, -1, or 0 for none. level: at which it was opened. moved: whether its stop stands at
    break-even.
    """

    side: int
    level: int
    moved: bool


FLAT = Holding(0, 0, False)
POSITIONS = (
    FLAT,
    *(Holding(s, k, m) for s in (1, -1) for k in range(len(LEVELS)) for m in (False, True)),
)
PLACE = {position: place for place, position in enumerate(POSITIONS)}


def _net(held: Holding, price: int, costs: Costs) -> int:
    """Mills that come in when a position leaves at a fill price: its gain less one commission."""
    entry = int(LEVELS[held.level]) + held.side * costs.slippage
    return held.side * (price - entry) * costs.tick - costs.commission


def _stop(held: Holding, costs: Costs) -> int:
    return int(LEVELS[held.level]) + held.side * (costs.slippage + costs.breakeven)


def _bar(
    held: Holding, action: Action, before: int, after: int, last: bool, costs: Costs
) -> tuple[Holding, int] | None:
    """Return the position after a bar between two levels, and the mills that it brought.

    None if the action is illegal. last: whether the bar is the flat bar, at whose close every
    position leaves.
    """
    open_, high, low, close = bar_between(np.array(before), np.array(after)).tolist()
    side, cash = held.side, 0
    if action in (Action.BUY, Action.SELL):
        if side or last:
            return None
        held, cash = Holding(1 if action == Action.BUY else -1, before, False), -costs.commission
    elif action == Action.CLOSE:
        if not side:
            return None
        return FLAT, _net(held, open_ - side * costs.slippage, costs)
    elif action == Action.MOVE_STOP_TO_BREAKEVEN:
        if not side or held.moved or side * (open_ - _stop(held, costs)) < 1:
            return None
        held = held._replace(moved=True)
    side, stop = held.side, _stop(held, costs)
    if held.moved and side * ((low if side > 0 else high) - stop) <= 0:
        return FLAT, cash + _net(held, stop - side * costs.slippage, costs)
    if last and side:
        return FLAT, cash + _net(held, close - side * costs.slippage, costs)
    return held, cash


@dataclass(frozen=True)
class _Outcomes:
    """What every action does in every position on every move of the chain, of one kind of bar.

    after: int64[A, P, M] positions; cash: int64[A, P, M] mills; legal: bool[A, P, M].
    """

    after: np.ndarray
    cash: np.ndarray
    legal: np.ndarray


def _bars(moves: np.ndarray, last: bool, costs: Costs) -> _Outcomes:
    shape = (len(ACTIONS), len(POSITIONS), len(moves))
    after, cash, legal = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, bool)
    levels = level_of(moves).tolist()
    for a, action in enumerate(ACTIONS):
        for p, held in enumerate(POSITIONS):
            for m, (before, following) in enumerate(levels):
                if found := _bar(held, action, before, following, last, costs):
                    after[a, p, m], cash[a, p, m] = PLACE[found[0]], found[1]
                    legal[a, p, m] = True
    return _Outcomes(after, cash, legal)


@dataclass(frozen=True)
class Solution:
    """The best policy and its value.

    value: float64[B + 1, K, P], mills that the best policy expects with so many bars left, by state
    of the chain and position (`POSITIONS`). action: int64[B + 1, K, P], its action as a place in
    `ACTIONS`.
    """

    value: np.ndarray
    action: np.ndarray
    moves: np.ndarray
    inner: _Outcomes
    final: _Outcomes


def solve(pull: float, bars: int, costs: Costs) -> Solution:
    """Solve the chain for sessions of up to `bars` decisions, by backward induction."""
    matrix = transitions(pull)
    moves = np.argwhere(matrix > 0)
    chance = np.zeros((len(moves), len(matrix)))  # of each move, in the state where it begins
    chance[np.arange(len(moves)), moves[:, 0]] = matrix[moves[:, 0], moves[:, 1]]
    value = np.zeros((bars + 1, len(matrix), len(POSITIONS)))
    action = np.zeros(value.shape, int)
    inner, final = (_bars(moves, last, costs) for last in (False, True))
    for left in range(1, bars + 1):
        table = final if left == 1 else inner
        outcome = table.cash + value[left - 1][moves[:, 1], table.after]
        expected = np.where(table.legal, outcome, IMPOSSIBLE) @ chance
        action[left] = expected.argmax(axis=0).T
        value[left] = expected.max(axis=0).T
    return Solution(value, action, moves, inner, final)


def play(solution: Solution, states: np.ndarray) -> int:
    """Return the mills that the best policy makes in one session.

    states: int64[B + 1] of the chain, at each decision and at the close of the flat bar.
    """
    move_of = {(i, j): m for m, (i, j) in enumerate(solution.moves.tolist())}
    place = total = 0
    moves = list(pairwise(states.tolist()))
    for left, move in zip(range(len(moves), 0, -1), moves, strict=True):
        m = move_of[move]
        table = solution.final if left == 1 else solution.inner
        a = solution.action[left, move[0], place]
        total += int(table.cash[a, place, m])
        place = int(table.after[a, place, m])
    return total


def is_known(config: RunConfig, market: Market) -> bool:
    """Return whether the best policy of a market is known: see the head of this module."""
    data, env, brackets = config.data, config.env, config.brackets
    nearest = min(
        brackets.stop_thousandths * min(1, brackets.target_multiple), brackets.trail_thousandths
    )
    return (
        data.source == "synthetic"
        and data.synthetic in CHAINS
        and (env.task, env.actions, env.fill) == ("manage", "full", "next_open")
        and nearest * RANGE >= 1000 * (int(LEVELS[-1]) + 2 * RANGE)
        and market.contract.currency == ACCOUNT
        and not config.shared.on
    )


def best_profit(
    config: RunConfig, market: Market, params: EnvParams, decisions: DecisionBars
) -> float | None:
    """Return the dollars of the best policy on these decision bars with account rules off.

    None where it is not known (`is_known`).
    """
    if not is_known(config, market):
        return None
    contract, quantity = params.contract, config.env.quantity
    costs = Costs(
        int(contract.commission),
        market.contract.tick_mills,
        int(contract.slippage),
        int(contract.be_ticks),
    )
    states = states_of(market.bars.open, market.bars.close)
    if states is None:
        return None
    solution = solve(chain_pull(config.data), decisions.own_steps.longest, costs)
    first = np.append(0, decisions.last[:-1] + 1)
    rows = zip(decisions.rows[first], decisions.rows[decisions.last], strict=True)
    profit = quantity * sum(play(solution, states[a : b + 2]) for a, b in rows) / 1000
    return profit if profit > 0 else None  # there is no share of nothing


def states_of(opened: np.ndarray, close: np.ndarray) -> np.ndarray | None:
    """Return the state of the chain at the close of each bar (int64[T]); None for other bars.

    No two moves are alike, so each tells its state.
    """
    gaps = np.diff(LEVELS)
    moves = np.concatenate([gaps, -gaps])
    states = np.concatenate([2 * np.arange(len(gaps)) + 3, 2 * np.arange(len(gaps))])
    order = np.argsort(moves)
    made = close.astype(np.int64) - opened
    if not np.isin(made, moves).all():
        return None
    return states[order][np.searchsorted(moves[order], made)]


def share_of(profit: float, best: float | None) -> dict[str, float]:
    """Return the metric `optimum_share`: a profit over that of the best policy; none if unknown."""
    return {} if best is None else {"optimum_share": profit / best}
