"""Evaluation of a market whose profits arise in another currency: trades sum to equity, reports say
so.
"""

import dataclasses
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.data.contracts import get_contract
from jaxtrade.env.state import ExitReason
from jaxtrade.types import TickValue
from tests.evaluation.tiny import WALK, result_of
from tests.messages import missing


def in_francs(market, times, over):
    value = TickValue(jnp.full(len(over), times, jnp.int32), jnp.asarray(over, jnp.int32))
    return dataclasses.replace(
        market,
        data=market.data.replace(tick_value=value),
        contract=dataclasses.replace(get_contract("ES"), symbol="USDCHF", currency="CHF"),
    )


@pytest.fixture(scope="module")
def result():
    """The four baselines over the random walk; a tick's money moves in every bar."""
    over = 8_000 + np.random.default_rng(5).integers(-900, 900, len(WALK.bars.close))
    market = in_francs(WALK, 100_000_000, over)
    return over, result_of(market, env={"quantity": 3}, costs={"slippage": 2})


def test_every_trade_is_converted_once_at_the_rate_of_its_exit(result):
    over, evaluated = result
    for agent in evaluated.agents:
        trades = agent.trades
        assert int(trades.net.sum()) == int(agent.strategy.equity[-1])
        rate = [Fraction(100_000_000, int(over[row])) for row in trades.exit_row]
        sides = 2 - (trades.reason == ExitReason.TARGET)
        assert trades.net.tolist() == [
            round(int(t * n) * r) - int(c)
            for t, n, r, c in zip(
                trades.ticks, trades.contracts, rate, trades.commission, strict=True
            )
        ]
        assert trades.slippage.tolist() == [
            round(int(2 * n * s) * r) for n, s, r in zip(trades.contracts, sides, rate, strict=True)
        ]
    assert sum(len(agent.trades) for agent in evaluated.agents) > 30


@pytest.mark.slow
def test_the_report_says_what_is_converted(result):
    over, evaluated = result
    settings = evaluated.to_json()["settings"]
    assert settings["currency"] == "CHF"
    assert settings["tick_value"] == pytest.approx(
        np.median(100_000 / over[evaluated.decisions.rows])
    )
    text = evaluated.table()
    assert "at the median rate" in text
    assert not missing(text, "CHF and are converted", "at the USDCHF rate")
