"""Markets in one shape: one compiled program for all of them, and each keeps its own bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import sections_of
from jaxtrade.env import orders
from jaxtrade.env.params import make_params
from jaxtrade.errors import DataError
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.evaluation.members import in_one_shape
from jaxtrade.evaluation.record import Steps, decision_bars, longest
from jaxtrade.types import Quotes, TickValue
from tests.evaluation.tiny import setup, tiny_market, walk

LENGTHS = ([60, 60, 40], [50, 30])
MARKETS = [
    tiny_market(walk(lengths, seed=i, scale=6.0), lengths) for i, lengths in enumerate(LENGTHS)
]
SECTIONS = sections_of(
    {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "num_shards": 1, "hidden": [16]}
)
KEY = jax.random.key(3)


def all_sessions(market):
    return market.sessions(*range(market.num_sessions))


@pytest.fixture(scope="module")
def made():
    """(environment, parameters of each market alone): the second market is two-sided and converts
    its profits.
    """
    env, dollars, config = setup(MARKETS[0], all_sessions(MARKETS[0]), **SECTIONS)
    other = make_params(MARKETS[1], all_sessions(MARKETS[1]), config)  # type: ignore[arg-type]
    data, rows = other.market, len(other.market.close)
    ask = Quotes(data.open + 2, data.high + 3, data.low + 1, data.close + 2)
    rate = jnp.asarray(np.random.default_rng(0).integers(90_000, 110_000, rows), jnp.int32)
    converting = other.replace(
        market=data.replace(ask=ask, tick_value=TickValue(1_000_000_000 // rate, rate // 7)),
        contract=other.contract.replace(tick_mills=None),
    )
    return env, config, [dollars, converting]


@pytest.mark.slow
def test_no_market_is_traced_again(made):
    env, _, alone = made
    together = in_one_shape(alone)
    steps = longest([decision_bars(each.market, each.sessions) for each in alone])
    traces = []

    def counted(carry, state, ref, params, key):
        traces.append(1)
        return carry, orders.hold(state), jnp.int32(0)

    agent = Agent("counted", counted, None, "stays flat, and counts how often it is traced")
    counts = []
    for padded in together:
        for which in ("account", "strategy"):
            backtest(
                env, agent, padded, decision_bars(padded.market, padded.sessions, steps), which, KEY
            )
        counts.append(len(traces))
    assert counts == [3] * len(together)  # what the agent carries, then the program of each pass


def test_one_market_stays_as_it_is(made):
    assert in_one_shape(made[2][:1])[0] is made[2][0]


def test_a_program_with_too_few_steps_is_refused(made):
    params = made[2][0]
    with pytest.raises(DataError, match=r"bars=157, longest=59, sessions=3"):
        decision_bars(params.market, params.sessions, Steps(3, 60, 9))


def test_markets_of_other_features_are_refused(made):
    one, other = made[2]
    changed = other.replace(
        market=other.market.replace(view=other.market.view.replace(scaling="seed"))
    )
    with pytest.raises(ValueError, match="one configuration"):
        in_one_shape([one, changed])
