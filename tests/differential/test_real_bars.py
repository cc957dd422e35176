"""Against backtesting.py on the bundled real bars: ES minutes and EURUSD hours, built by the data layer."""

from __future__ import annotations

import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.market import bars_of, build_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from tests.differential.compare import Tally, compare_random
from tests.differential.passes import HEADLINE, SLIPPED, TIGHT, WIDE, drawn, run_passes

LEVEL_REASONS = ("ORDER", "STOP", "BREAKEVEN", "TRAIL", "TARGET", "FLAT")


def real(market: str, contracts: int, overnight: bool = False, **data: str) -> tuple[RunConfig, EnvParams]:
    """Every session of bundled bars, account rules off, commission in whole cents, no slippage."""
    config = make_config({
        "data": {"market": market, **data}, "session": {"overnight": overnight},
        "account": {"preset": "rules_off_50k"}, "env": {"quantity": contracts, "random_start": False},
        "costs": {"commission": 2.08, "slippage": 0}})
    bars = build_market(bars_of(config).sides[0], config)  # that engine has one price for buying and selling
    return config, make_params(bars, split_sessions(bars, config.split)["all"], config)


def test_es_week():
    """The default run's week as configured, then other brackets and costs."""
    config, params = real("ES", contracts=2)
    total = compare_random(config.env, params, seed=1)
    total.add(run_passes(config.env, params, (HEADLINE, TIGHT, SLIPPED), first_seed=10))
    print(f"ES: {total}")
    assert total.trades >= 1_000
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total


def test_eurusd_hours():
    """A year and a half of hours; one lot."""
    config, params = real("EURUSD", contracts=1, start="2012-01-01", end="2013-06-30")
    total = run_passes(config.env, params, (HEADLINE, SLIPPED), first_seed=20)
    print(f"EURUSD: {total}")
    assert total.trades >= 2_000
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total


@pytest.mark.slow
def test_es_every_contract():
    """All bundled ES bars: three expiries, day and overnight windows, halts, thin bars, random settings."""
    total = Tally()
    selections = (
        {"expiry": "201312", "start": "2013-10-01", "end": "2013-12-31", "overnight": True},
        {"expiry": "201312", "start": "2013-10-01", "end": "2013-12-31"},
        {"expiry": "201403", "start": "2013-10-01", "end": "2013-12-31", "overnight": True},
        {"expiry": "202003", "start": "2020-01-01", "end": "2020-12-31", "overnight": True},
    )
    for number, selection in enumerate(selections):
        config, params = real("ES", contracts=1 + number, **selection)
        settings = (HEADLINE, TIGHT, SLIPPED, WIDE, *(drawn(100 * number + i) for i in range(4)))
        total.add(run_passes(config.env, params, settings, first_seed=1_000 * number))
    print(f"ES: {total}")
    assert total.trades >= 15_000
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total


@pytest.mark.slow
def test_eurusd_every_hour():
    """Twelve years of hours, random settings."""
    config, params = real("EURUSD", contracts=1)
    settings = (HEADLINE, TIGHT, SLIPPED, WIDE, *(drawn(i) for i in range(4)))
    total = run_passes(config.env, params, settings, first_seed=50)
    print(f"EURUSD: {total}")
    assert total.trades >= 100_000
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total
