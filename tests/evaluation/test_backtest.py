"""The evaluator on markets whose outcome is worked by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env import actions
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation import backtest as parted
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import Agent, PolicyAct
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.evaluation.trades import account_metrics, assemble_trades, coverage, metrics_of
from tests.evaluation.tiny import (
    HAND_BARS,
    WARM,
    backtested,
    hand_market,
    setup,
    tiny_market,
    walk,
)

OFF = {"drawdown": "off", "daily_loss": "off", "profit_target": "off"}
KEY = jax.random.key(0)


@pytest.mark.slow
def test_buy_and_hold_by_hand():
    record, decisions, params = backtested(hand_market(1), "strategy")
    # In at 8002, marked at each close, $12.50 a tick, $2.08 a side, out at 8006.
    assert record.equity.tolist() == [22_920, 85_420, -2_080, 35_420, 45_840]
    assert record.quantity.tolist() == [1, 1, 1, 1, 0]
    trades = assemble_trades(record, decisions, params)
    assert [
        int(getattr(trades, name)[0])
        for name in ("ticks", "net", "commission", "slippage", "mae", "mfe")
    ] == [4, 45_840, 4_160, 25_000, 3, 9]
    assert trades.reason.tolist() == [ExitReason.FLAT]
    figures = metrics_of(record, trades, decisions, 50_000)
    assert figures["net_profit"] == 45.84
    assert figures["return_pct"] == pytest.approx(0.09168)
    assert figures["max_drawdown"] == 87.5
    assert (figures["trades"], figures["win_rate"], figures["turnover"], figures["exposure"]) == (
        1,
        1.0,
        2.0,
        1.0,
    )
    assert figures["profit_factor"] is None
    assert figures["sharpe_daily"] is None


def test_strategy_pass_carries_equity_over_a_subset_of_sessions():
    market = hand_market(4)
    record, decisions, _ = backtested(
        market, "strategy", sessions=market.sessions(1, 3), account={"drawdown": 60.0}
    )
    assert record.row.tolist() == [*range(WARM + 6, WARM + 11), *range(WARM + 18, WARM + 23)]
    assert record.equity[decisions.last].tolist() == [45_840, 91_680]
    assert not record.end.any()
    assert record.high_water[:4].tolist() == [47_920, 97_920, 110_420, 110_420]  # live equity


@pytest.mark.slow
def test_accounts_start_again_after_a_bust():
    # The floor reaches +$10.42 at the high of bar 3 (8011); its low goes through the level (8003),
    # out at 8002.
    record, decisions, _ = backtested(
        hand_market(3), "account", account=OFF | {"drawdown": 100.0, "freeze": "never"}
    )
    assert record.equity.tolist() == [22_920, 85_420, -4_160, -4_160, -4_160] * 3
    assert record.event.floor[:3].tolist() == [-52_080, -2_080, 10_420]
    assert record.end.tolist() == [0, 0, EndReason.BUST, 0, 0] * 3
    assert record.account.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert record.active.tolist() == [True, True, True, False, False] * 3
    assert not record.mask[~record.active, Action.BUY].any()
    figures = account_metrics(record, decisions)
    assert figures == {
        "accounts": 3,
        "passed": 0,
        "bust": 3,
        "failed_daily_loss": 0,
        "open_at_end": 0,
        "reached_target": 0,
        "breaches": 3,
        "trades": 3,
        "net_profit": -12.48,
        "best_session_share": None,
        "illegal_actions": 0,
        "idle_bars": 6,
    }


def test_a_new_account_after_an_end_of_day_bust_starts_at_its_own_floor():
    # Session 2 is long at 8002 and gaps to 7994 in its third bar: 7993, 45,840 - 2 * 2,080 - 9 *
    # 12,500 = -70,820.
    bars = np.concatenate([HAND_BARS, HAND_BARS, HAND_BARS])
    bars[8:12] -= 10
    record, _, _ = backtested(
        tiny_market(bars, [6, 6, 6]),
        "account",
        account={"drawdown": 60.0, "trailing": "end_of_day"},
    )
    assert record.event.floor[[0, 4, 5]].tolist() == [-60_000, -60_000, -14_160]
    bust = np.flatnonzero(record.end == EndReason.BUST).tolist()
    assert (bust, record.equity[6]) == ([6], -70_820)
    assert record.event.floor[10:].tolist() == [-60_000] * 5
    assert record.high_water[10:].tolist() == [0] * 5
    assert record.active.tolist() == [True] * 7 + [False] * 3 + [True] * 5
    assert not record.mask[~record.active, Action.BUY].any()


@pytest.mark.parametrize(
    ("on_target", "ends", "equity", "counts"),
    [
        ("terminate", [9], [45_840, 91_680, 45_840], (2, 1, 1)),
        ("continue", [], [45_840, 91_680, 137_520], (1, 0, 1)),
    ],
)
def test_account_passes_on_realised_profit_and_a_new_one_opens(on_target, ends, equity, counts):
    # $45.84 a session, realised at the flat bar: $80 is reached in the second.
    record, decisions, _ = backtested(
        hand_market(3), "account", account=OFF | {"profit_target": 80.0, "on_target": on_target}
    )
    assert np.flatnonzero(record.end == EndReason.TARGET).tolist() == ends
    assert record.equity[decisions.last].tolist() == equity
    figures = account_metrics(record, decisions)
    assert (figures["accounts"], figures["passed"], figures["open_at_end"]) == counts
    assert figures["reached_target"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("which", "account"), [("strategy", OFF), ("account", {})])
def test_the_record_of_trades_is_that_of_an_episode(which, account):
    """Two sessions of 45.84 dollars each, then a new one; whether money is counted anew with each
    session or not.
    """
    record, *_ = backtested(
        hand_market(3), which, env={"task": "advised"}, episode={"sessions": 2}, account=account
    )
    seen = record.ref.account
    assert seen.closed.tolist() == seen.won.tolist() == [0] * 5 + [1] * 5 + [0] * 5
    assert seen.peak.tolist() == [0] * 5 + [45_840] * 5 + [0] * 5
    assert seen.drawdown.tolist() == [0, 2_080, 2_080, 2_080, 2_080] * 3  # the entry's commission
    assert seen.unrealised.tolist() == [0, 25_000, 87_500, 0, 37_500] * 3
    # In at 8002: marked at 7999..8006, then up to 8010, then 8011 and down to 8001, which is
    # nearer.
    assert seen.adverse.tolist() == [0, 3, 3, 3, 3] * 3
    assert seen.favourable.tolist() == [0, 4, 8, 9, 9] * 3


@pytest.mark.slow
def test_a_new_account_has_a_new_record():
    """A fall of 10 ticks from the high breaks 100 dollars in every session, long before three
    sessions are over.
    """
    sections = {"env": {"task": "advised"}, "episode": {"sessions": 3}}
    record, *_ = backtested(hand_market(3), "account", account={"drawdown": 100.0}, **sections)
    seen = record.ref.account
    assert record.account.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert seen.closed[[4, 5, 9, 10, 14]].tolist() == [1, 0, 1, 0, 1]
    assert seen.losses[[0, 5, 10]].tolist() == [0, 0, 0]


@pytest.mark.slow
def test_coverage_is_complete_and_checked():
    market = tiny_market(walk([30, 20, 25]), [30, 20, 25])
    record, decisions, params = backtested(market, "account", baselines.random_masked)
    assert coverage(record, decisions) == 1.0
    env, *_ = setup(market, params.sessions)
    wrong = dataclasses.replace(decisions, rows=decisions.rows + 1)
    with pytest.raises(RuntimeError, match="decision bars not visited"):
        backtest(env, baselines.flat(), params, wrong, "account", KEY)


@pytest.mark.parametrize("ids", [(), (2, 1), (1, 1)])
def test_session_sets_that_cannot_be_evaluated(ids):
    market = hand_market(3)
    with pytest.raises(DataError, match="session"):
        decision_bars(market.data, market.sessions(*ids))


def stubborn(env):
    """It asks for break-even at every bar, where that is legal and where it is not."""

    def act(policy, carry, ref, params, key, explore):
        return carry, jnp.where(ref.mask[Action.BUY], Action.BUY, Action.MOVE_STOP_TO_BREAKEVEN), ()

    return Agent("stubborn", PolicyAct(env, act, False), (None, None), "")


@pytest.mark.parametrize(
    ("agent", "env"),
    [
        (stubborn, {}),
        *(
            pytest.param(baselines.random_masked, env, marks=pytest.mark.slow)
            for env in ({"task": "entry"}, {"mark": "close", "fill": "close"})
        ),
    ],
)
def test_evaluator_equals_stepping_the_environment(agent, env):
    """One session by `env.step`: every event and equity is the same. An illegal action is executed
    as HOLD.
    """
    market = tiny_market(walk([80], scale=6.0), [80])
    record, decisions, params = backtested(market, "account", agent, env=env)
    trading, *_ = setup(market, params.sessions, env=env)
    state, step = trading.reset_at(params, 0, decisions.rows[0]), jax.jit(trading.step)
    illegal = ~record.legal
    assert (illegal.sum() > 10) == (agent is stubborn)
    assert len(set(record.action[record.legal].tolist())) >= 2
    for i, action in enumerate(record.action):
        assert np.array_equal(trading.mask(state, params), record.mask[i])
        kept = int(state.position.stop)
        state, _, outcome = step(KEY, state, jnp.int32(action), params)
        assert int(outcome.info.equity) == record.equity[i]
        for name, leaf in vars(outcome.info.event).items():
            assert np.asarray(leaf) == getattr(record.event, name)[i], (i, name)
        assert not (illegal[i] and record.quantity[i]) or record.stop[i] == kept
    assert bool(outcome.terminated)
    assert int(outcome.info.end) == EndReason.SESSION_END
    assert int(outcome.info.stats.illegal) == illegal.sum()


def once(env):
    """It buys at the first bar that it remembers."""

    def act(seen, state, ref, params, key):
        held = actions.hold(state)
        order = held.replace(quantity=jnp.where(seen == 0, 1, held.quantity))
        return seen + 1, order, jnp.int32(-1)

    return Agent("once", act, jnp.int32(0), "", lambda seen, first: jnp.where(first, 0, seen))


def test_an_agent_forgets_where_an_episode_begins(monkeypatch):
    """Also where the two episodes are run in two parts."""
    record, *_ = backtested(hand_market(3), "strategy", once, episode={"sessions": 2})
    assert np.flatnonzero(record.event.entry_quantity).tolist() == [0, 10]
    monkeypatch.setattr(parted, "_part_count", lambda episodes: 2)
    again, *_ = backtested(hand_market(3), "strategy", once, episode={"sessions": 2})
    np.testing.assert_array_equal(again.equity, record.equity)


def rising(step, sessions):
    """Six bars that rise by `step` ticks each; 1,000 contracts gain 4 * step - 2 ticks a
    session.
    """
    bars = np.stack([8_000 + step * np.arange(6)] * 4, axis=1)
    market = tiny_market(np.tile(bars, (sessions, 1)), [6] * sessions)
    return market, {"env": {"quantity": 1000}, "account": OFF | {"max_contracts": 1000}}


@pytest.mark.slow
@pytest.mark.parametrize("which", ["strategy", "account"])
def test_money_beyond_int32_is_exact_where_no_rule_looks_back(which):
    market, sections = rising(10, 6)
    record, decisions, params = backtested(market, which, **sections)
    a_session = 1000 * (38 * 12_500 - 2 * 2_080)
    assert 6 * a_session > 2**31
    assert record.equity[decisions.last].tolist() == [a_session * k for k in range(1, 7)]
    assert record.high_water[-1] == 5 * a_session + 1000 * (39 * 12_500 - 2_080)
    assert assemble_trades(record, decisions, params).net.sum() == 6 * a_session


@pytest.mark.slow
def test_equity_near_int32_is_an_error():
    market, sections = rising(13, 1)
    with pytest.raises(ConfigError, match=r"buy_hold.*int32"):
        backtested(market, "strategy", **sections)
    market, sections = rising(10, 2)
    target = sections["account"] | {"profit_target": 1_000_000.0, "on_target": "continue"}
    with pytest.raises(ConfigError, match=r"buy_hold.*int32"):
        backtested(market, "account", **sections | {"account": target})


def test_accounts_that_only_daily_loss_can_end():
    """Money is added up within an account and starts again with the next one."""
    bars = np.concatenate([HAND_BARS, HAND_BARS, HAND_BARS + np.array([0, 0, -9, 0]), HAND_BARS])
    market = tiny_market(bars, [6] * 4)
    record, decisions, _ = backtested(
        market, "account", account=OFF | {"daily_loss": 60.0, "on_daily_loss": "fail"}
    )
    # Sessions 1, 2 and 4 earn $45.84; in session 3 the level 7997 ((-60 + 4.16) / 12.5, rounded
    # down) is hit at 7996.
    lost = -6 * 12_500 - 4_160
    assert record.equity[decisions.last].tolist() == [45_840, 91_680, 91_680 + lost, 45_840]
    assert record.account[decisions.last].tolist() == [0, 0, 0, 1]
    assert record.high_water[decisions.last].tolist() == [110_420, 156_260, 156_260, 110_420]
    figures = account_metrics(record, decisions)
    assert figures["net_profit"] == pytest.approx((91_680 + lost + 45_840) / 1000)
    names = ("accounts", "failed_daily_loss", "breaches", "open_at_end")
    assert [figures[name] for name in names] == [2, 1, 1, 1]


@pytest.mark.slow
def test_buy_and_hold_on_the_bundled_bars():
    """Real ES minutes: each session's profit from its own bars, two slipped fills and two
    commissions.
    """
    config = load_config("quickstart")
    market = load_market(config)
    sessions = split_sessions(market, config.split)["all"]
    env, decisions = TradingEnv(config.env), decision_bars(market.data, sessions)
    params = make_params(market, sessions, config)
    record = backtest(env, baselines.buy_and_hold(env), params, decisions, "strategy", KEY)
    table, bars = market.data.sessions, market.bars
    entry = bars.open[np.asarray(table.first) + 1].astype(np.int64)
    exits = bars.close[np.asarray(table.last) + 1].astype(np.int64)
    profit = (
        exits - entry - 2 * market.contract.slippage_ticks
    ) * 12_500 - 2 * market.contract.commission_mills
    assert len(profit) >= 5
    assert np.diff(record.equity[decisions.last], prepend=0).tolist() == profit.tolist()
