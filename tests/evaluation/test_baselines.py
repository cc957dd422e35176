"""Rule-based agents: legal, causal, and what they say they are."""

import functools

import numpy as np
import pytest

from jaxtrade.env.state import ExitReason
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.baselines import NO_ACTION
from jaxtrade.evaluation.trades import assemble_trades
from tests.evaluation.tiny import WALK as MARKET
from tests.evaluation.tiny import backtested, rule, setup

ACCOUNT = {"drawdown": 800.0, "daily_loss": 500.0, "profit_target": 1_000.0}


def run(name, which="account", seed=0, account=ACCOUNT, **env_values):
    agent = functools.partial(rule, name)
    return backtested(MARKET, which, agent, seed=seed, account=account, env=env_values)


@pytest.mark.slow
def test_no_baseline_emits_an_illegal_order():
    """Also where accounts end and entries are locked."""
    records = [run(name)[0] for name in ("random", "buy_hold", "sma_cross")]
    assert sum(record.end.any() for record in records) >= 2
    records.append(run("random", task="entry", quantity=3)[0])
    assert all(record.legal.all() for record in records)


def test_random_is_uniform_over_the_legal_actions():
    """Over 20 seeds: each action's count against the sum over bars of legal / number of legal."""
    counts, expected, variance = np.zeros(7), np.zeros(7), np.zeros(7)
    for seed in range(20):
        record, *_ = run("random", "strategy", seed)
        assert record.mask[np.arange(len(record.action)), record.action].all()
        counts += np.bincount(record.action, minlength=7)
        p = record.mask / record.mask.sum(axis=1, keepdims=True)
        expected += p.sum(axis=0)
        variance += (p * (1 - p)).sum(axis=0)
    assert (expected > 20).all()
    assert (np.abs(counts - expected) < 4 * np.sqrt(variance)).all()


@pytest.mark.slow
def test_buy_and_hold_does_not_re_enter_after_a_liquidation():
    account = {"drawdown": "off", "daily_loss": 60.0, "profit_target": "off"}
    record, *_ = run("buy_hold", account=account)
    assert (record.event.exit_reason == ExitReason.LIQUIDATION).any()
    assert (record.event.entry_quantity != 0).sum() == 4


def brute_signs(market, fast, slow):
    close, ready = np.asarray(market.close, np.int64), np.asarray(market.tr_sum) >= 0
    signs = []
    for t in range(len(close)):
        whole = t + 1 >= slow and ready[t + 1 - slow : t + 1].all()
        gap = (
            close[t + 1 - fast : t + 1].mean() - close[t + 1 - slow : t + 1].mean()
            if whole
            else 0.0
        )
        signs.append(0 if abs(gap) < 1e-9 else int(np.sign(gap)))
    return signs


def test_sma_signs_are_the_averages_and_respect_windows():
    """Those of the slow loop, which reads closes of the past alone."""
    data = MARKET.data.replace(tr_sum=MARKET.data.tr_sum.at[90:104].set(-1))
    signs = baselines.sma_signs(data, 3, 8)
    assert signs.tolist() == brute_signs(data, 3, 8)
    assert not signs[90:111].any()
    assert signs[111:].any()


@pytest.mark.slow
def test_sma_cross_follows_its_signs():
    """Independent bookkeeping: which side is held after each bar, from the signs and the calendar
    alone.
    """
    record, decisions, params = run("sma_cross", "strategy")
    signs = baselines.sma_signs(MARKET.data, 3, 8)
    to_flat = np.asarray(MARKET.data.bars_to_flat)
    held, flips = 0, 0
    for i, row in enumerate(decisions.rows):
        wanted = signs[row] if signs[row] != 0 else held
        flips += held * wanted < 0
        held = wanted if wanted == held or to_flat[row] >= 2 else 0
        held = 0 if to_flat[row] == 1 else held  # the flat bar
        assert record.quantity[i] == held
    trades = assemble_trades(record, decisions, params)
    assert flips > 5
    assert (record.action == NO_ACTION).sum() >= flips
    assert set(trades.reason.tolist()) == {ExitReason.ORDER, ExitReason.FLAT}


@pytest.mark.parametrize(("fast", "slow"), [(8, 8), (9, 8), (0, 8)])
def test_sma_periods_are_checked(fast, slow):
    env, *_ = setup(MARKET, MARKET.sessions(0))
    with pytest.raises(ConfigError, match="sma_fast"):
        baselines.sma_cross(env, MARKET.data, fast, slow)
