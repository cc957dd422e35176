"""Prices beyond 2^24 ticks, as index CFDs with three decimals have: float32 holds them relative to
a base.
"""

from dataclasses import replace
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.device import price_base
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.errors import DataError

CFD = replace(
    get_contract("ES"), symbol="USTEC", tick_size=Decimal("0.001"), tick_mills=1, price_ranges=()
)
SHIFT_FREE = [
    "open",
    "high",
    "low",
    "close",
    "sma_5",
    "atr",
]  # seen as distances, so a shift of all prices is unseen
FIELDS = ("open", "high", "low", "close")


def config(**env):
    return make_config({"env": {"features": SHIFT_FREE, **env}})


def at(es_bars, points):
    """The real week with moves of 7 thousandths a tick, so that odd prices appear, around a level
    in points.
    """
    prices = {
        name: (
            (getattr(es_bars, name).astype(np.int64) - es_bars.open[0]) * 7 + points * 1000 + 123
        ).astype(np.int32)
        for name in FIELDS
    }
    return replace(es_bars, contract=CFD, **prices)


def observations(market, chosen):
    """What is seen in 40 steps of the first session, with a position from the first one on.
    float32[40, D].
    """
    env = TradingEnv(chosen.env)
    params = make_params(market, split_sessions(market, chosen.split)["train"], chosen)
    state, ref = env.reset(jax.random.key(0), params)
    step, seen = jax.jit(env.step), []
    for i in range(40):
        seen.append(np.asarray(env.observe(ref, params)))
        state, ref = step(jax.random.key(i), state, jnp.int32(1 if i == 0 else 0), params)[:2]
    return np.stack(seen)


def test_three_decimals_at_twenty_thousand_are_read(write):
    rows = [
        f"2013-10-07T13:{minute}:00Z,20000.123,20001.001,19999.999,20000.{100 + minute},7"
        for minute in range(30, 40)
    ]
    bars = load_bars(write(rows), CFD, stamp="open")
    assert bars.open[0] == 20_000_123
    assert bars.close.tolist() == [20_000_100 + minute for minute in range(30, 40)]


@pytest.mark.slow
def test_the_same_moves_are_seen_alike_at_any_level(es_bars):
    """Bit for bit what is seen at 2,000 points, where float32 holds every price without a base."""
    low, high = (build_market(at(es_bars, points), config()) for points in (2_000, 20_000))
    assert low.data.view.base is None
    assert high.data.view.base is not None
    assert abs(int(high.data.view.base) - 20_000_000) < 1_000_000
    one, two = observations(low, config()), observations(high, config())
    assert np.ptp(one[:, -10:], axis=0).max() > 0
    assert one.tobytes() == two.tobytes()


@pytest.mark.slow
def test_the_base_does_not_depend_on_what_is_seen(es_bars):
    """A higher price on the last day moves the base, and nothing that is seen before."""
    bars = at(es_bars, 20_000)
    last = bars.high.copy()
    last[-1] += 1_000_001
    moved = replace(bars, high=last)
    one, two = (build_market(each, config()) for each in (bars, moved))
    assert int(one.data.view.base) != int(two.data.view.base)
    assert observations(one, config()).tobytes() == observations(two, config()).tobytes()


@pytest.mark.slow
def test_raw_values_are_those_of_the_prices(es_bars):
    """env.scaling=seed shows points and ratios: float32's own rounding, and no more."""
    chosen = config(scaling="seed")
    market = build_market(at(es_bars, 20_000), chosen)
    seen = np.asarray(market.data.view.value)[:, SHIFT_FREE.index("close")]
    np.testing.assert_allclose(seen, market.bars.close / 1000, rtol=1e-7)
    held = observations(market, chosen)
    spec = TradingEnv(chosen.env).spec.names
    entry = held[1:, spec.index("entry")]
    assert np.all(np.abs(entry - 1) < 0.01)
    assert np.any(entry != 1)


def test_a_range_beyond_any_base_names_the_real_cause():
    assert price_base(1, (1 << 24) - 1, "x") == 0
    assert price_base(1 << 24, 1 << 25, "x") == 3 << 23
    with pytest.raises(DataError, match=r"bars\.csv: .* 1 .* 40000000 .*tick_size"):
        price_base(1, 40_000_000, "bars.csv")
