"""Sensitivity of a result: the same agents under each intrabar order, and under a grid of costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.evaluate import evaluate
from jaxtrade.text import aligned
from jaxtrade.types import SessionSet

if TYPE_CHECKING:
    from jaxtrade.data.market import Market

COMMISSION_TIMES = (0, 1, 2)
SLIPPAGE_TICKS = (0, 1, 2, 4)
MODES: tuple[Literal["stop_first", "nearer_extreme", "path"], ...] = ("stop_first", "nearer_extreme", "path")


@dataclass(frozen=True)
class Grid:
    """Net profit of the strategy pass (account rules off), in dollars.

    profit: float64[len(rows), len(agents)], exact to a mill. notes: rows that are missing, with the reason.
    """

    title: str
    rows: tuple[str, ...]
    agents: tuple[str, ...]
    profit: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> np.ndarray:
        """Largest minus smallest profit of each agent, float64[len(agents)] dollars."""
        return self.profit.max(axis=0) - self.profit.min(axis=0)


def _profits(env: TradingEnv, params: EnvParams, agents: Sequence[Agent], market: Market, sessions: SessionSet,
             config: RunConfig) -> list[float]:
    result = evaluate(env, params, market, sessions, config, agents)
    return [agent.strategy_figures["net_profit"] for agent in result.agents]


def intrabar_grid(env: TradingEnv, params: EnvParams, agents: Sequence[Agent], market: Market, sessions: SessionSet,
                  config: RunConfig) -> Grid:
    """Net profit under each intrabar order. The order `path` needs second bars. Arguments as `evaluate`."""
    modes = MODES if params.market.path is not None else MODES[:2]
    notes = () if len(modes) == len(MODES) else ("path: this run has no second bars (--seconds FILE)",)
    profits = [_profits(TradingEnv(env.config.model_copy(update={"intrabar": mode})), params, agents, market, sessions,
                        config) for mode in modes]
    return Grid("intrabar order", modes, tuple(agent.name for agent in agents), np.asarray(profits), notes)


def _cost_rows(params: EnvParams) -> Iterator[tuple[str, EnvParams]]:
    own = int(params.contract.commission)
    for times in COMMISSION_TIMES:
        for ticks in SLIPPAGE_TICKS:
            contract = params.contract.replace(commission=jnp.int32(times * own), slippage=jnp.int32(ticks))
            yield f"${times * own / 1000:.2f} a side, {ticks} ticks", params.replace(contract=contract)


def cost_grid(env: TradingEnv, params: EnvParams, agents: Sequence[Agent], market: Market, sessions: SessionSet,
              config: RunConfig) -> Grid:
    """Net profit at 0, 1 and 2 times the commission of the run, each with 0, 1, 2 and 4 ticks of slippage.

    Costs are traced, so one compiled program serves all rows. Arguments as `evaluate`.
    """
    rows = list(_cost_rows(params))
    profits = [_profits(env, priced, agents, market, sessions, config) for _, priced in rows]
    return Grid("costs", tuple(name for name, _ in rows), tuple(agent.name for agent in agents), np.asarray(profits))


def table(grid: Grid) -> str:
    """The grid as text: agents as columns, their spread as the last row."""
    cells = [[f"net profit ($) by {grid.title}", *grid.agents]]
    for name, profit in [*zip(grid.rows, grid.profit, strict=True), ("spread", grid.spread)]:
        cells.append([f"  {name}", *(f"{value:,.2f}" for value in profit)])
    return "\n".join([*aligned(cells), *(f"NOTE: {note}" for note in grid.notes)])


def to_json(grid: Grid) -> dict[str, Any]:
    """The grid as JSON values: dollars per row and agent."""
    return {"rows": {name: dict(zip(grid.agents, profit.tolist(), strict=True))
                     for name, profit in zip(grid.rows, grid.profit, strict=True)},
            "spread": dict(zip(grid.agents, grid.spread.tolist(), strict=True)), "notes": list(grid.notes)}
