"""The result of evaluating a set of symbols: each symbol's own evaluation, and all of them
together.

Every symbol trades an account of its own, under the same rules. What is pooled adds these accounts
up (`pooled`). Money is integer mills until the figures, which are dollars. A figure that is
undefined is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.evaluation import metrics, report
from jaxtrade.evaluation.openings import SplitHistory
from jaxtrade.evaluation.record import PASSES, Pass
from jaxtrade.evaluation.report import EvaluationResult
from jaxtrade.evaluation.trades import (
    AgentResult,
    Figures,
    by_symbol,
    joined,
    strategy_figures,
    summed_equity,
)
from jaxtrade.text import in_dollars, several, short_repr

if TYPE_CHECKING:
    import pandas as pd


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
    """The figures of `trades.strategy_figures` and `trades.account_figures`, with these meanings
    for a set.

    Strategy: return_pct: of the sum of all start balances. sharpe_daily, best_session,
    worst_session: of the P&L by trade date. max_drawdown: of the total equity. turnover: sides of
    all symbols per trade date. exposure: share of all decision bars. Figures of trades are over the
    trades of all symbols. Account: sums over the accounts of all symbols. best_session_share: of
    the accounts' P&L by trade date.
    """
    pnl, total = (
        by_date(
            results,
            [result.daily_pnl(own, which) for result, own in zip(results, agents, strict=True)],
        )
        for which in PASSES
    )
    strategy: list[Figures] = [agent.strategy_figures for agent in agents]
    account: list[Figures] = [agent.account_figures for agent in agents]
    bars = [len(result.decisions.rows) for result in results]
    trades = joined([agent.trades for agent in agents])
    return PooledAgent(
        agents[0].name,
        agents[0].about,
        strategy_figures(
            pnl,
            total_equity(results, [agent.strategy.equity for agent in agents]),
            trades,
            sum(result.start_balance for result in results),
            average_trade=metrics.average(trades.net / 1000),
            exposure=sum(
                each["exposure"] * count for each, count in zip(strategy, bars, strict=True)
            )
            / sum(bars),
            illegal_actions=sum(each["illegal_actions"] for each in strategy),
        ),
        {name: sum(each[name] for each in account) for name in SUMS}
        | {
            "net_profit": int(total.sum()) / 1000,
            "best_session_share": metrics.best_session_share(total),
        },
        pnl,
        len(trades),
    )


SAME = (
    "task",
    "contracts_per_entry",
    "intrabar",
    "fill",
    "mark",
    "start_balance",
    "account",
    "rules",
    "seed",
)


@dataclass(frozen=True, repr=False)
class SetResult(report.Result):
    """The evaluations of a set's symbols over the same split, by symbol, with the same agents.

    provenance: versions, device and digests. digests: sha256 of the run's configuration and of all
        data. history: how
    often these days were opened; None where nobody counted.
    """

    symbols: dict[str, EvaluationResult]
    provenance: dict[str, Any]
    digests: dict[str, str]
    history: SplitHistory | None = None

    @cached_property
    def agents(self) -> tuple[PooledAgent, ...]:
        """The agents over all symbols, in the order given."""
        return pooled(list(self.symbols.values()))

    @property
    def first(self) -> EvaluationResult:
        """The evaluation of the first symbol."""
        return next(iter(self.symbols.values()))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was evaluated. sessions: number of trade dates."""
        each = [result.settings for result in self.symbols.values()]
        return (
            {
                "market": ", ".join(self.symbols),
                "symbols": list(self.symbols),
                **metrics.sessions_of(self.dates),
                "decision_bars": sum(own["decision_bars"] for own in each),
                "coverage": min(own["coverage"] for own in each),
            }
            | {name: each[0][name] for name in SAME}
            | self.digests
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Notes for the reader. A note that does not hold for every symbol begins with those for
        which it does.
        """
        found: dict[str, list[str]] = {}
        for symbol, result in self.symbols.items():
            for label in result.labels:
                found.setdefault(label, []).append(symbol)
        return tuple(
            label if len(symbols) == len(self.symbols) else f"{', '.join(symbols)}: {label}"
            for label, symbols in found.items()
        )

    def header(self) -> list[str]:
        each = {symbol: own.settings for symbol, own in self.symbols.items()}
        return report.header_of(self.settings, self.labels, each)

    def table(self) -> str:
        """The console table: a block for each symbol, then all of them together, and a verdict of
        one line.
        """
        rules = (
            f"one account for each symbol, start ${self.settings['start_balance']:,.0f}; account rules: "
            f"{report.rules_text(self.settings['rules'])}"
        )
        return "\n".join(self.lines(rules))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None. agents: over all symbols.
        symbols: the document of each symbol's evaluation.
        """
        each = {symbol: own.to_json() for symbol, own in self.symbols.items()}
        return {**self.document(), "symbols": each, "provenance": self.provenance}

    @property
    def dates(self) -> np.ndarray:
        return trade_dates(list(self.symbols.values()))

    def daily_pnl(self, agent: PooledAgent, which: Pass = "strategy") -> np.ndarray:
        """int64[n] mills: the profit of one of `agents` in a pass, by trade date."""
        each = list(self.symbols.values())
        return by_date(each, [own.daily_pnl(own.agent(agent.name), which) for own in each])

    def verdict(self) -> str:
        return self.compare("trade date", f" of {several(len(self.symbols), 'symbol')}", hint=True)

    def trades_of(self, name: str) -> pd.DataFrame:
        return by_symbol(
            {symbol: result.trades_of(name) for symbol, result in self.symbols.items()}
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        return by_symbol(
            {symbol: result.equity_of(name) for symbol, result in self.symbols.items()}
        )

    def drawn_equity(self, name: str) -> pd.DataFrame:
        return summed_equity(self.equity_of(name), self.settings["start_balance"])
