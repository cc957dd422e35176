"""The result of one agent in an evaluation. Reports, walk-forward runs and statistics read it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtrade.evaluation.backtest import Record
from jaxtrade.evaluation.figures import Figures
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
