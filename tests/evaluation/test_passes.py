"""The account pass with its sessions side by side: the bits of the plain scan, and a claim that is
wrong is noticed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env.state import KEEP_STOP, Order
from jaxtrade.evaluation import backtest
from jaxtrade.evaluation.backtest import Lane, account_starts, run_lanes, run_passes, run_sessions
from jaxtrade.evaluation.baselines import Agent, buy_and_hold
from jaxtrade.evaluation.record import decision_bars
from tests.evaluation import tiny
from tests.evaluation.sequential import in_sequence
from tests.evaluation.test_side_by_side import agents_of, lanes_of, made
from tests.evaluation.tiny import hand_market
from tests.rl.test_train import assert_same

DAYS = ("network.hidden=[16]", "data.start=2013-10-09")  # three days of real bars
WEEKS = (
    "data.source=synthetic",
    "data.synthetic_sessions=40",
    "data.synthetic_seed=3",
    "network.hidden=[16]",
)


def check(setup, lanes, monkeypatch, in_turn=0):
    """Both passes equal the plain scan. in_turn: the number of agents that need it."""
    scanned = []

    def counted(env, lanes, *rest):
        scanned.append(len(lanes))
        return run_lanes(env, lanes, *rest)

    monkeypatch.setattr(backtest, "run_lanes", counted)
    found = run_passes(setup.env, lanes)
    for which, records in found.items():
        for lane, record in zip(lanes, records, strict=True):
            assert_same(
                record,
                in_sequence(setup.env, *lane[:3], which, lane.key, False),
                f"{lane.agent.name}, {which}",
            )
    assert sum(scanned) == in_turn
    return found


@pytest.mark.slow
def test_an_account_that_ends_and_goes_on(monkeypatch):
    """A floor so near that accounts end again and again; the agents are a policy that draws, and
    random trades.
    """
    setup, policies = made(*DAYS, "account.drawdown=100")
    agents = agents_of(setup, policies[:1])
    found = check(setup, lanes_of(setup, [agents[1], agents[3]]), monkeypatch)
    assert all(record.account[-1] >= 2 for record in found["account"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        (
            "account.trailing=static",
            "account.drawdown=400",
            "account.profit_target=300",
            "account.on_target=terminate",
        ),
        ("network.kind=gru", "network.rnn_width=8", "account.drawdown=500"),
    ],
)
def test_rules_tasks_and_networks(keys, monkeypatch):
    setup, policies = made(*WEEKS, *keys)
    check(setup, lanes_of(setup, agents_of(setup, policies[:1])), monkeypatch)


def test_an_account_opens_where_the_one_before_has_ended():
    """$45.84 a session: the target of $80 is reached in the second, and the third begins at 0."""
    account = {"drawdown": "off", "daily_loss": "off", "profit_target": 80.0}
    market = hand_market(4)
    env, params, _ = tiny.setup(market, market.every, account=account)
    decisions = decision_bars(market.data, market.every)
    lane = Lane(buy_and_hold(env), params, decisions, jax.random.key(0))
    starts = account_starts(env, lane, run_lanes(env, [lane], "strategy")[0])
    assert np.asarray(starts.balance).tolist() == [0, 45_840, 0, 45_840]
    assert np.asarray(starts.number).tolist() == [0, 0, 1, 1]


def careful(carry, state, ref, params, key):
    """Trades by chance, as long as its account has not lost money."""
    del ref, params
    drawn = jax.random.randint(key, (), -1, 2)
    wanted = jnp.where(state.account.balance >= 0, drawn, 0)
    none = jnp.int32(0)
    return carry, Order(wanted, none, none, jnp.int32(KEEP_STOP), jnp.int32(-1)), jnp.int32(-1)


@pytest.mark.slow
def test_an_agent_that_sees_its_account_is_stepped_in_turn(monkeypatch):
    setup, _ = made(*DAYS)
    agent = Agent("careful", careful, None, "trades while its account has lost nothing")
    check(setup, lanes_of(setup, [agent]), monkeypatch, in_turn=1)


@pytest.mark.slow
def test_a_wrong_start_is_no_record():
    setup, policies = made(*DAYS)
    [lane] = lanes_of(setup, agents_of(setup, policies[:1])[3:4])
    [strategy] = run_lanes(setup.env, [lane], "strategy")
    starts = account_starts(setup.env, lane, strategy)
    assert run_sessions(setup.env, [lane], "account", [starts])[0] is not None
    for column in ("balance", "high_water"):
        wrong = getattr(starts, column).copy()
        wrong[len(wrong) // 2] += 1
        changed = starts._replace(**{column: wrong})
        assert run_sessions(setup.env, [lane], "account", [changed]) == [None]


@pytest.mark.slow
def test_episodes_of_several_sessions_are_refused():
    setup, policies = made("network.hidden=[16]", "episode.sessions=2")
    [lane] = lanes_of(setup, agents_of(setup, policies[:1])[:1])
    zero = np.zeros(5, np.int64)
    with pytest.raises(ValueError, match=r"if episode\.sessions is 1"):
        run_sessions(setup.env, [lane], "account", [backtest.AccountStart(zero, zero, zero, zero)])
