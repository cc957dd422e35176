"""Sensitivity of a result: the same agents under each intrabar order, multiples of the run's costs,
and latencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.backtest import Lane, Steps, decision_bars, run_lanes
from jaxtrade.evaluation.evaluate import EvaluationResult, agent_key, evaluate
from jaxtrade.evaluation.latency import LONGEST, TOO_LATE, delayed
from jaxtrade.evaluation.report import costs_text
from jaxtrade.text import aligned, in_dollars, several
from jaxtrade.types import SessionSet

if TYPE_CHECKING:
    from jaxtrade.data.market import Market

COMMISSION_TIMES = (0, 1, 2)
SLIPPAGE_TIMES = (0, 1, 2, 4)  # ticks, for a run without slippage
RANGE = "largest less smallest"
MODES: tuple[Literal["stop_first", "nearer_extreme", "path"], ...] = (
    "stop_first",
    "nearer_extreme",
    "path",
)


@dataclass(frozen=True)
class Grid:
    """Net profit of the strategy pass (account rules off), in dollars.

    profit: float64[len(rows), len(agents)], exact to a mill. notes: what the rows mean, and which
        are missing and why.
    too_late: int64[len(rows), len(agents)] decisions that were no longer possible when they were
        due; None where none
    can be late.
    """

    title: str
    rows: tuple[str, ...]
    agents: tuple[str, ...]
    profit: np.ndarray
    notes: tuple[str, ...] = ()
    too_late: np.ndarray | None = None

    @property
    def spread(self) -> np.ndarray:
        """Largest minus smallest profit of each agent, float64[len(agents)] dollars."""
        return self.profit.max(axis=0) - self.profit.min(axis=0)


def _profits(result: EvaluationResult) -> list[float]:
    return [agent.strategy_figures["net_profit"] for agent in result.agents]


def intrabar_grid(
    env: TradingEnv,
    params: EnvParams,
    agents: Sequence[Agent],
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    steps: Steps | None = None,
) -> Grid:
    """Net profit under each intrabar order. The order `path` needs second bars. Arguments as
    `evaluate`.
    """
    modes = MODES if params.market.path is not None else MODES[:2]
    notes = (
        () if len(modes) == len(MODES) else ("path: this run has no second bars (--seconds FILE)",)
    )
    profits = [
        _profits(
            evaluate(
                TradingEnv(env.config.model_copy(update={"intrabar": mode})),
                params,
                market,
                sessions,
                config,
                agents,
                steps=steps,
            )
        )
        for mode in modes
    ]
    return Grid(
        "intrabar order", modes, tuple(agent.name for agent in agents), np.asarray(profits), notes
    )


def _steps(own: int, times: Sequence[int]) -> list[tuple[str, int]]:
    """(label, value) of each multiple of a cost of the run."""
    return [(f"{each}x", each * own) for each in times]


def _cost_rows(params: EnvParams) -> Iterator[tuple[str, EnvParams]]:
    """(label, params) of each row. A cost that is 0 has no multiples: slippage is then counted in
    ticks.
    """
    commission, slippage = int(params.contract.commission), int(params.contract.slippage)
    sides = _steps(commission, COMMISSION_TIMES) if commission else [("none", 0)]
    fills = (
        _steps(slippage, SLIPPAGE_TIMES)
        if slippage
        else [(several(ticks, "tick"), ticks) for ticks in SLIPPAGE_TIMES]
    )
    for side, mills in sides:
        for fill, ticks in fills:
            contract = params.contract.replace(
                commission=jnp.int32(mills), slippage=jnp.int32(ticks)
            )
            yield f"commission {side}, slippage {fill}", params.replace(contract=contract)


def _cost_notes(settings: dict[str, Any]) -> Iterator[str]:
    """What the rows mean. settings: of an evaluation under the run's own costs."""
    yield f"1x is the run's own: {costs_text(settings)}"
    if not settings["slippage_ticks"]:
        yield f"the run has no slippage to multiply, so its rows are in ticks of {in_dollars(settings['tick_value'])}"
    if settings["two_sided"]:
        yield "the spread is in the bars: every row pays it once"


