"""Figures of an agent of `allocate`, in dollars; an undefined figure is None, never 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxtrade.env.state import EndReason
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.backtest import DecisionBars
from jaxtrade.evaluation.portfolio.backtest import JointRecord


def strategy_figures(
    record: JointRecord, decisions: DecisionBars, symbols: tuple[str, ...], start_balance: float
) -> dict[str, Any]:
    """Figures of the strategy pass. Names as in `evaluation.figures`, where they exist there.

    turnover: notional of all fills over the start balance. costs: all but slippage. profit.SYMBOL:
        its share of
    net_profit. exposure: share of bars after which anything was held.
    """
    event, equity = record.event, record.equity.astype(np.int64)
    trades = int(record.trades.sum())
    net = int(equity[-1]) / 1000
    profit = event.profit.astype(np.int64).sum(axis=0)
    if int(profit.sum()) != int(equity[-1]):
        raise RuntimeError(
            f"profits of the symbols sum to {profit.sum()} mills, equity is {equity[-1]}"
        )
    ordered = (event.close_quantity != 0) | (event.open_quantity != 0)
    return {
        "net_profit": net,
        "return_pct": 100 * net / start_balance,
        "sharpe_daily": metrics.daily_sharpe(metrics.session_pnl(equity, decisions.last)),
        "max_drawdown": metrics.max_drawdown(equity) / 1000,
        "trades": trades,
        "win_rate": int(record.wins.sum()) / trades if trades else None,
        "orders": int(ordered.sum()),
        "turnover": float(event.turnover.astype(np.int64).sum()) / 1000 / start_balance,
        "costs": int(event.cost.astype(np.int64).sum()) / 1000,
        "exposure": float((record.quantity != 0).any(axis=1).mean()),
        "illegal_actions": int(record.illegal.sum()),
        **{
            f"profit.{symbol}": int(money) / 1000
            for symbol, money in zip(symbols, profit, strict=True)
        },
    }


def account_figures(record: JointRecord, decisions: DecisionBars) -> dict[str, Any]:
    """Figures of the account pass, as in `evaluation.figures.account_figures`."""
    count = int(record.account.max()) + 1
    ends = {reason: int(np.sum(record.end == reason)) for reason in EndReason}
    closing = np.append(np.flatnonzero(np.diff(record.account)), len(record.account) - 1)
    over = ends[EndReason.TARGET] + ends[EndReason.BUST] + ends[EndReason.DAILY_LOSS]
    return {
        "accounts": count,
        "passed": ends[EndReason.TARGET],
        "bust": ends[EndReason.BUST],
        "failed_daily_loss": ends[EndReason.DAILY_LOSS],
        "open_at_end": count - over,
        "breaches": int(np.sum(record.event.breach & record.active)),
        "net_profit": int(record.equity[closing].astype(np.int64).sum()) / 1000,
        "best_session_share": metrics.best_session_share(
            metrics.account_session_pnl(record.equity, record.account, decisions.last)
        ),
        "idle_bars": int(np.sum(~record.active)),
    }
