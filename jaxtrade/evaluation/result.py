"""The result of one agent in an evaluation. Reports, walk-forward runs and statistics read it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtrade.evaluation.backtest import Record
from jaxtrade.evaluation.figures import Figures
from jaxtrade.evaluation.trades import Trades


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
