"""Every figure against a number worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from jaxtrade.evaluation import metrics


def test_session_pnl_is_the_change_between_last_bars():
    equity = np.array([5, 10, -20, -15, 40])
    assert metrics.session_pnl(equity, np.array([1, 3, 4])).tolist() == [10, -25, 55]


def test_account_sessions_start_again_with_the_account():
    equity, account = np.array([5, 10, -20, -15, 7, 9]), np.array([0, 0, 0, 0, 1, 1])
    last = np.array([1, 3, 5])
    assert metrics.account_session_pnl(equity, account, last).tolist() == [10, -25, 9]
    assert metrics.account_session_pnl(equity, np.zeros(6, int), last).tolist() == [10, -25, 24]


def test_best_session_share_by_hand():
    assert metrics.best_session_share(np.array([300, -100, 200])) == 0.75
    assert metrics.best_session_share(np.array([300, -200])) == 3.0
    assert metrics.best_session_share(np.array([0, 0])) is None
    assert metrics.best_session_share(np.array([300, -400])) is None


def test_daily_sharpe_by_hand():
    # Ten days of +3 and ten of -1: mean 1, sum of squares 20 * 4, standard deviation sqrt(80 / 19).
    pnl = np.array([3, -1] * 10)
    assert metrics.daily_sharpe(pnl) == pytest.approx(252**0.5 / (80 / 19) ** 0.5, rel=1e-12)


@pytest.mark.parametrize(
    "pnl", [np.arange(19), np.array([7] * 25), np.zeros(30, int), np.array([], int)]
)
def test_daily_sharpe_is_undefined(pnl):
    assert metrics.daily_sharpe(pnl) is None


def test_max_drawdown_counts_from_the_start():
    assert metrics.max_drawdown(np.array([-5, -2, 8, 3, 6, -1, 20])) == 9
    assert metrics.max_drawdown(np.array([-5, 10, 8])) == 5
    assert metrics.max_drawdown(np.array([1, 2, 2])) == 0


def test_max_drawdown_does_not_wrap_in_int32():
    assert metrics.max_drawdown(np.array([2**30, -(2**30)], np.int32)) == 2**31


def test_trade_figures_by_hand():
    net = np.array([300, -100, 0, 50, -25])
    assert metrics.win_rate(net) == 0.4
    assert metrics.profit_factor(net) == 350 / 125
    assert metrics.average(net) == 45.0


def test_undefined_trade_figures_are_none():
    none = np.array([], np.int64)
    assert metrics.win_rate(none) is None
    assert metrics.profit_factor(none) is None
    assert metrics.average(none) is None
    assert metrics.profit_factor(np.array([5, 7])) is None
    assert metrics.profit_factor(np.array([-5])) == 0.0


def test_exposure_counts_bars_held_after_the_open():
    carried = np.array([0, 0, 1, 1, -1, 0])
    order_exit = np.array([0, 0, 0, 1, -1, 0])
    entry = np.array([0, 1, 0, -1, 0, 0])
    assert metrics.exposure(carried, order_exit, entry) == 3 / 6
