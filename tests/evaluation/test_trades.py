"""Trades: exact identity with equity, excursions against a brute-force reference, files that read
back.
"""

import csv
import functools
from decimal import Decimal

import numpy as np
import pytest

from jaxtrade.env.state import ExitReason
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.frames import trades_frame, write_frame
from jaxtrade.evaluation.trades import BarClock, assemble_trades
from tests.evaluation.tiny import WALK as MARKET
from tests.evaluation.tiny import (
    backtested,
    rule,
    setup,
    tiny_market,
    walked,
)


def run(name, env_values=None, **sections):
    record, decisions, params = backtested(
        MARKET, "strategy", functools.partial(rule, name), seed=3, env=env_values or {}, **sections
    )
    return record, assemble_trades(record, decisions, params), decisions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("random", {"mark": "close", "fill": "close"}),
        ("sma_cross", {"task": "entry", "quantity": 3}),
    ],
)
def test_trades_sum_to_equity_in_mills(name, env):
    record, trades, _ = run(name, env, costs={"slippage": 2})
    assert len(trades) > 0
    assert int(trades.net.sum()) == int(record.equity[-1])
    assert int(trades.commission.sum()) == int(record.event.commission.sum())


def test_targets_pay_one_slippage():
    record, trades, _ = run("random", brackets={"target_multiple": 1, "stop_atr": 0.8})
    assert int(trades.net.sum()) == int(record.equity[-1])
    at_target = trades.reason == ExitReason.TARGET
    assert at_target.sum() > 3
    assert (~at_target).sum() > 3
    assert set(trades.slippage[at_target].tolist()) == {12_500}
    assert set(trades.slippage[~at_target].tolist()) == {25_000}


def test_excursions_of_flips_against_the_bars():
    """Without a bracket a trade sees whole bars, but of the bar in which it leaves by order only
    the open.
    """
    _, trades, _ = run("sma_cross")
    bars = MARKET.bars
    assert (trades.reason == ExitReason.ORDER).sum() > 5
    for k in range(len(trades)):
        last = trades.exit_row[k] + (trades.reason[k] == ExitReason.FLAT)
        seen = np.concatenate(
            [
                bars.high[trades.entry_row[k] : last],
                bars.low[trades.entry_row[k] : last],
                bars.open[trades.exit_row[k] : trades.exit_row[k] + 1],
            ]
        )
        moves = trades.side[k] * (seen - trades.entry_price[k])
        assert trades.mfe[k] == max(moves.max(), 0)
        assert trades.mae[k] == max(-moves.min(), 0)


@pytest.mark.slow
def test_excursions_stop_at_the_exit():
    """A bracket caps both: a stopped trade's worst price is its unslipped exit, a target's best one
    is the target.
    """
    _, trades, _ = run(
        "random", {"task": "entry"}, brackets={"target_multiple": 1, "stop_atr": 0.8}
    )
    stopped, won = trades.reason == ExitReason.STOP, trades.reason == ExitReason.TARGET
    assert stopped.sum() > 3
    assert won.sum() > 3
    unslipped = trades.exit_price + trades.side  # one tick of slippage
    adverse = trades.side * (trades.entry_price - unslipped)
    assert np.array_equal(trades.mae[stopped], adverse[stopped])
    assert np.array_equal(trades.mfe[won], trades.ticks[won])
    assert (trades.entry_row == trades.exit_row).any()
    assert (trades.decision_row == trades.entry_row - 1).all()


@pytest.mark.parametrize(("gap", "mae", "mfe"), [(50, 0, 53), (-50, 55, 0)])
def test_an_excursion_that_never_came_is_zero(gap, mae, mfe):
    """Bought at the close of 8000 (and a tick): every later price lies beyond the gap, on one side
    of the fill.
    """
    bars = np.array(
        [[8000, 8000, 8000, 8000]] + [[8000 + gap, 8004 + gap, 7996 + gap, 8000 + gap]] * 5
    )
    market = tiny_market(bars, [6], tr_sum=1_400)
    trades = assemble_trades(
        *backtested(market, "strategy", env={"fill": "close", "mark": "close"})
    )
    assert (len(trades), int(trades.entry_price[0])) == (1, 8001)
    assert (int(trades.mae[0]), int(trades.mfe[0])) == (mae, mfe)