def cost_grid(
    env: TradingEnv,
    params: EnvParams,
    agents: Sequence[Agent],
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    steps: Steps | None = None,
) -> Grid:
    """Net profit at 0, 1 and 2 times the commission of the run, each with 0, 1, 2 and 4 times its
    slippage.

    A run without slippage is shown with 0, 1, 2 and 4 ticks of it; a run without commission has no
    rows for it. Costs are traced, so one compiled program serves all rows. The agents see their
    entry price, so they may trade otherwise where fills cost more: profits need not fall in even
    steps. Arguments as `evaluate`.
    """
    rows = list(_cost_rows(params))
    results = [
        evaluate(env, priced, market, sessions, config, agents, steps=steps) for _, priced in rows
    ]
    own = (int(params.contract.commission), int(params.contract.slippage))
    at = next(
        i
        for i, (_, priced) in enumerate(rows)
        if (int(priced.contract.commission), int(priced.contract.slippage)) == own
    )
    return Grid(
        "costs",
        tuple(name for name, _ in rows),
        tuple(agent.name for agent in agents),
        np.asarray([_profits(result) for result in results]),
        tuple(_cost_notes(results[at].settings)),
    )


def latency_grid(
    env: TradingEnv,
    params: EnvParams,
    agents: Sequence[Agent],
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    steps: Steps | None = None,
) -> Grid:
    """Net profit if every decision is executed 0 to `LONGEST` bars late (see `latency`). Arguments
    as `evaluate`.
    """
    decisions = decision_bars(market.data, sessions, steps)
    params, key = params.replace(sessions=sessions), jax.random.key(config.seed)

    rows, count = range(LONGEST + 1), len(agents)
    found = run_lanes(
        env,
        [
            Lane(delayed(agent, env, bars), params, decisions, agent_key(key, agent.name))
            for bars in rows
            for agent in agents
        ],
        "strategy",
    )
    records = [found[count * bars : count * (bars + 1)] for bars in rows]
    return Grid(
        "latency",
        tuple(several(bars, "bar") for bars in rows),
        tuple(agent.name for agent in agents),
        np.asarray([[int(record.equity[-1]) / 1000 for record in row] for row in records]),
        (
            f"{several(0, 'bar')}: executed at the next bar, as in training and in the evaluation",
            "an agent does not see its decisions on their way, so it may repeat one; the repeat comes too late",
        ),
        np.asarray([[int(np.sum(record.action == TOO_LATE)) for record in row] for row in records]),
    )


def table(grid: Grid) -> str:
    """The grid as text: agents as columns. The last row is the largest profit of each less the
    smallest. Decisions that came too late have rows of their own."""
    cells = [[f"net profit ($) by {grid.title}", *grid.agents]]
    for name, profit in [*zip(grid.rows, grid.profit, strict=True), (RANGE, grid.spread)]:
        cells.append([f"  {name}", *(f"{value:,.2f}" for value in profit)])
    if grid.too_late is not None:
        cells.append(["decisions that came too late (HOLD instead)"])
        cells += [
            [f"  {name}", *(f"{count:,}" for count in counts)]
            for name, counts in zip(grid.rows, grid.too_late, strict=True)
        ]
    return "\n".join([*aligned(cells), *(f"NOTE: {note}" for note in grid.notes)])


def _by_agent(grid: Grid, values: np.ndarray) -> dict[str, dict[str, Any]]:
    return {
        name: dict(zip(grid.agents, row.tolist(), strict=True))
        for name, row in zip(grid.rows, values, strict=True)
    }


def to_json(grid: Grid) -> dict[str, Any]:
    """The grid as JSON values: dollars per row and agent. spread: largest less smallest profit.
    too_late: counts per row and agent, where the grid has them."""
    late = {} if grid.too_late is None else {"too_late": _by_agent(grid, grid.too_late)}
    return {
        "rows": _by_agent(grid, grid.profit),
        "spread": dict(zip(grid.agents, grid.spread.tolist(), strict=True)),
        "notes": list(grid.notes),
        **late,
    }
