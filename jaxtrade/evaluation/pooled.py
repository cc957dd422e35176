"""The symbols of a set taken together: sums over accounts that trade side by side, one for each
symbol.

Money is integer mills until the figures, which are dollars. A figure that is undefined is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.figures import Figures
from jaxtrade.evaluation.report import EvaluationResult
from jaxtrade.evaluation.result import AgentResult
from jaxtrade.text import in_dollars, several, short_repr

SUMS = (
    "accounts",
    "passed",
    "bust",
    "failed_daily_loss",
    "open_at_end",
    "reached_target",
    "breaches",
    "trades",
    "illegal_actions",
    "idle_bars",
)


@dataclass(frozen=True)
class PooledAgent:
    """The figures of one agent over all symbols of a set; those of each symbol are in its own
    evaluation.

    pnl: int64[n] mills, profit of the strategy pass by trade date, over all symbols. trades: their
        number in that pass.
    """

    name: str
    about: str
    strategy_figures: Figures
    account_figures: Figures
    pnl: np.ndarray
    trades: int

    def __repr__(self) -> str:
        return short_repr(
            "PooledAgent",
            self.name,
            several(self.trades, "trade"),
            f"net {in_dollars(self.strategy_figures['net_profit'])}",
        )


def pooled(results: Sequence[EvaluationResult]) -> tuple[PooledAgent, ...]:
    """Each agent over all symbols, in the order of the agents. results: one for each symbol, with
    the same agents.

    Raises ValueError if their agents differ.
    """
    names = [[agent.name for agent in result.agents] for result in results]
    if any(each != names[0] for each in names):
        raise ValueError(f"the symbols were evaluated with different agents: {names}")
    return tuple(
        _pooled_agent(results, [result.agents[i] for result in results])
        for i in range(len(names[0]))
    )


def trade_dates(results: Sequence[EvaluationResult]) -> np.ndarray:
    """datetime64[D][n]: every trade date of any symbol, in order."""
    return np.unique(np.concatenate([result.decisions.date for result in results]))


def by_date(results: Sequence[EvaluationResult], pnl: Sequence[np.ndarray]) -> np.ndarray:
    """int64[n]: the sum by trade date of each symbol's P&L by session."""
    dates = trade_dates(results)
    total = np.zeros(len(dates), np.int64)
    for result, each in zip(results, pnl, strict=True):
        total[np.searchsorted(dates, result.decisions.date)] += each
    return total


def total_equity(results: Sequence[EvaluationResult], equity: Sequence[np.ndarray]) -> np.ndarray:
    """int64[K] mills: the sum of the symbols' equities at each of the K times at which any of them
    is marked.

    equity: int64[L] of each symbol, at the close of the bar after each decision. Between its own
        marks, a symbol keeps
    its latest one; before the first it has made nothing.
    """
    times = [
        result.clock.time[result.decisions.rows + 1] + result.clock.bar_seconds
        for result in results
    ]
    union = np.unique(np.concatenate(times))
    total = np.zeros(len(union), np.int64)
    for own, marks in zip(times, equity, strict=True):
        known = np.searchsorted(own, union, side="right")
        total += np.concatenate([[0], marks])[known]
    return total


def _pooled_agent(
    results: Sequence[EvaluationResult], agents: Sequence[AgentResult]
) -> PooledAgent:
    pnl = by_date(
        results,
        [
            metrics.session_pnl(agent.strategy.equity, result.decisions.last)
            for agent, result in zip(agents, results, strict=True)
        ],
    )
    return PooledAgent(
        agents[0].name,
        agents[0].about,
        _strategy(results, agents, pnl),
        _account(results, agents),
        pnl,
        sum(len(agent.trades) for agent in agents),
    )


def _strategy(
    results: Sequence[EvaluationResult], agents: Sequence[AgentResult], pnl: np.ndarray
) -> Figures:
    """The figures of `figures.strategy_figures`, with these meanings for a set.

    return_pct: of the sum of all start balances. sharpe_daily, best_session, worst_session: of the
        P&L by trade date.
    max_drawdown: of the total equity. turnover: sides of all symbols per trade date. exposure:
        share of all decision
    bars. Figures of trades are over the trades of all symbols.
    """
    net = np.concatenate([agent.trades.net for agent in agents])
    own: list[Figures] = [agent.strategy_figures for agent in agents]
    bars = [len(result.decisions.rows) for result in results]
    profit = int(pnl.sum()) / 1000
    return {
        "net_profit": profit,
        "return_pct": 100 * profit / sum(result.start_balance for result in results),
        "sharpe_daily": metrics.daily_sharpe(pnl),
        "max_drawdown": metrics.max_drawdown(
            total_equity(results, [agent.strategy.equity for agent in agents])
        )
        / 1000,
        "best_session": int(pnl.max()) / 1000,
        "worst_session": int(pnl.min()) / 1000,
        "trades": len(net),
        "win_rate": metrics.win_rate(net),
        "profit_factor": metrics.profit_factor(net),
        "average_trade": metrics.average(net / 1000),
        "average_mae_ticks": metrics.average(
            np.concatenate([agent.trades.mae for agent in agents])
        ),
        "average_mfe_ticks": metrics.average(
            np.concatenate([agent.trades.mfe for agent in agents])
        ),
        "turnover": int(sum(2 * agent.trades.contracts.sum() for agent in agents)) / len(pnl),
        "exposure": sum(each["exposure"] * count for each, count in zip(own, bars, strict=True))
        / sum(bars),
        "commission": int(sum(agent.trades.commission.sum() for agent in agents)) / 1000,
        "slippage": int(sum(agent.trades.slippage.sum() for agent in agents)) / 1000,
        "illegal_actions": sum(each["illegal_actions"] for each in own),
    }


def _account(results: Sequence[EvaluationResult], agents: Sequence[AgentResult]) -> Figures:
    """The figures of `figures.account_figures`: sums over the accounts of all symbols.
    best_session_share: of the accounts' P&L by trade date."""
    own: list[dict[str, Any]] = [agent.account_figures for agent in agents]
    pnl = [
        metrics.account_session_pnl(
            agent.account.equity, agent.account.account, result.decisions.last
        )
        for agent, result in zip(agents, results, strict=True)
    ]
    total = by_date(results, pnl)
    return {name: sum(each[name] for each in own) for name in SUMS} | {
        "net_profit": int(total.sum()) / 1000,
        "best_session_share": metrics.best_session_share(total),
    }
