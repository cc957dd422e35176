"""What an evaluation returns; walk-forward and statistics take it from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.evaluation.backtest import DecisionBars, Record
from jaxtrade.evaluation.figures import Figures
from jaxtrade.evaluation.trades import BarClock, Trades


@dataclass(frozen=True)
class AgentResult:
    """One agent's two passes. `trades` are the strategy pass's; their net sums to its final equity, in mills."""

    name: str
    about: str
    strategy: Record
    account: Record
    trades: Trades
    strategy_figures: Figures
    account_figures: Figures


@dataclass(frozen=True)
class EvaluationResult:
    """Agents in the order given, over the same decision bars. `settings` and `labels` say under which conventions and
    costs.
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
        """The console table: what was evaluated, agents as columns, both passes, one line of verdict."""
        from jaxtrade.evaluation import report  # here, because the report is written from this class

        return report.table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None."""
        from jaxtrade.evaluation import report

        return report.to_json(self)

    def agent(self, name: str) -> AgentResult:
        """Raises KeyError naming the agents there are."""
        for result in self.agents:
            if result.name == name:
                return result
        raise KeyError(f"no agent '{name}' in this evaluation (there are: {', '.join(a.name for a in self.agents)})")