def test_entries_without_exits_are_a_bug():
    record, _, decisions = run("buy_hold")
    quantity = record.event.exit_quantity.copy()
    quantity[np.flatnonzero(quantity)[0]] = 0
    broken = record.replace(event=record.event.replace(exit_quantity=quantity))
    _, params, _ = setup(MARKET, MARKET.sessions(0))
    with pytest.raises(RuntimeError, match="do not pair"):
        assemble_trades(broken, decisions, params)


def test_stamps_and_prices_are_exact(tmp_path):
    """In winter and in summer, and of a pair with five decimals."""
    _, trades, decisions = run("random", brackets={"target_multiple": 1, "stop_atr": 0.8})
    for first, offset in ((1_381_498_200, "-04:00"), (1_704_205_800, "-05:00")):
        stamps = first + 60 * np.arange(len(MARKET.bars.time))
        clock = BarClock(stamps, 60, Decimal("0.00001"), 5, "America/New_York")
        frame = trades_frame(trades, decisions, clock, MARKET.bars.close, "next_open")
        write_frame(frame, tmp_path / "trades.csv", 5)
        with (tmp_path / "trades.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert all(row["entry_time"].endswith(offset) for row in rows)
        prices = [f"{int(each) * clock.tick_size:.5f}" for each in trades.entry_price]
        assert [row["entry_price"] for row in rows] == prices


def test_fills_have_the_stamp_of_where_in_a_bar_they_were_made():
    """Entries, stops and targets (and orders at the open): the open stamp of their bar; orders at a
    close: its.
    """
    _, trades, decisions = run("random", brackets={"target_multiple": 1, "stop_atr": 0.8})
    holes = 90 * np.arange(
        len(MARKET.bars.time)
    )  # half a minute is missing after each bar: no stamp is also another
    clock = BarClock(MARKET.bars.time[0] + holes, 60, Decimal("0.25"), 2, "America/New_York")
    for fill in ("next_open", "close"):
        rows = trades_frame(trades, decisions, clock, MARKET.bars.close, fill)
        assert {*rows["exit_reason"]} >= {"stop", "target", "order"}
        for (_, row), decided, entered, left in zip(
            rows.iterrows(), trades.decision_row, trades.entry_row, trades.exit_row, strict=True
        ):
            at = decided if fill == "close" else entered
            assert row["entry_time"].timestamp() == clock.time[at] + 60 * (fill == "close")
            closed = {"flat": left, "order": left - 1 if fill == "close" else None}
            at_close = closed.get(row["exit_reason"])
            stamp = clock.time[left] if at_close is None else clock.time[at_close] + 60
            assert row["exit_time"].timestamp() == stamp


@pytest.mark.slow
def test_files_read_back(tmp_path):
    result = walked()
    write(result, tmp_path, "random")
    with (tmp_path / "trades.csv").open() as file:
        trades = list(csv.DictReader(file))
    with (tmp_path / "equity.csv").open() as file:
        equity = list(csv.DictReader(file))
    assert len(equity) == len(result.decisions.rows) == 216
    profit = Decimal(equity[-1]["strategy_equity"]) - 50_000
    assert sum(Decimal(row["net_pnl"]) for row in trades) == profit
    assert profit == Decimal(str(result.agent("random").strategy_figures["net_profit"]))
    for row in trades[:3]:
        gained = Decimal(row["exit_price"]) - Decimal(row["entry_price"])
        ticks = int(row["ticks"]) * (1 if row["side"] == "long" else -1)
        assert gained == ticks * Decimal("0.25")
    assert {row["account_end"] for row in equity} >= {"", "bust"}
    bust = next(i for i, row in enumerate(equity) if row["account_end"] == "bust")
    assert Decimal(equity[bust]["account_equity"]) <= Decimal(equity[bust]["drawdown_floor"])
    assert (
        equity[bust + 1]["drawdown_floor"] == ""
        or equity[bust + 1]["account"] != equity[bust]["account"]
    )
