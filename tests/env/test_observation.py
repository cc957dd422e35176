"""What a rollout stores instead of observations, and the names of what is rebuilt from it."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.data.features.schema import context_features
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.observation import advice_slots, make_spec
from jaxtrade.env.state import ObservationRef, bits_of
from jaxtrade.errors import ConfigError
from jaxtrade.parts import TASKS
from tests.env.worlds import make_params, walk_market

# The old system's slots by its own numbers, written down from its description.
WINDOW = (
    "close",
    "volume",
    "sma_5",
    "sma_20",
    "rsi",
    "macd",
    "momentum",
    "atr",
    "hour",
    "minutes_from_open",
    "minutes_to_close",
)
BEHIND = (  # slots 220 to 260
    "position",
    "entry",
    "stop_distance",
    "target_distance",
    "bars_in_position",
    "can_enter",
    "can_manage",
    "has_position",
    "adx_slope[t]",
    "price_to_vwap[t]",
    "vol_regime[t]",
    "volume_regime[t]",
    "price_momentum_20[t]",
    "price_momentum_60[t]",
    "efficiency_ratio[t]",
    "spread[t]",
    "session_trend[t]",
    "trend_strength[t]",
    "sma_50_slope[t]",
    "sma_200_slope[t]",
    "rsi_15min[t]",
    "rsi_60min[t]",
    "volume_ratio_5min[t]",
    "volume_ratio_20min[t]",
    "price_change_60min[t]",
    "price_vs_support[t]",
    "higher_high[t]",
    "lower_low[t]",
    "higher_low[t]",
    "lower_high[t]",
    "double_top[t]",
    "double_bottom[t]",
    "support_20[t]",
    "resistance_20[t]",
    "breakout_signal[t]",
    "breakdown_signal[t]",
    "unrealised_profit",
    "balance_drawdown",
    "losses_in_a_row",
    "recent_win_rate",
    "excursion_ratio",
)
ADVICE = (
    "advice_hold",
    "advice_buy",
    "advice_sell",
    "advice_confidence",
    "advice_risk",
    "advice_valid",
    "advice_age",
)


@pytest.mark.parametrize("scaling", ["seed", "relative"])
def test_every_slot_by_name(scaling):
    window = [f"{name}[t-{back}]" for back in range(20, 0, -1) for name in WINDOW]
    assert len(window) == 220
    everything = [*window, *BEHIND]
    for task, size in (("entry", 225), ("manage", 228), ("advised", 261)):
        config = EnvConfig(task=task, scaling=scaling, actions="seed6")  # type: ignore[arg-type]
        assert list(make_spec(config).names) == everything[:size]
    with_advice = make_spec(EnvConfig(task="advised", scaling=scaling, advice=True))  # type: ignore[arg-type]
    assert list(with_advice.names) == [*everything, *ADVICE]
    assert {slot.unit for slot in with_advice.slots[-7:]} == {"advice"}
    units = {slot.name: slot.unit for slot in with_advice.slots}
    assert [units[name] for name in ("support_20[t]", "vol_regime[t]", "recent_win_rate")] == [
        "price",
        "move",
        "account",
    ]
    assert max(slot.warm_up for slot in with_advice.slots) == 220


@pytest.mark.slow
def test_advice_is_absent():
    """Zeros behind the 261 slots, which are the same bits with and without them."""
    params = make_params(walk_market(1, sessions=2, context=True))
    plain, advised = (
        TradingEnv(EnvConfig(task="advised", advice=advice)) for advice in (False, True)
    )
    ref = plain.ref(plain.reset_at(params, 0, 60), params)
    without, shown = (np.asarray(env.observe(ref, params)) for env in (plain, advised))
    assert shown.shape == (268,)
    assert shown[:261].tobytes() == without.tobytes()
    assert not shown[261:].any()
    assert advice_slots(None).dtype == jnp.float32


@pytest.mark.parametrize(("quantity", "bars"), [(2, 3), (-1, 3), (0, 0)])
def test_bars_in_position_count_the_entry_bar_and_the_present_one(quantity, bars):
    """Opened in bar 58, seen at the close of bar 60."""
    params = make_params(walk_market(1, sessions=2))
    env = TradingEnv(EnvConfig())
    state = env.reset_at(params, 0, 60)
    position = state.position.replace(quantity=jnp.int32(quantity), opened=jnp.int32(58))
    ref = env.ref(state.replace(position=position), params)
    assert int(ref.legs[0, 4]) == bars
    shown = dict(zip(env.spec.names, np.asarray(env.observe(ref, params)), strict=True))
    assert shown["bars_in_position"] == np.float32(bars / 390)


def test_the_table_of_contexts_is_that_of_the_tasks():
    """Data read the table; the observation reads the task."""
    for name in ("entry", "manage", "advised"):
        assert context_features(name) == TASKS[name].context


def test_a_market_without_context_is_an_error():
    params = make_params(walk_market(1, sessions=2))
    env = TradingEnv(EnvConfig(task="advised"))
    with pytest.raises(ConfigError, match="no features of context"):
        env.observe(env.ref(env.reset_at(params, 0, 60), params), params)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [1, 5, 7, 8, 9, 17])
def test_a_reference_keeps_the_mask_in_bits(actions):
    mask = np.random.default_rng(actions).random((3, 4, actions)) < 0.5
    bits = bits_of(jnp.asarray(mask))
    assert bits.dtype == jnp.uint8
    assert bits.shape == (3, 4, -(-actions // 8))
    empty = jnp.zeros((3, 4, 1), jnp.int32)
    ref = ObservationRef(empty, empty[..., None], None, bits, None, actions)
    np.testing.assert_array_equal(ref.mask, mask)
