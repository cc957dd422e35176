"""Symbols taken together, by hand: marks at different times, sessions on different dates."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.evaluation.result import by_date, pool_results, total_equity, trade_dates


def evaluated(times, dates, *agents):
    """As much of an evaluation as is read: bars of 60 seconds, decisions at all bars but the last
    of `times`.
    """
    clock = SimpleNamespace(time=np.array(times), bar_seconds=60)
    decisions = SimpleNamespace(
        rows=np.arange(len(times) - 1), date=np.array(dates, "datetime64[D]")
    )
    return SimpleNamespace(
        clock=clock, decisions=decisions, agents=[SimpleNamespace(name=name) for name in agents]
    )


def test_between_its_marks_a_symbol_keeps_the_latest_one():
    one, other = evaluated([0, 60, 120, 300], []), evaluated([0, 120, 180], [])
    # Marks at closes: the first symbol at 120, 180, 360, the other at 180, 240.
    total = total_equity([one, other], [np.array([5, -3, 7]), np.array([10, 20])])
    np.testing.assert_array_equal(total, [5, -3 + 10, -3 + 20, 7 + 20])


def test_profit_by_date_is_over_all_symbols_that_traded_then():
    one, other = (
        evaluated([0], ["2024-01-02", "2024-01-04"]),
        evaluated([0], ["2024-01-03", "2024-01-04"]),
    )
    assert trade_dates([one, other]).astype(str).tolist() == [
        "2024-01-02",
        "2024-01-03",
        "2024-01-04",
    ]
    np.testing.assert_array_equal(
        by_date([one, other], [np.array([1, 2]), np.array([30, 40])]), [1, 30, 42]
    )


def test_symbols_with_other_agents_are_not_pooled():
    with pytest.raises(ValueError, match="evaluated with different agents"):
        pool_results([evaluated([0], [], "greedy", "flat"), evaluated([0], [], "flat", "greedy")])
