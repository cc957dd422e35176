"""Several symbols in one market: each trades as it does alone, bit for bit, and never sees the
others.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.members import member_configs
from jaxtrade.env import rules
from jaxtrade.env.state import EndReason
from tests.env import worlds
from tests.env.sets import starts, synthetic, walk_symbols, world

STARTS, STEPS = 3, 120
EPISODE = {"episode": {"sessions": 2}, "account": {"drawdown": "off", "profit_target": "off"}}


@pytest.fixture(scope="module")
def two():
    """A set, and each of its symbols alone."""
    config = synthetic(("NQ", "USDJPY"), **EPISODE)
    return world(config), [world(each) for each in member_configs(config)]


@pytest.mark.slow
def test_each_of_two_symbols_trades_as_alone(two):
    """The same actions from the same bars leave the same states, observations and outcomes. NQ pays
    dollars and USDJPY yen, so NQ's money goes through the conversion of the set.
    """
    (together, alone), seed = two, 0
    numbers = range(len(alone))
    uniforms = np.random.default_rng(seed).random((len(alone), STARTS, STEPS))
    at = [starts(together, number, STARTS, seed) for number in numbers]
    seen = walk_symbols(together, numbers, at, uniforms)
    for number, own in zip(numbers, alone, strict=True):
        part = jax.tree.map(lambda leaf, n=number: leaf[n * STARTS : (n + 1) * STARTS], seen)
        other = walk_symbols(own, [0], [at[number]], uniforms[number])
        assert worlds.leaves_differ(part, other) == []
        assert (
            np.asarray(part.outcome.info.end)[0] == EndReason.SESSION_END
        ).any()  # at the symbol's last session
        assert np.abs(np.asarray(part.state.position.quantity)).any()


def test_one_symbol_has_the_program_of_its_market_alone():
    """The text of the whole step, and the parameters' bits."""
    alone = make_config(
        {
            "data": {
                "source": "synthetic",
                "market": "NQ",
                "synthetic_sessions": 3,
                "synthetic_seed": 10,
            },
            "split": {"test_sessions": 0},
        }
    )
    one, market = world(synthetic(("NQ",))), world(alone)
    assert worlds.leaves_differ(one.params, market.params) == []
    texts = [_step_text(each) for each in (one, market)]
    assert texts[0] == texts[1]
    assert (one.params.market.symbol, one.params.sessions.offsets, one.params.contract.cap) == (
        None,
        None,
        None,
    )


def _step_text(world):
    state, _ = jax.eval_shape(world.env.reset, jax.random.key(0), world.params)
    return (
        jax.jit(world.env.step)
        .lower(jax.random.key(0), state, jnp.int32(0), world.params)
        .as_text()
    )


@pytest.mark.slow
def test_other_symbols_cannot_be_seen(two):
    """The rows of USDJPY are overwritten, and NQ's walks keep their bits; and the other way
    round. A whole window of its own bars precedes every decision, and its flat bar is its own.
    """
    together, _ = two
    market, first = together.params.market, int(together.offsets[1])
    begins, symbols = np.asarray(market.sessions.first), np.asarray(market.symbol)
    own = symbols[begins]
    assert (begins - together.env.config.window >= np.asarray(together.offsets)[own]).all()
    assert (symbols[np.asarray(market.sessions.last) + 1] == own).all()
    uniforms = np.random.default_rng(5).random((2, STARTS, STEPS))
    at = [starts(together, number, STARTS, 5) for number in (0, 1)]
    clean = walk_symbols(together, [0, 1], at, uniforms)
    assert not np.isnan(np.asarray(clean.observation)).any()
    for number, hidden in ((0, slice(first, None)), (1, slice(None, first))):
        bad = market.replace(
            **{
                name: getattr(market, name).at[hidden].set(77)
                for name in ("open", "high", "low", "close", "tr_sum", "bars_to_flat")
            },
            view=market.view.replace(
                value=market.view.value.at[hidden].set(jnp.nan),
                now=market.view.now.at[hidden].set(jnp.nan),
            ),
        )
        other = walk_symbols(
            together._replace(params=together.params.replace(market=bad)), [0, 1], at, uniforms
        )
        own, others = (
            jax.tree.map(lambda leaf, n=number: leaf[n * STARTS : (n + 1) * STARTS], walk)
            for walk in (clean, other)
        )
        assert worlds.leaves_differ(own, others) == []
        assert np.isnan(np.asarray(other.observation)).any()


def test_each_symbol_has_its_own_cap_on_contracts():
    """Ten micros count as one mini: the account's 10 contracts are 100 MES."""
    params = world(synthetic(("ES", "MES"))).params
    assert params.contract.cap is not None
    assert params.contract.cap.tolist() == [10, 100]
    assert int(params.account.max_contracts) == 100


@pytest.mark.parametrize("count", [1, 2, rules.COMPARED, rules.COMPARED + 1, 127])
def test_an_entry_is_found_by_comparison_or_look_up(count):
    table = jnp.arange(count, dtype=jnp.int32) * 7 - 3
    found = jax.vmap(lambda number: rules.entry_of(table, number))(
        jnp.arange(count, dtype=jnp.int32)
    )
    np.testing.assert_array_equal(found, table)
