"""Late decisions: nothing changes without a latency, and each bar of it is worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env.actions import Action
from jaxtrade.env.state import ExitReason
from jaxtrade.evaluation import grids
from jaxtrade.evaluation.backtest import Lane, backtest, run_lanes
from jaxtrade.evaluation.baselines import NO_ACTION, Agent, PolicyAct, forget_episode, greedy
from jaxtrade.evaluation.evaluate import agent_key
from jaxtrade.evaluation.grids import LONGEST, TOO_LATE, delay_agent
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.rl.ppo import make_ppo
from tests.evaluation.tiny import WALK, hand_market, lively, rule, setup, tiny_market
from tests.rl.test_train import assert_same

KEY = jax.random.key(0)
HAND = hand_market(2)
H, B, S, C = Action.HOLD, Action.BUY, Action.SELL, Action.CLOSE


def scripted(env, actions, market=HAND):
    """Decides `actions` at the decision bars of the market's sessions, as a policy without a
    network.
    """
    rows = decision_bars(market.data, market.every).rows
    column = (
        jnp.zeros(len(market.bars.time), jnp.int32).at[rows].set(jnp.asarray(actions, jnp.int32))
    )
    return Agent("scripted", PolicyAct(env, read_column, False), (column, None), "", forget_episode)


def read_column(policy, memory, ref, params, key, explore):
    return memory, policy[ref.row[0]], None


def run(env, params, agent, bars, market=HAND):
    late = agent if bars is None else delay_agent(agent, env, bars)
    decisions = decision_bars(market.data, params.sessions)
    return backtest(env, late, params, decisions, "strategy", KEY)


def entries(record):
    """(decision bar, quantity, price) of every fill that opened a position."""
    at = np.flatnonzero(record.event.entry_quantity)
    return [
        (int(i), int(record.event.entry_quantity[i]), int(record.event.entry_price[i])) for i in at
    ]


@pytest.fixture(scope="module")
def hand():
    return setup(HAND, HAND.every, env={"task": "manage"}, brackets={"stop_atr": 5.0})[:2]


@pytest.mark.slow
def test_a_decision_fills_that_many_bars_later_and_the_price_is_that_bars(hand):
    env, params = hand
    buy = scripted(env, [B, H, H, H, H, H, H, H, H, H])
    # HAND_BARS opens: 8000, 8001, 8004, 8009, 8002, 8006. Decided at bar 0, filled at the next
    # open, and one tick slips.
    for bars, opened in enumerate((8001, 8004, 8009, 8002)):
        assert entries(run(env, params, buy, bars)) == [(bars, 1, opened + 1)]


@pytest.mark.parametrize(
    ("decided", "bars", "executed", "held"),
    [
        # BUY fills; the second BUY, decided before the fill was seen, finds a position: too late.
        ([B, B, H, H, H], 1, [H, B, TOO_LATE, H, H], [0, 1, 1, 1, 0]),
        # CLOSE twice in a position: the second finds none.
        ([B, H, C, C, H], 1, [H, B, H, C, TOO_LATE], [0, 1, 1, 0, 0]),
        # Bar 2: BUY of bar 0, filled in bar 3. Bar 3: CLOSE of bar 1, made while flat.
        ([B, C, H, H, H], 2, [H, H, B, TOO_LATE, H], [0, 0, 1, 1, 0]),
        # Nothing waits from one session to the next.
        ([H, H, H, B, B], 3, [H] * 5, [0] * 5),
    ],
)
def test_an_order_comes_too_late_for_a_position_it_was_not_made_for(
    hand, decided, bars, executed, held
):
    """The same in each of two sessions."""
    env, params = hand
    record = run(env, params, scripted(env, decided * 2), bars)
    assert record.action.tolist() == executed * 2
    assert record.quantity.tolist() == held * 2
    assert record.legal.all()


@pytest.mark.slow
def test_a_decision_does_not_touch_another_position():
    # Three bars late. BUY of bar 0 fills in bar 4, and its stop ends it in bar 5. SELL of bar 2
    # fills in bar 6. CLOSE of bar 4 was made for the long position: at bar 7 the mask would let it
    # close the short one.
    quiet = np.full((11, 4), 8000)
    quiet[5, 2] = 7900
    market = tiny_market(quiet, [11])
    env, params, _ = setup(
        market, market.sessions(0), env={"task": "manage"}, brackets={"stop_atr": 5.0}
    )
    record = run(env, params, scripted(env, [B, H, S, H, C, H, H, H, H, H], market), 3, market)
    assert record.action.tolist() == [H, H, H, B, H, S, H, TOO_LATE, H, H]
    assert record.quantity.tolist() == [0, 0, 0, 1, 0, -1, -1, -1, -1, 0]
    assert record.mask[7, C]


def test_stops_are_those_of_the_bar_of_execution(hand):
    env, params = hand
    rows = decision_bars(HAND.data, params.sessions).rows
    ranges = HAND.data.tr_sum.at[int(rows[1])].set(280)  # the ATR at bar 1 is twice that of bar 0
    params = params.replace(market=params.market.replace(tr_sum=ranges))
    buy = scripted(env, [B, H, H, H, H, H, H, H, H, H])
    at_once, late = run(env, params, buy, 0), run(env, params, buy, 1)
    # 5 ATRs of 10 ticks below the open 8001, of 20 ticks below the open 8004.
    assert at_once.stop[0] == 8001 - 50
    assert late.stop[1] == 8004 - 100


@pytest.fixture(scope="module")
def made():
    """An untrained policy that takes many different actions, and its environment."""
    env, params, config = setup(
        WALK,
        WALK.every,
        env={"task": "manage"},
        network={"hidden": [16, 16]},
        rollout={"num_envs": 4, "num_steps": 8, "num_shards": 1},
        ppo={"num_minibatches": 1},
    )
    return env, params, config, greedy(make_ppo(config, env, 1), lively(config, env, 300), env)


@pytest.mark.slow
def test_without_a_latency_every_bit_is_the_evaluators(made):
    env, params, _, policy = made
    decisions = decision_bars(WALK.data, params.sessions)
    agents = [policy, *(rule(name, env) for name in ("sma_cross", "random", "buy_hold", "flat"))]
    plain, late = (
        run_lanes(env, [Lane(each, params, decisions, KEY) for each in some], "strategy")
        for some in (agents, [delay_agent(each, env, 0) for each in agents])
    )
    assert_same(plain, late)
    assert all(len(set(record.action.tolist())) >= 3 for record in plain[:3])


@pytest.mark.slow
def test_the_grid_counts_what_came_too_late(made):
    env, params, config, policy = made
    agents = [policy, rule("sma_cross", env), rule("flat", env)]
    grid = grids.make_grid("latency", env, params, agents, WALK, WALK.every, config)  # type: ignore[arg-type]
    assert grid.rows == ("0 bars", "1 bar", "2 bars", "3 bars")
    assert grid.too_late is not None
    assert (grid.too_late[0] == 0).all()
    assert (grid.too_late[1:, :2] > 0).all()
    assert (grid.too_late[:, 2] == 0).all()
    assert (grid.profit[:, 2] == 0).all()
    assert len(set(grid.profit[:, 0])) > 1
    key = agent_key(jax.random.key(config.seed), "greedy")
    decisions = decision_bars(WALK.data, params.sessions)
    own = backtest(env, policy, params, decisions, "strategy", key)
    assert grid.profit[0, 0] == own.equity[-1] / 1000
    found = grid.to_json()
    assert found["too_late"]["2 bars"]["greedy"] == grid.too_late[2, 0]
    assert found["rows"]["3 bars"]["sma_cross"] == grid.profit[3, 1]
    assert "too late (HOLD instead)" in grid.table()


@pytest.mark.slow
def test_a_flip_of_a_baseline_is_late_as_a_whole(made):
    env, params, *_ = made
    at_once = run(env, params, rule("sma_cross", env), 0, WALK)
    late = run(env, params, rule("sma_cross", env), 1, WALK)
    first = int(np.flatnonzero(at_once.action != H)[0])
    assert at_once.action[first] == late.action[first + 1]
    assert late.action[first] == H
    assert (late.action == NO_ACTION).any()
    assert not (late.event.exit_reason == ExitReason.STOP).any()  # its orders still have no bracket


def test_a_latency_that_the_queue_cannot_hold_is_refused(hand):
    env, _ = hand
    for bars in (-1, LONGEST + 1):
        with pytest.raises(ValueError, match=r"expected 0 \.\. 3"):
            delay_agent(scripted(env, [H] * 10), env, bars)
