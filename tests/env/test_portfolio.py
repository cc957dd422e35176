"""`allocate` by hand: tables, masks, costs, joint liquidation, the join of bars, refusals."""

from dataclasses import replace
from math import isqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxtrade.config import EnvConfig, make_config
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.data.markets import join_bars, load_markets
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import make_env, make_params
from jaxtrade.env.portfolio import observation
from jaxtrade.env.portfolio.dynamics import root_of, share_of
from jaxtrade.env.portfolio.params import make_portfolio_params, portfolio_weights
from jaxtrade.env.portfolio.state import CostParams
from jaxtrade.env.reward_presets import one_symbol_weights
from jaxtrade.env.state import ExitReason
from jaxtrade.errors import ConfigError, DataError
from tests.golden.engines import TICK, symbol_of
from tests.messages import refused
from tests.oracle.portfolio import Settings, half_even, join
from tests.oracle.portfolio_worlds import portfolio_env, portfolio_params

ALLOCATE = EnvConfig(task="allocate")
PAIR = ("EURUSD", "USDJPY")
FLAT_ROW = (1_000, 1_000, 1_000, 1_000)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_names_and_targets_of_the_tables():
    assert observation.action_names(AllocateConfig(), PAIR)[:4] == (
        "FLAT_EURUSD_FLAT_USDJPY",
        "FLAT_EURUSD_LONG_USDJPY",
        "FLAT_EURUSD_SHORT_USDJPY",
        "LONG_EURUSD_FLAT_USDJPY",
    )
    assert [
        len(observation.action_names(AllocateConfig(actions=kind), PAIR))
        for kind in ("product", "increment", "table")
    ] == [9, 5, 3]
    assert observation.action_names(AllocateConfig(actions="increment"), PAIR) == (
        "HOLD",
        "BUY_EURUSD",
        "SELL_EURUSD",
        "BUY_USDJPY",
        "SELL_USDJPY",
    )
    units = jnp.array([1, -1])
    found = observation.list_targets(
        AllocateConfig(actions="increment"), units, jnp.int32(2)
    ).tolist()
    assert found == [[1, -1], [2, -1], [0, -1], [1, 0], [1, -2]]
    assert observation.list_targets(
        AllocateConfig(actions="table"), units, jnp.int32(2)
    ).tolist() == [
        [0, 0],
        [2, 2],
        [-2, -2],
    ]
    assert observation.list_targets(AllocateConfig(), units, jnp.int32(1)).tolist()[5] == [1, -1]


def test_one_symbol_has_three_targets():
    assert observation.action_names(AllocateConfig(), ("ES",)) == (
        "FLAT_ES",
        "LONG_ES",
        "SHORT_ES",
    )


# --- masks ------------------------------------------------------------------------------------------------------------


def masked(chosen, held, row, locked=False, **state):
    """The mask at a bar of a session of 12 bars."""
    env = portfolio_env(chosen, ("A", "B"))
    params = portfolio_params(join([symbol_of([FLAT_ROW] * 12)] * 2), chosen)
    start = env.reset_at(params, 0, row)
    legs = start.legs.replace(quantity=jnp.array(held, jnp.int32))
    account = start.account.replace(locked=jnp.bool_(locked))
    counts = {name: jnp.int32(value) for name, value in state.items()}
    return env.mask(start.replace(legs=legs, account=account, **counts), params).tolist()


PRODUCT = Settings(actions="product")
INCREMENT = Settings(actions="increment", max_units=2)
NINE = [True] * 9


def only(*ids):
    return [i in ids for i in range(9)]


@pytest.mark.parametrize(
    ("chosen", "held", "row", "state", "mask"),
    [
        (PRODUCT, (0, 0), 2, {}, NINE),
        (
            replace(PRODUCT, cooldown=2),
            (1, 0),
            5,
            {"last_order": 3},
            only(3),
        ),  # LONG_A_FLAT_B is what it has
        (replace(PRODUCT, cooldown=2), (1, 0), 5, {"last_order": 2}, NINE),  # two bars have passed
        (replace(PRODUCT, gate=3), (0, 1), 4, {}, only(1)),
        (replace(PRODUCT, gate=3), (0, 1), 6, {}, NINE),
        (
            replace(PRODUCT, trades_per_day=3),
            (0, 0),
            2,
            {"orders": 2},
            only(0, 1, 2, 3, 6),
        ),  # one leg may still change
        (
            PRODUCT,
            (1, -1),
            10,
            {},
            only(0, 2, 3, 5),
        ),  # one bar to the flat bar: nothing may be opened or turned round
        (replace(PRODUCT, max_total=1), (0, 0), 2, {}, only(0, 1, 2, 3, 6)),
        (replace(PRODUCT, size=(2, 3), max_contracts=3), (0, 0), 2, {}, only(0, 1, 2, 3, 6)),
        # a locked account may only reduce
        (PRODUCT, (1, 0), 2, {"locked": True}, only(0, 3)),
        # an increment stops at the cap
        (INCREMENT, (2, -2), 2, {}, [True, False, True, True, False]),
    ],
)
def test_masks_by_hand(chosen, held, row, state, mask):
    assert masked(chosen, held, row, **state) == mask


