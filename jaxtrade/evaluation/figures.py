"""The named figures of an agent, from records and trades. Money is in dollars; an undefined figure is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.env.state import EndReason
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.evaluation.trades import Trades
from jaxtrade.text import in_dollars, several, short_repr


@dataclass(frozen=True)
class AgentResult:
    """The two passes of one agent. trades: those of the strategy pass; their net sums to its final
    equity, in mills.
    """

    name: str
    about: str
    strategy: Record
    account: Record
    trades: Trades
    strategy_figures: Figures
    account_figures: Figures

    def __repr__(self) -> str:
        return short_repr(
            "AgentResult",
            self.name,
            several(len(self.trades), "trade"),
            f"net {in_dollars(self.strategy_figures['net_profit'])}",
            f"about: {self.about}",
        )


Figures = dict[str, Any]
ACCOUNT_ORDER = (  # of the files
    "accounts",
    "passed",
    "bust",
    "failed_daily_loss",
    "open_at_end",
    "reached_target",
    "breaches",
    "trades",
    "net_profit",
    "best_session_share",
    "illegal_actions",
    "idle_bars",
)


def strategy_figures(
    pnl: np.ndarray, equity: np.ndarray, trades: Trades, start_balance: float, **own: Any
) -> Figures:
    """Figures of the strategy pass (account rules off).

    Profits and costs are dollars over the whole session set. return_pct is net_profit over the
    start balance in percent. turnover is the number of contract sides filled per session.

    pnl: mills by session. equity: mills at each mark. own: `average_trade`, `exposure` (a share of
    the decision bars) and `illegal_actions`.
    """
    net_profit = int(equity[-1]) / 1000
    return {
        "net_profit": net_profit,
        "return_pct": 100 * net_profit / start_balance,
        "sharpe_daily": metrics.daily_sharpe(pnl),
        "max_drawdown": metrics.max_drawdown(equity) / 1000,
        "best_session": int(pnl.max()) / 1000,
        "worst_session": int(pnl.min()) / 1000,
        "trades": len(trades),
        "win_rate": metrics.win_rate(trades.net),
        "profit_factor": metrics.profit_factor(trades.net),
        "average_trade": own["average_trade"],
        "average_mae_ticks": metrics.average(trades.mae),
        "average_mfe_ticks": metrics.average(trades.mfe),
        "turnover": int(2 * trades.contracts.sum()) / len(pnl),
        "exposure": own["exposure"],
        "commission": int(trades.commission.sum()) / 1000,
        "slippage": int(trades.slippage.sum()) / 1000,
        "illegal_actions": own["illegal_actions"],
    }


def figures_of(
    record: Record, trades: Trades, decisions: DecisionBars, start_balance: float
) -> Figures:
    """`strategy_figures` of one symbol."""
    event, average = record.event, metrics.average(trades.net)
    return strategy_figures(
        metrics.session_pnl(record.equity, decisions.last),
        record.equity,
        trades,
        start_balance,
        average_trade=None if average is None else average / 1000,
        exposure=metrics.exposure(record.carried, event.order_exit_quantity, event.entry_quantity),
        illegal_actions=int(np.sum(~record.legal)),
    )


def account_outcome(record: Any, decisions: DecisionBars) -> Figures:
    """Figures of the account pass (account rules on) that `allocate` has too.

    accounts = passed + bust + failed_daily_loss + open_at_end. breaches: bars in which an open
    account reached a drawdown or daily-loss floor. net_profit: sum over all accounts.
    best_session_share: the figure that consistency rules of prop firms limit. It is reported but
    not enforced, and None without a profit.
    """
    count = int(record.account.max()) + 1
    passed, bust, daily = (
        int(np.sum(record.end == reason))
        for reason in (EndReason.TARGET, EndReason.BUST, EndReason.DAILY_LOSS)
    )
    closing = np.append(np.flatnonzero(np.diff(record.account)), len(record.account) - 1)
    return {
        "accounts": count,
        "passed": passed,
        "bust": bust,
        "failed_daily_loss": daily,
        "open_at_end": count - passed - bust - daily,
        "breaches": int(np.sum(record.event.breach & record.active)),
        "net_profit": int(record.equity[closing].astype(np.int64).sum()) / 1000,
        "best_session_share": metrics.best_session_share(
            metrics.account_session_pnl(record.equity, record.account, decisions.last)
        ),
        "idle_bars": int(np.sum(~record.active)),
    }


def account_figures(record: Record, decisions: DecisionBars) -> Figures:
    """`account_outcome`, and figures of one symbol.

    reached_target: accounts whose realised profit reached the target at some bar; with
    `on_target=continue` such an account goes on.
    """
    found = account_outcome(record, decisions) | {
        "reached_target": len(np.unique(record.account[record.target])),
        "trades": int(np.sum(record.event.entry_quantity != 0)),
        "illegal_actions": int(np.sum(~record.legal)),
    }
    return {name: found[name] for name in ACCOUNT_ORDER}


def coverage(record: Record, decisions: DecisionBars) -> float:
    """Number of visited decision bars over the number of all decision bars of the set."""
    return len(np.intersect1d(record.row, decisions.rows)) / len(decisions.rows)
