"""G5. The earlier project printed a Sharpe ratio of -2.4e15. Here a figure that is not defined is
None, never a number.
"""

import numpy as np

from jaxtrade.evaluation import metrics


def test_without_variance_or_trades_nothing_is_divided():
    """The functions of both engines' reports."""
    nothing, same = np.zeros(30, np.int64), np.full(30, 5_000)
    none = np.zeros(0, np.int64)
    assert metrics.daily_sharpe(nothing) is None
    assert metrics.daily_sharpe(same) is None
    assert metrics.daily_sharpe(np.arange(5)) is None  # too few sessions
    assert (metrics.win_rate(none), metrics.profit_factor(none), metrics.average(none)) == (
        None,
        None,
        None,
    )
    assert metrics.profit_factor(np.array([5, 7])) is None  # no loss
    assert metrics.best_session_share(nothing) is None
    assert metrics.max_drawdown(nothing) == 0
