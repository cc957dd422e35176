"""The result of an evaluation. Reports, walk-forward runs and statistics read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.evaluation.backtest import DecisionBars, Record
from jaxtrade.evaluation.figures import Figures
from jaxtrade.evaluation.trades import BarClock, Trades


@dataclass(frozen=True)
class AgentResult:
    """The two passes of one agent. trades: those of the strategy pass; their net sums to its final equity, in mills."""

    name: str
    about: str
    strategy: Record
    account: Record
    trades: Trades
    strategy_figures: Figures
    account_figures: Figures


@dataclass(frozen=True)
class EvaluationResult:
    """Results of several agents over the same decision bars, in the order given.

    close: int[T] ticks, close of each market row (the mid price of two-sided bars). start_balance: dollars. settings:
    conventions and costs. labels: notes for the reader. provenance: versions, device and digests.
    """

    agents: tuple[AgentResult, ...]
    decisions: DecisionBars
    clock: BarClock
    close: np.ndarray
    start_balance: float
    settings: dict[str, Any]
    labels: tuple[str, ...]
    provenance: dict[str, Any]

    def table(self) -> str:
        """The console table: header, both passes with agents as columns, and a verdict of one line."""
        from jaxtrade.evaluation import report  # imported here to avoid an import circle

        return report.table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None."""
        from jaxtrade.evaluation import report

        return report.to_json(self)

    def agent(self, name: str) -> AgentResult:
        """The result of the agent `name`. Raises KeyError, which lists the names of this evaluation."""
        for result in self.agents:
            if result.name == name:
                return result
        raise KeyError(f"no agent '{name}' in this evaluation (there are: {', '.join(a.name for a in self.agents)})")
