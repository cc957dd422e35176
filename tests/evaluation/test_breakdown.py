"""Profit by kind of trade: worked by hand, and on the bundled ES bars."""

import json
from dataclasses import fields

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import session_set
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.breakdown import (
    UNKNOWN,
    breakdown,
    table,
    trade_cell,
    trade_cells,
    volatility_terciles,
)
from jaxtrade.evaluation.evaluators import evaluate
from jaxtrade.evaluation.statistics import holm
from jaxtrade.evaluation.trades import Trades
from tests.evaluation.tiny import evaluated, hand_market, tiny_market, walk
from tests.messages import missing


def trades_of(net, session):
    """Trades with a profit (dollars) and a session, and nothing else."""
    columns = {field.name: np.zeros(len(net), np.int64) for field in fields(Trades)}
    return Trades(
        **columns | {"net": 1000 * np.array(net, np.int64), "session": np.array(session, np.int64)}
    )


def test_a_cell_by_hand():
    """Twelve days of two trades: one makes 30 dollars, the other 8, or -16 on every third day. 360
    in all, 15 each.
    """
    net = [30 if i % 2 == 0 else (-16 if (i // 2) % 3 == 0 else 8) for i in range(24)]
    cell = trade_cell("x", trades_of(net, [i // 2 for i in range(24)]))
    mean = cell["mean"]
    assert (cell["count"], cell["days"], cell["total"]) == (24, 12, 360.0)
    assert (mean["value"], mean["why"]) == (15.0, None)
    assert 0 < mean["low"] < 15 < mean["high"] < 30
    assert 0 < cell["p"] < 0.05


def test_the_days_are_drawn_not_the_trades():
    """A hundred equal trades on a day tell no more than one: the interval is that of the days'
    results.
    """
    daily = [40, -30, 20, -10, 50, -20, 10, 0, 30, -40]
    one = trade_cell("x", trades_of(daily, list(range(10))))
    many = trade_cell(
        "x", trades_of(np.repeat(daily, 100).tolist(), np.repeat(np.arange(10), 100).tolist())
    )
    assert (one["mean"]["value"], many["mean"]["value"]) == (5.0, 5.0)
    assert many["mean"] == pytest.approx(one["mean"])
    assert many["p"] == pytest.approx(one["p"])


@pytest.mark.slow
def test_a_fair_cell_is_called_significant_one_time_in_twenty():
    """200 cells of 30 days without any profit, three trades a day that share the day's luck."""
    rng = np.random.default_rng(4)
    session = np.repeat(np.arange(30), 3)
    found = []
    for seed in range(200):
        net = np.repeat(rng.normal(0, 60, 30), 3) + rng.normal(0, 20, 90)
        trades = trades_of(net.round().astype(int).tolist(), session.tolist())
        found.append(trade_cell("x", trades, seed)["p"])
    assert 0.01 <= np.mean([p is not None and p < 0.05 for p in found]) <= 0.09


@pytest.mark.parametrize(
    ("net", "session", "why"),
    [
        ([5] * 9, list(range(9)), ("9 trades", "10")),
        ([5, -5] * 8, [0, 1, 2, 3] * 4, ("4 days", "5")),
        ([5] * 12, list(range(12)), ("same mean",)),
    ],
)
def test_what_cannot_be_known_says_why(net, session, why):
    cell = trade_cell("x", trades_of(net, session))
    mean = cell["mean"]
    assert (mean["low"], mean["high"], cell["p"]) == (None, None, None)
    assert not missing(mean["why"] or "", *why)
    assert (mean["value"] is None) == (cell["total"] is None) == (len(net) < 10)


def test_p_values_of_a_table_are_corrected_together():
    rng = np.random.default_rng(0)
    net = rng.normal(8, 20, 120).round().astype(int).tolist()
    names, session = [f"{i % 4}" for i in range(120)], [i // 4 for i in range(120)]
    trades = trades_of(net, session)
    alone = [trade_cell(name, trades.where(np.array(names) == name))["p"] for name in "0123"]
    found = [cell["p"] for cell in trade_cells(names, trades, str)]
    assert found == holm(np.array(alone)).tolist()
    few = trade_cells([*names, "rare"], trades_of([*net, 1], [*session, 0]), str)
    # a blank cell is no test
    assert [cell["p"] for cell in few] == [*found, None]


@pytest.mark.slow
def test_kinds_of_hand_worked_trades():
    """Twelve sessions of HAND_BARS from 2024-01-02, a Tuesday: bought in the bar after 09:30, out
    at the flat bar.
    """
    market = hand_market(12)
    result = evaluated(market, baselines.buy_and_hold)
    found = breakdown(result, market.data)
    whole = found["whole"]
    assert (found["agent"], whole["count"], whole["total"]) == ("buy_hold", 12, 550.08)
    by = {
        each["by"]: [(cell["name"], cell["count"]) for cell in each["cells"]]
        for each in found["tables"]
    }
    assert by == {
        "half hour": [("09:30", 12)],
        "weekday": [
            ("Monday", 1),
            ("Tuesday", 2),
            ("Wednesday", 2),
            ("Thursday", 2),
            ("Friday", 2),
            ("Saturday", 2),
            ("Sunday", 1),
        ],
        "volatility": [
            ("low", 7),
            (UNKNOWN, 5),
        ],  # every bar has the same range; five sessions have too few before
        "exit reason": [("flat", 12)],
    }
    assert whole["mean"]["value"] == pytest.approx(45.84)
    document = json.loads(json.dumps(found, allow_nan=False))
    assert document["tables"][1]["cells"][0] == {
        "name": "Monday",
        "count": 1,
        "days": 1,
        "total": None,
        "p": None,
        "mean": {"value": None, "low": None, "high": None, "why": "1 trade; a figure needs 10"},
    }
    text = table(found)
    assert (
        "  09:30        12    12  $550.08     $45.84            n/a       n/a" in text.splitlines()
    )
    assert any(
        line.startswith("NOTE: volatility") and "5 sessions" in line for line in text.splitlines()
    )


@pytest.mark.slow
def test_volatility_is_known_at_the_entry():
    """Changes of later true ranges, the entry bar's own included, change no tercile of an earlier
    trade.
    """
    lengths = [30] * 12
    market = tiny_market(walk(lengths, seed=2), lengths)
    ranges = np.random.default_rng(1).integers(50, 300, len(market.bars.open))
    result = evaluated(market, lambda env: baselines.sma_cross(env, market.data, 3, 8))
    trades = result.agents[0].trades

    def terciles(sums):
        return volatility_terciles(
            result, market.data.replace(tr_sum=jnp.asarray(sums, jnp.int32)), trades
        )

    before = terciles(ranges)
    assert set(before) == {"low", "middle", "high", UNKNOWN}
    for k in range(0, len(trades), 5):
        later = ranges.copy()
        later[trades.entry_row[k] :] = 9_999
        assert terciles(later)[: k + 1] == before[: k + 1]
    row = int(trades.decision_row[-1])
    first, last = np.asarray(market.data.sessions.first), np.asarray(market.data.sessions.last)
    past = np.concatenate([ranges[first[i] : last[i] + 1] for i in range(int(trades.session[-1]))])
    share = np.mean(past < ranges[row])
    assert before[-1] == ("low" if share <= 1 / 3 else "middle" if share <= 2 / 3 else "high")


@pytest.mark.slow
def test_bundled_es():
    config = load_config("quickstart")
    market = load_market(config)
    held = session_set(np.arange(market.num_sessions), market.num_sessions)
    env, params = TradingEnv(config.env), make_params(market, held, config)
    agents = [baselines.sma_cross(env, market.data, 3, 8)]
    result = evaluate(env, params, market, held, config, agents)
    found, trades = breakdown(result, market.data), result.agents[0].trades
    frame = result.trades
    for each in found["tables"]:
        assert sum(cell["count"] for cell in each["cells"]) == len(trades)
        for cell in each["cells"]:
            assert (cell["total"] is None) == (cell["count"] < 10)
    entered = [f"{stamp.hour:02d}:{30 * (stamp.minute // 30):02d}" for stamp in frame["entry_time"]]
    halves = {cell["name"]: cell for cell in found["tables"][0]["cells"]}
    assert set(halves) == set(entered)
    some = max(halves, key=lambda name: halves[name]["count"])
    own = trades.net[np.array(entered) == some]
    assert (halves[some]["count"], halves[some]["total"]) == (len(own), own.sum() / 1000)
    assert "account rules off" in table(found)
