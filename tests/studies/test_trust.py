"""The bench of trust: today's rule is seldom fooled where the earlier one was, and still finds
skill.
"""

import json

import numpy as np
import pytest

from bench.studies import trust
from jaxtrade.config import AdvisorConfig, load_config
from jaxtrade.data.market import load_market

DRAWS = 200


@pytest.fixture(scope="module")
def made():
    market = load_market(load_config("advised"))
    layout = trust.layout_of(market)
    rules = {
        name: trust.trusts_of(AdvisorConfig.model_validate({"kind": "none", **keys}), layout.bars)
        for name, keys in trust.RULES.items()
    }
    return trust.markets_of(market, layout, 30), layout, rules


@pytest.mark.slow
@pytest.mark.parametrize("market", ["random walk", "phase-randomised"])
@pytest.mark.parametrize(
    "opinion", ["persistent:30", "persistent:240", "always long", "follow the trend of 30 bars"]
)
def test_no_trust_without_skill(made, market, opinion):
    markets, layout, rules = made
    found = trust.cell(markets[market], trust.OPINIONS[opinion], layout, rules, DRAWS, 7)
    assert found["answers"]["share"] > 0.35
    assert found["blocks"]["share"] <= 0.05


@pytest.mark.slow
def test_skill_is_trusted(made):
    markets, layout, rules = made
    found = trust.cell(markets["real bars"], trust.skilled(0.6), layout, rules, DRAWS, 7)
    assert found["blocks"]["share"] >= 0.95
    assert found["blocks"]["mean_size"] == pytest.approx(np.log(0.6 / 0.4), abs=0.05)


def test_intervals_of_shares():
    assert trust.interval(0, 10) == [0.0, pytest.approx(0.3085, abs=1e-3)]  # 1 - 0.025^(1/10)
    assert trust.interval(10, 10) == [pytest.approx(0.6915, abs=1e-3), 1.0]


@pytest.mark.slow
def test_a_quick_result():
    found = trust.run(True)
    json.dumps(found, allow_nan=False)
    assert set(found["false_trust"]) == {"real bars", "random walk", "phase-randomised"}
    assert set(found["worst_upper_bound"]) == set(trust.RULES)
