"""`allocate` agrees with a second environment in plain Python, in every mill, over random
actions.
"""

import pytest

from tests.oracle.portfolio import Settings, join
from tests.oracle.portfolio_worlds import (
    compare,
    portfolio_env,
    portfolio_params,
    random_symbol,
    run,
)

STEPS = 5_000
TIGHT = {"drawdown": 400_000, "daily_loss": 250_000, "target": 500_000, "trades_per_day": 12}
COSTS = {
    "commission": (20, 50),
    "slippage": (1, 0),
    "cost_hundredths": 57,
    "impact_tenths": 13,
    "fee": 700,
    "impact_base": 20_000_000,
}


CASES = {
    "product": Settings(actions="product", size=(1, 2), episode_sessions=3, **TIGHT, **COSTS),
    "increment": Settings(
        actions="increment",
        size=(3, 1),
        max_units=3,
        max_total=4,
        max_contracts=8,
        cooldown=2,
        episode_sessions=2,
        max_steps=40,
        trailing="end_of_day",
        floor_cap=-100_000,
        **TIGHT,
        **COSTS,
    ),
}


@pytest.mark.parametrize("steps", [500, pytest.param(STEPS, marks=pytest.mark.slow)])
def test_every_mill_with_mixed_currencies_and_sides(steps):
    """Two symbols, one of them two-sided and in another currency, with bars missing in each."""
    second = random_symbol(2, 12, 11_000, 20, (109_000_000, 108_900, 300), two_sided=True)
    mixed, settings = join([random_symbol(1, 12), second]), CASES["increment"]
    trace = run(portfolio_env(settings, ("A", "B")), portfolio_params(mixed, settings), 5, steps)
    counts = compare(trace, mixed, settings)
    kinds = ("liquidation", "breach", "illegal", "orders", "session", "bust")
    assert steps < STEPS or min(counts[what] for what in kinds) > 0, counts
