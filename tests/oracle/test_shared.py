"""The shared market agrees with a second one in plain Python: every fill, account, offset and mill
of the market maker.
"""

from dataclasses import replace

import pytest

from tests.oracle.events import random_market
from tests.oracle.markets import env_params
from tests.oracle.model import Ask, Settings
from tests.oracle.shared import Impact, compare, impact_arrays, make_rollout, play
from tests.oracle.test_real_bars import DEFAULT, bars_of, market_of
from tests.quotes import random_ask

AGENTS, WORLDS, STEPS = 5, 4, 300
TIGHT = Settings(
    drawdown=450_000,
    target=600_000,
    daily_loss=401_000,
    fail_on_daily_loss=True,
    risk_unit=450_000.0,
    episode_sessions=2,
    quantity=2,
)
LOCKS = replace(
    TIGHT, drawdown=901_000, fail_on_daily_loss=False, trailing="end_of_day", episode_sessions=3
)
IMPACTS = {
    "strong": Impact(kappa=700, eta=900, decay=930),
    "permanent": Impact(kappa=250, eta=0, decay=1000),
    "fleeting": Impact(kappa=5_000, eta=333, decay=0),
    "none": Impact(),
}


@pytest.fixture(scope="module")
def rollout():
    return make_rollout(TIGHT)


@pytest.fixture(scope="module")
def bars():
    return random_market(11, 8, incomplete=True)


@pytest.mark.parametrize("name", IMPACTS)
def test_every_fill_offset_and_mill(name, rollout, bars):
    impact, settings = IMPACTS[name], TIGHT if name != "permanent" else LOCKS
    params = env_params(bars, settings).replace(impact=impact_arrays(impact, settings, AGENTS))
    trace = play(rollout, params, settings, AGENTS, WORLDS, STEPS, seed=len(name))
    kinds = compare(trace, bars, settings, impact)
    assert (
        min(kinds[what] for what in ("order", "stop", "target", "flat", "renewed", "over")) > 0
    ), kinds
    assert (kinds["moved"] > 0) == (impact.kappa > 0)
    assert (kinds["paid"] > 0) == (impact.kappa + impact.eta > 0)


@pytest.mark.slow
def test_real_bars(rollout):
    """The bundled week of ES, as the package reads it; the oracle finds its sessions again."""
    settings, impact = replace(TIGHT, floor_cap=500_000), IMPACTS["strong"]
    bars = bars_of("ES", DEFAULT, 20)
    params = env_params(bars, settings, market_of("ES", DEFAULT, 20).data)
    params = params.replace(impact=impact_arrays(impact, settings, AGENTS))
    trace = play(rollout, params, settings, AGENTS, worlds=1, steps=600, seed=2)
    kinds = compare(trace, bars, settings, impact)
    assert (
        min(kinds[what] for what in ("order", "stop", "target", "flat", "moved", "paid", "renewed"))
        > 0
    ), kinds


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"intrabar": "nearer_extreme", "task": "entry", "quantity": 3}, {"mark": "close"}],
    ids=lambda changes: next(iter(changes)),
)
def test_two_sided_bars_and_other_orders_inside_a_bar(changes, bars):
    """The market maker's contracts are marked at the bid against longs and at the ask against
    shorts.
    """
    settings, impact = replace(TIGHT, slippage=0, **changes), IMPACTS["strong"]
    ask = Ask(
        *(prices.tolist() for prices in random_ask(3, bars.open, bars.high, bars.low, bars.close))
    )
    quoted = replace(bars, ask=ask)
    params = env_params(quoted, settings).replace(impact=impact_arrays(impact, settings, AGENTS))
    trace = play(make_rollout(settings), params, settings, AGENTS, WORLDS, STEPS, seed=1)
    kinds = compare(trace, quoted, settings, impact)
    assert min(kinds[what] for what in ("stop", "renewed", "over", "moved", "paid")) > 0, kinds
