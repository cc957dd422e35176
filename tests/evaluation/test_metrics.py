"""Every figure against a number worked by hand."""

import numpy as np
import pytest

from jaxtrade.evaluation import metrics


@pytest.mark.parametrize(
    ("figure", "given", "expected"),
    [
        (metrics.best_session_share, [300, -100, 200], 0.75),
        (metrics.best_session_share, [300, -200], 3.0),
        (metrics.best_session_share, [0, 0], None),
        (metrics.best_session_share, [300, -400], None),
        (metrics.daily_sharpe, range(19), None),
        (metrics.daily_sharpe, [7] * 25, None),
        (metrics.daily_sharpe, [0] * 30, None),
        (metrics.daily_sharpe, [], None),
        (metrics.max_drawdown, [-5, -2, 8, 3, 6, -1, 20], 9),
        (metrics.max_drawdown, [-5, 10, 8], 5),
        (metrics.max_drawdown, [1, 2, 2], 0),
        (metrics.win_rate, [300, -100, 0, 50, -25], 0.4),
        (metrics.profit_factor, [300, -100, 0, 50, -25], 350 / 125),
        (metrics.average, [300, -100, 0, 50, -25], 45.0),
        (metrics.win_rate, [], None),
        (metrics.profit_factor, [], None),
        (metrics.average, [], None),
        (metrics.profit_factor, [5, 7], None),
        (metrics.profit_factor, [-5], 0.0),
    ],
)
def test_figures_by_hand(figure, given, expected):
    assert figure(np.array(given, np.int64)) == expected


def test_sessions_start_again_with_the_account():
    equity, account = np.array([5, 10, -20, -15, 7, 9]), np.array([0, 0, 0, 0, 1, 1])
    last = np.array([1, 3, 5])
    assert metrics.account_session_pnl(equity, account, last).tolist() == [10, -25, 9]
    assert metrics.account_session_pnl(equity, np.zeros(6, int), last).tolist() == [10, -25, 24]
    assert metrics.session_pnl(equity, last).tolist() == [10, -25, 24]


def test_daily_sharpe_by_hand():
    # Ten days of +3 and ten of -1: mean 1, sum of squares 20 * 4, standard deviation sqrt(80 / 19).
    pnl = np.array([3, -1] * 10)
    assert metrics.daily_sharpe(pnl) == pytest.approx(252**0.5 / (80 / 19) ** 0.5, rel=1e-12)


def test_max_drawdown_does_not_wrap_in_int32():
    assert metrics.max_drawdown(np.array([2**30, -(2**30)], np.int32)) == 2**31


def test_exposure_counts_bars_held_after_the_open():
    carried = np.array([0, 0, 1, 1, -1, 0])
    order_exit = np.array([0, 0, 0, 1, -1, 0])
    entry = np.array([0, 1, 0, -1, 0, 0])
    assert metrics.exposure(carried, order_exit, entry) == 3 / 6
