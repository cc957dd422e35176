"""Every feature of the old system on real bars: the package's observation window against the
oracle's, slot by slot.
"""

import dataclasses
import datetime as dt
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.features.schema import CONTEXT_FEATURES, NO_VOLUME, SEED_FEATURES
from jaxtrade.data.market import build_market, load_market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import AccountSeen
from jaxtrade.env.params import make_env, make_params
from jaxtrade.env.state import ObservationRef, bits_of
from jaxtrade.evaluation.policy import absent_slots
from jaxtrade.types import SessionSet
from tests.oracle import context_indicators, seed_indicators
from tests.oracle.features import Features
from tests.oracle.model import Settings
from tests.oracle.real import oracle_bars

FEATURES = (*SEED_FEATURES, *context_indicators.COLUMNS)
WARM_UP = 239  # a window of 20 bars, the oldest with the slope over 20 bars of its 200-bar mean
CASES = {
    "ES": ({"market": "ES"}, 0.25, {}),
    "EURUSD": (
        {"market": "EURUSD", "start": "2016-11-01", "end": "2017-01-31"},
        0.00001,
        {
            "fx": True,
            "restarts": (dt.date(2016, 12, 16),),
            "flat_times": {dt.date(2016, 12, 30): (13, 59)},
        },
    ),
    "ES-no-volume": ({"market": "ES"}, 0.25, {}),
}


def config_of(name, scaling="relative"):
    return make_config(
        {
            "data": CASES[name][0],
            "env": {"task": "advised", "features": list(FEATURES), "scaling": scaling},
        }
    )


@functools.cache
def market_of(name, scaling="relative"):
    market = load_market(config_of(name, scaling))
    if name != "ES-no-volume":
        return market
    silent = dataclasses.replace(market.bars, volume=np.zeros_like(market.bars.volume))
    return build_market(silent, config_of(name, scaling))


@functools.cache
def oracle_of(name):
    _, tick, calendar = CASES[name]
    settings = Settings(tick_size=tick, features=FEATURES)
    return Features(oracle_bars(market_of(name), WARM_UP, **calendar).mid, settings)


def test_the_oracle_has_its_own_list_of_the_42():
    others = {
        "close",
        "volume",
        "sma_5",
        "sma_20",
        "rsi",
        "macd",
        "momentum",
        "atr",
        "vwap",
        "sma_50",
        "sma_200",
    }
    assert set(SEED_FEATURES) == {*seed_indicators.COLUMNS, *others}
    assert list(CONTEXT_FEATURES) == context_indicators.NAMES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scaling"),
    [*((name, "seed") for name in CASES), ("ES-no-volume", "relative")],
)
def test_every_slot_of_the_window_agrees(name, scaling):
    market, oracle = market_of(name, scaling), oracle_of(name)
    config = config_of(name, scaling)
    count = market.num_sessions
    sessions = SessionSet(ids=jnp.arange(count, dtype=jnp.int32), count=jnp.int32(count))
    env, params = TradingEnv(config.env), make_params(market, sessions, config)
    table = market.data.sessions
    rows = np.concatenate(
        [
            np.arange(a, b + 1)
            for a, b in zip(np.asarray(table.first), np.asarray(table.last), strict=True)
        ]
    )
    rows = np.random.default_rng(0).choice(rows, min(200, len(rows)), replace=False)
    legs = jnp.zeros((len(rows), 1, 5), jnp.int32)
    none = jnp.zeros(len(rows), jnp.int32)
    ref = ObservationRef(
        jnp.asarray(rows, jnp.int32)[:, None],
        legs,
        AccountSeen(*[none] * 8),
        bits_of(jnp.ones((len(rows), env.num_actions), bool)),
        (),
        env.num_actions,
    )
    seen = np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(ref, params))
    width = len(FEATURES) + 3
    context = seen[:, [env.spec.names.index(f"{name}[t]") for name in context_indicators.NAMES]]
    wanted = np.stack([oracle.context(int(row), scaling) for row in rows])
    assert np.isfinite(wanted).all()
    for j, feature in enumerate(context_indicators.NAMES):
        np.testing.assert_allclose(
            context[:, j], wanted[:, j], rtol=1e-5, atol=1e-5, err_msg=feature
        )
    seen = seen[:, : 20 * width].reshape(len(rows), 20, width)
    expected = np.stack([oracle.window(int(row), scaling) for row in rows]).reshape(seen.shape)
    assert np.isfinite(expected).all()
    for j, feature in enumerate(FEATURES):
        np.testing.assert_allclose(
            seen[..., j], expected[..., j], rtol=1e-5, atol=1e-5, err_msg=feature
        )


def test_slots_without_volume_are_marked_absent():
    env = make_env(config_of("ES"))
    assert absent_slots(env, market_of("ES")) == []
    names = (
        "volume",
        "mfi",
        "vwap",
        "price_to_vwap",
        "volume_ratio_5min",
        "volume_ratio_20min",
        "volume_regime",
    )
    context = ("price_to_vwap", "volume_regime", "volume_ratio_5min", "volume_ratio_20min")
    assert absent_slots(env, market_of("ES-no-volume")) == [
        *(f"{name}[t-{back}]" for back in range(20, 0, -1) for name in names),
        *(f"{name}[t]" for name in context),
    ]
    assert NO_VOLUME in market_of("ES-no-volume").notes
    assert NO_VOLUME not in market_of("ES").notes
