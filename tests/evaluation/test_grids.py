"""Grids over intrabar orders and costs: rows equal single evaluations, and costs only ever hurt."""

import numpy as np
import pytest

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.evaluation import grids
from jaxtrade.evaluation.evaluators import evaluate
from tests.evaluation.tiny import WALK, rule, setup
from tests.messages import missing
from tests.paths import path_arrays, random_paths

SESSIONS = WALK.every


@pytest.mark.slow
def test_intrabar_rows_are_the_evaluations_under_each_order():
    env, params, config = setup(WALK, SESSIONS)
    agents = [rule("sma_cross", env), rule("flat", env)]
    paths = path_arrays(
        WALK.bars.open,
        random_paths(0, WALK.bars.open, WALK.bars.high, WALK.bars.low, WALK.bars.close),
    )
    known = params.replace(market=params.market.replace(path=paths))
    grid = grids.make_grid("intrabar order", env, known, agents, WALK, SESSIONS, config)  # type: ignore[arg-type]
    assert grid.rows == ("stop_first", "nearer_extreme", "path")
    assert grid.notes == ()
    for row, profit in zip(grid.rows, grid.profit, strict=True):
        alone = TradingEnv(env.config.model_copy(update={"intrabar": row}))
        result = evaluate(alone, known, WALK, SESSIONS, config, agents)  # type: ignore[arg-type]
        assert profit.tolist() == [agent.strategy_figures["net_profit"] for agent in result.agents]
        assert result.settings["intrabar"] == row
    assert grid.spread[1] == 0
    unknown = grids.make_grid("intrabar order", env, params, agents[1:], WALK, SESSIONS, config)  # type: ignore[arg-type]
    assert unknown.rows == ("stop_first", "nearer_extreme")
    assert "--seconds FILE" in unknown.table()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("costs", "commission", "slippage", "facts"),
    [
        ({}, 2.08, 1, ("$2.08 per side", "$12.50 per market", "(1 tick)")),
        ({"commission": 1.5, "slippage": 3}, 1.5, 3, ("$37.50 per market", "(3 ticks, $12.50")),
    ],
)
def test_cost_rows_are_multiples_and_the_spread_is_their_range(costs, commission, slippage, facts):
    env, params, config = setup(WALK, SESSIONS, costs=costs)
    grid = grids.make_grid("costs", env, params, [rule("buy_hold", env)], WALK, SESSIONS, config)
    profit = grid.profit.reshape(3, 4)
    # four sessions, a buy and a sale each: eight sides, each tick $12.50
    assert np.allclose(profit[[0]] - profit, 8 * commission * np.array([[0], [1], [2]]))
    assert np.allclose(profit[:, [0]] - profit, 100 * slippage * np.array([0, 1, 2, 4]))
    assert np.allclose(grid.spread, 16 * commission + 400 * slippage)
    rows = [f"commission 1x, slippage {times}x" for times in (1, 2, 4)]
    assert [*grid.rows[5:8]] == rows
    text = grid.table().splitlines()
    assert text[-2].split()[-1] == f"{grid.spread[0]:,.2f}"
    assert not missing(text[-1], "NOTE: 1x", *facts)
    assert grid.to_json()["spread"] == {"buy_hold": grid.spread[0]}


def test_a_cost_that_is_zero_has_no_multiples():
    """Slippage is then shown in ticks, so that its weight is still seen."""
    env, params, config = setup(WALK, SESSIONS, costs={"commission": 0.0, "slippage": 0})
    grid = grids.make_grid("costs", env, params, [rule("buy_hold", env)], WALK, SESSIONS, config)  # type: ignore[arg-type]
    assert grid.rows == tuple(
        f"commission none, slippage {ticks}"
        for ticks in ("0 ticks", "1 tick", "2 ticks", "4 ticks")
    )
    assert np.allclose(grid.profit[0] - grid.profit[:, 0], 8 * 12.50 * np.array([0, 1, 2, 4]))
    assert not missing(grid.notes[0], "$0.00 per market", "(0 ticks, $12.50 per tick)")
    assert grid.notes[1].endswith("in ticks of $12.50")