# --- costs ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2_000_000_000))
@example(3)
@example(46_340**2 - 1)
@example(44_721**2 - 1)
@example(44_721**2)
@settings(max_examples=200)
def test_the_root_is_exact(value):
    assert int(root_of(jnp.int32(value))) == isqrt(value)


def costs(fee=0, rate=None, impact=None):
    return CostParams(
        jnp.int32(fee),
        None if rate is None else jnp.int32(rate),
        None if impact is None else jnp.int32(impact),
        jnp.int32(100_000_000),
    )


@pytest.mark.slow
@given(st.integers(0, 1_900_000_000), st.integers(0, 10_000), st.integers(0, 1_000))
@settings(max_examples=200)
def test_a_share_is_rounded_once(value, hundredths, tenths):
    """Against Python's integers, half to even."""
    found = int(share_of(jnp.int32(value), costs(rate=1000 * hundredths, impact=tenths)))
    root = isqrt(half_even(value * 10**8, 100_000_000))
    assert found == half_even(value * (1000 * hundredths + tenths * root), 10**9)


# --- joint liquidation ------------------------------------------------------------------------------------------------


FALL = (1000, 1000, 990, 995)


def liquidated(second, drawdown, first=FALL):
    """Long A, short B at 1,000; the next bars are A's, `first`, and B's, `second`."""
    chosen = Settings(actions="product", drawdown=drawdown, commission=(0, 0), slippage=(1, 0))
    env = portfolio_env(chosen, ("A", "B"))
    rows = [[FLAT_ROW, FLAT_ROW, after, after, after] for after in (first, second)]
    params = portfolio_params(join([symbol_of(each) for each in rows]), chosen)
    state, want = env.reset_at(params, 0, 0), jnp.array([1, -1], jnp.int32)
    state, _ = env.transition(state, want, params)
    return jax.tree.map(np.asarray, env.transition(state, want, params))


@pytest.mark.parametrize(
    ("second", "floor", "first", "prices", "high_water"),
    [
        # A falls 10 ticks and B rises 5: D = 10. After A's entry slippage of one tick the account is
        # down one tick, and the drawdown is 9: at step 5 A has lost 5 and B ceil(2.5) = 3, together 8
        # and with the slippage 9. A's exit is slipped by one tick.
        ((1000, 1005, 1000, 1000), 9, FALL, [1000 - 5 - 1, 1000 + 3], 0),
        # B falls with A, but its favourable extreme and A's adverse one are taken to come together
        # with B's adverse one: B stays at its open of 1,000 at worst. Both favourable extremes raise
        # the mark to +19: the floor is at +10, met at the opens already: step 0.
        ((1000, 1000, 980, 985), 9, FALL, [1000 - 0 - 1, 1000], 19),
        # The worst prices just reach the floor: 1 tick of slippage, 10 of A and 5 of B are 16.
        ((1000, 1005, 1000, 1000), 16, FALL, [1000 - 10 - 1, 1000 + 5], 0),
        # The same 16 ticks at the opens: what A gains later in the bar raises no high-water mark.
        ((1005, 1005, 1005, 1005), 16, (990, 1020, 990, 990), [990 - 1, 1005], 0),
    ],
)
def test_both_legs_leave_at_the_first_step_that_meets_the_floor(
    second, floor, first, prices, high_water
):
    state, event = liquidated(second, floor * TICK, first)
    assert event.exit_quantity.tolist() == [-1, 1]
    assert event.exit_reason.tolist() == [ExitReason.LIQUIDATION] * 2
    assert event.exit_price.tolist() == prices
    assert bool(event.breach)
    assert int(state.account.high_water) == high_water * TICK


