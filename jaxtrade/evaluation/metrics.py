"""Metrics of an evaluation as pure NumPy functions. An undefined metric is None, never 0.

Money is integer mills. L is the number of decision bars, n of sessions, K of trades.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxtrade.text import several

TRADING_DAYS = 252
MIN_SESSIONS = 20  # a daily Sharpe ratio of fewer sessions is noise


def session_pnl(equity: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the change of equity over each session (int64[n], mills).

    Args:
        equity: int[L], mills from 0.
        last: index of each session's last bar.
    """
    return np.diff(equity[last].astype(np.int64), prepend=0)


def account_session_pnl(equity: np.ndarray, account: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return what `session_pnl` does, for equity that starts at 0 with each account (int64[n]).

    account: int[L], its number.
    """
    closing, number = equity[last].astype(np.int64), account[last]
    same = np.append(False, number[1:] == number[:-1])
    return closing - np.where(same, np.roll(closing, 1), 0)


def best_session_share(pnl: np.ndarray) -> float | None:
    """Return the P&L of the best session over the sum of all.

    This is the consistency metric of prop firms. It is above 1 if the other sessions lost money in
    total, and None if the sum is not positive.
    """
    total = int(pnl.sum())
    return int(pnl.max()) / total if total > 0 else None


def daily_sharpe(pnl: np.ndarray) -> float | None:
    """Return sqrt(252) * mean / standard deviation (ddof 1) of session P&L.

    See Sharpe 1994, with a benchmark of zero. None with fewer than 20 sessions, and if the P&L does
    not vary.
    """
    if len(pnl) < MIN_SESSIONS:
        return None
    deviation = float(np.std(pnl, ddof=1))
    return float(np.mean(pnl)) / deviation * math.sqrt(TRADING_DAYS) if deviation > 0 else None


def max_drawdown(equity: np.ndarray) -> int:
    """Return the largest drop of equity below its running maximum, in mills.

    equity: int[L], marked at closes. The start counts as 0.
    """
    series = np.append(0, equity.astype(np.int64))
    return int(np.max(np.maximum.accumulate(series) - series))


def win_rate(net: np.ndarray) -> float | None:
    """Return the share of trades with a profit after commission; None without trades."""
    return float(np.mean(net > 0)) if len(net) else None


def profit_factor(net: np.ndarray) -> float | None:
    """Return the sum of profits over the sum of losses, after commission.

    None without a loss, and so without trades.
    """
    loss = -int(net[net < 0].sum())
    return int(net[net > 0].sum()) / loss if loss else None


def average(values: np.ndarray) -> float | None:
    """Return the mean, or None if there are no values."""
    return float(np.mean(values)) if len(values) else None


def exposure(carried: np.ndarray, order_exit: np.ndarray, entry: np.ndarray) -> float:
    """Return the share of bars in which a position was held after the open.

    The position was either carried in and kept, or newly entered.

    carried, order_exit, entry: int[L] quantities.
    """
    return float(np.mean(((carried != 0) & (order_exit == 0)) | (entry != 0)))


def sessions_of(dates: np.ndarray) -> dict[str, Any]:
    """Return how many sessions an evaluation had, and which, for its settings.

    dates: datetime64[D][n], their trade dates.
    """
    return {"sessions": len(dates), "first_session": str(dates[0]), "last_session": str(dates[-1])}


CHOSEN_HERE = "the policy was chosen on these very days"


def days_note(
    days: int, trained: int, chosen: int | None = None, symbols: int = 1, same: bool = False
) -> str:
    """Return the label of an evaluation that says on how much it rests.

    Args:
        days: trade dates evaluated. Several symbols on one date count once: the market moves
            them together.
        trained: sessions of the training split; of several symbols the trade dates.
        chosen: sessions on which the best policy was chosen; None if no policy was chosen by them.
        symbols: number of symbols whose metrics are added up.
        same: whether the policy was chosen on the very days that are evaluated.
    """
    together = f" ({symbols} symbols on one date count as one day)" if symbols > 1 else ""
    if days == 1:
        text = f"every figure below rests on one day{together}, and one day proves nothing"
    elif days < MIN_SESSIONS:
        text = f"every figure below rests on {days} days{together}, which are too few to tell skill from luck"
    else:
        text = f"every figure below rests on {days} independent days{together}"
    if same:
        return f"{text}; {CHOSEN_HERE}, so they flatter it"
    picked = "" if chosen is None else f"; it was chosen on {several(chosen, 'other day')}"
    return f"{text}; the policy was trained on {several(trained, 'day')}{picked}"
