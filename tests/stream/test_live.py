"""What a policy sees on a stream is what it sees in an evaluation, and `decide` says what it does."""

import functools
import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxtrade
from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_env, make_params
from jaxtrade.errors import DataError
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import random_masked
from jaxtrade.evaluation.record import decision_bars, without_rules
from jaxtrade.runs.decide import decide_line
from jaxtrade.stream import Stream
from jaxtrade.stream.live import Holding, _look, _order, _see, _step
from tests.messages import refused, refuses


@functools.cache
def world(task, **data):
    """Configuration, bars, whole market, environment and parameters of its last session."""
    config = make_config({"data": data, "env": {"task": task}})
    bars = bars_of(config)
    market = build_market(bars, config)
    last = np.array([market.num_sessions - 1])
    sessions = session_set(last, market.num_sessions)
    return config, bars, market, make_env(config), make_params(market, sessions, config)


@functools.cache
def record_of(task, **data):
    """What random legal actions do in the last session, and what they see."""
    *_, market, env, params = world(task, **data)
    decisions = decision_bars(market.data, params.sessions)
    chosen = random_masked(env)
    record = backtest(env, chosen, params, decisions, "strategy", jax.random.key(3))
    return record, np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(record.ref, params))


@pytest.mark.parametrize("task", ["manage", "advised"])
def test_a_session_of_an_evaluation_is_seen_alike(task):
    """Position, trade record and account go on in `step`; a broker's report of the same position
    shows the same. Every program is compiled once."""
    config, bars, market, env, _ = world(task)
    record, observations = record_of(task)
    first = int(record.row[0])
    stream = Stream(config, bars.rows(slice(0, first)))
    stream._params = without_rules(stream._params)  # those of the pass, which no account ends
    row, state, sizes = stream.push(bars.rows(slice(first, first + 1))), None, None
    seen = stream.see()
    for i, at in enumerate(record.row.tolist()):
        assert row.decides
        assert np.array_equal(seen.mask, record.ref.mask[i]), at
        assert seen.observation.tobytes() == observations[i].tobytes(), at
        order, _ = _order(env, stream.params, seen.state, np.int32(record.action[i]))
        row = stream.push(bars.rows(slice(at + 1, at + 2)))
        state, event = stream.step(seen.state, order)
        assert int(event.exit_price) == record.event.exit_price[i]
        assert int(state.account.equity) == record.equity[i], at
        seen = stream.see_state(state)
        held, account = state.position, state.account
        report = Holding(
            *map(int, (held.quantity, held.entry, held.stop, held.target, held.trailing)),
            bars=int(state.row - held.opened + 1),
            equity=int(account.equity),
            high_water=int(account.high_water),
            locked=int(account.locked),
        )
        told = stream.see(report)
        assert np.array_equal(told.mask, seen.mask)
        if task == "manage":
            assert told.observation.tobytes() == seen.observation.tobytes()
        count = [each._cache_size() for each in (_see, _look, _step, _order)]
        sizes = sizes or count
        assert count == sizes
    assert row.flat
    assert not row.decides


def test_nothing_is_compiled_for_a_new_day():
    config = make_config({"data": {"market": "GBPUSD"}})
    bars = bars_of(config)
    end = len(bars) - 24 * 5
    stream, sizes = Stream(config, bars.rows(slice(0, end))), None
    for at in range(end, len(bars)):
        stream.push(bars.rows(slice(at, at + 1)))
        stream.see(Holding(1, int(bars.close[at]), equity=at) if at % 2 else Holding())
        sizes = sizes or _see._cache_size()
        assert _see._cache_size() == sizes
    assert len(np.unique(bars.trade_dates[end:])) >= 5


def test_an_account_at_its_floor_may_not_open():
    """The reference account of $50,000 has a drawdown of $2,500 from its highest equity."""
    config, bars, _, env, params = world("manage")
    first = int(params.market.sessions.first[-1])
    stream = Stream(config, bars.rows(slice(0, first)))
    stream.push(bars.rows(slice(first, first + 1)))
    buy, drawdown = env.actions.index("BUY"), int(params.account.drawdown)
    assert stream.see(Holding(equity=1 - drawdown, high_water=0)).mask[buy]
    assert not stream.see(Holding(equity=-drawdown, high_water=0)).mask[buy]


def test_what_cannot_be_streamed_is_refused():
    config, bars, *_ = world("manage")
    with refused("41", kind=DataError) as error:
        Stream(config, bars.rows(slice(0, 30)))
    assert "bars of history" in str(error.value)