def test_without_a_floor_in_reach_nothing_leaves():
    state, event = liquidated((1000, 1005, 1000, 1000), 17 * TICK)
    assert event.exit_quantity.tolist() == [0, 0]
    assert int(state.account.equity) == (-1 - 5 - 0) * TICK
    assert event.profit.tolist() == [-5 * TICK, 0]


# --- the join ---------------------------------------------------------------------------------------------------------


def test_skipped_bars_lose_no_extreme():
    """B lacks the second bar; A's second and third bars are one shared bar."""
    a = symbol_of([(10, 11, 9, 10), (10, 30, 10, 12), (12, 13, 2, 8), (8, 9, 7, 8)])
    b = replace(
        symbol_of([(5, 5, 5, 5), (5, 6, 4, 5), (5, 5, 5, 5)]),
        stamps=[0, 120, 180],
        sessions={0: (0, 2)},
    )
    shared = join([a, b])
    assert shared.symbols[0].bid.open == [10, 10, 8]
    assert shared.symbols[0].bid.high == [11, 30, 9]
    assert shared.symbols[0].bid.low == [9, 2, 7]
    assert shared.symbols[0].bid.close == [10, 8, 8]
    assert shared.rows[0] == [0, 2, 3]


# --- refusals ---------------------------------------------------------------------------------------------------------


def values(**sections):
    data = {"source": "synthetic", "markets": ["MES", "MNQ"], "synthetic_sessions": 3}
    return {"data": data, "env": {"task": "allocate"}} | sections


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"env": {"task": "allocate", "fill": "close", "mark": "close"}}, "env.fill=close"),
        (
            {"env": {"task": "allocate", "intrabar": "nearer_extreme"}},
            "env.intrabar=nearer_extreme",
        ),
        ({"env": {"task": "allocate", "quantity": 2}}, "size is allocate.size"),
        ({"brackets": {"stop_atr": 2.0}}, "brackets: not with"),
        ({"stages": {"forced_start": 0.5}}, "stages.forced_start=0.5"),
        ({"sampler": {"kind": "balanced"}}, "sampler: not with"),
        ({"allocate": {"size": [1, 2, 3]}}, "size has 3 numbers for 2"),
        ({"allocate": {"cost_bp": 0.125}}, "multiple of 0.01"),
        ({"allocate": {"impact_bp": 0.25}}, "multiple of 0.1"),
        (
            {"env": {"task": "manage"}, "allocate": {"gate": 2}},
            "need env.task=allocate",
        ),
        (
            {"allocate": {"preset": "dual_26"}, "data": {"market": "MES"}},
            "data.markets has 1",
        ),
        ({"allocate": {"gates": 2}}, "'allocate.gate'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(given, text):
    with refused(text):
        make_config(values(**given), "test")


def test_terms_of_several_symbols_are_refused_for_one():
    config = make_config({"reward": {"preset": "jules_v2"}}, "test")
    with pytest.raises(ConfigError, match=r"turnover_squared, return_squared: "):
        one_symbol_weights(config.reward)


def test_terms_that_need_brackets_are_refused():
    config = make_config(values(reward={"preset": "seed_phase2"}), "test")
    with pytest.raises(ConfigError, match="breakeven_moved, trail_enabled: "):
        portfolio_weights(config.reward)


@pytest.fixture(scope="module")
def market():
    return load_markets(make_config(values(), "test"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"size": [200]}, "100 contracts in all"),
        ({"size": [100], "max_units": 100}, "must stay below"),
        ({"impact_bp": 1.0, "impact_base": 500.0}, "at most 20 times"),
        ({"size": [9]}, None),
    ],
)
def test_money_that_could_pass_int32_is_refused(market, given, text):
    config = make_config(values(allocate=given), "test")
    if text is None:
        assert make_portfolio_params(market, None, config).limits.size.tolist() == [9, 9]  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigError, match=text):
        make_portfolio_params(market, None, config)  # type: ignore[arg-type]  # the limits come first


def test_bars_of_other_years_have_no_shared_session(market):
    first, second = market.members
    late = replace(second, trade_dates=second.trade_dates + np.timedelta64(900, "D"))
    with pytest.raises(DataError, match="no trade date"):
        join_bars([first, late])


def test_parameters_are_made_by_the_same_functions_as_those_of_one_symbol():
    config = make_config(values(split={"test_sessions": 0}), "test")
    market = load_markets(config)
    sessions = split_sessions(market, config.split)["train"]
    params = make_params(market, sessions, config)
    assert params.market is market.data
    assert int(sessions.count) == market.num_sessions
    assert make_env(config).symbols == market.symbols
