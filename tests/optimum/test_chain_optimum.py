"""The chain is what it claims to be, and the optimum is what the environment pays to whoever plays
it.
"""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.data.synthetic import (
    GAPS,
    LEVELS,
    RANGE,
    REVERSION_PULL,
    bar_between,
    level_of,
    transitions,
)
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.baselines import buy_and_hold, random_masked
from tests.optimum.dp import FLAT, OneBar, edges, solve
from tests.optimum.learner import (
    chain_config,
    fresh,
    optimal,
    optimum_of,
    profits,
    sessions_of,
    settings,
)


@pytest.mark.parametrize("pull", [1.0, 0.4])
@pytest.mark.parametrize("bars", [1, 2, 4, 8])
def test_the_chain_reverts_to_its_anchor(pull, bars):
    matrix = transitions(pull)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    share = np.linalg.matrix_power((matrix + np.eye(len(matrix))) / 2, 1 << 12)[
        0
    ]  # lazy: the chain has period 2
    price = LEVELS[level_of(np.arange(len(matrix)))]
    expected = share * (np.linalg.matrix_power(matrix, bars) @ price - price)
    by_level = expected.reshape(-1, 2).sum(axis=1)
    middle = len(LEVELS) // 2
    assert (by_level[:middle] > 0).all()
    assert (by_level[middle:] < 0).all()


def test_the_last_move_tells_the_state():
    seen = {}
    for _, state, _ in edges(REVERSION_PULL):
        level, up = divmod(state, 2)
        step = int(LEVELS[level] - LEVELS[level - (1 if up else -1)])
        assert (
            seen.setdefault(step, state) == state
        )  # no other state is reached by a move of this size
    assert len(seen) == 2 * len(GAPS)


def test_true_ranges_are_constant():
    for i, j, _ in edges(REVERSION_PULL):
        open_, high, low, close = bar_between(level_of(i), level_of(j))
        assert high - low == RANGE
        assert low <= min(open_, close) <= max(open_, close) <= high
    sums = np.asarray(fresh(chain_config("entry")).market.data.tr_sum)
    assert set(sums[14:]) == {14 * RANGE}


def _best(bar, moves, state, key, left):
    """The value by trying everything: no table, no induction."""
    if left == 0:
        return 0.0
    mine = [move for move in moves if move[0] == state]
    values = []
    for action in np.flatnonzero(bar.mask(mine[0][:2], key, left)).tolist():
        total = 0.0
        for i, j, chance in mine:
            after, cash = bar.after((i, j), key, left, action)
            total += chance * (cash + _best(bar, moves, j, after, left - 1))
        values.append(total)
    return max(values)


@pytest.mark.parametrize("task", ["entry", "manage"])
def test_backward_induction_equals_trying_everything(task):
    moves, chosen = edges(REVERSION_PULL), settings(task)
    bar, solved = OneBar(moves, chosen), solve(chosen, REVERSION_PULL, 4)
    assert solved.positions[0] == FLAT
    for left in (1, 2, 4):
        for state in (0, 5, 8, 11):
            assert solved.value[left, state, 0] == pytest.approx(
                _best(bar, moves, state, FLAT, left), abs=1e-6
            )


@pytest.mark.slow
def test_the_environment_pays_the_optimum():
    setup = fresh(
        chain_config("manage", "env.features=[close]", "env.window=1")
    )  # none of these agents looks at it
    sessions = sessions_of(setup)
    solved, expected = optimum_of("manage", sessions)
    made = profits(setup.env, optimal(setup, solved), setup.params, sessions)
    error = (made - expected).std() / np.sqrt(len(made))
    assert abs((made - expected).mean()) < 2.58 * error
    assert error < 0.03 * expected.mean()
    for agent in (random_masked(setup.env), buy_and_hold(setup.env)):
        other = profits(setup.env, agent, setup.params, sessions)
        assert (made - other).mean() > 10 * (made - other).std() / np.sqrt(len(made))


def test_costs_are_in_the_value():
    values = [
        solve(replace(settings("entry"), slippage=slip), REVERSION_PULL, 449).value[449, 1, 0]
        for slip in (1, 2)
    ]
    assert 0.9 * values[0] < values[1] < 0.997 * values[0]


def test_a_wrong_pull_is_refused():
    with pytest.raises(ConfigError, match=r"data\.synthetic_pull = 0"):
        transitions(0)
