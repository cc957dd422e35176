"""The evaluation of `allocate`: baselines, figures, files, and a whole small run."""

import csv
import json
from dataclasses import replace
from typing import Any, cast

import jax
import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import make_config
from jaxtrade.env.state import EndReason
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.evaluators import evaluate, mean_reward
from jaxtrade.evaluation.frames import fills_frame
from jaxtrade.evaluation.joint import NAMES, evaluate_joint, joint_agents
from jaxtrade.evaluation.records import ABSENT, read_records, write_records
from jaxtrade.reporting.collect import choose, collect
from jaxtrade.reporting.make import make
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs.evaluate import Request, evaluate_run, replay_run
from jaxtrade.runs.setup import policies_of, prepare
from jaxtrade.runs.stored_run import StoredEvaluation, open_run
from jaxtrade.runs.studies import grid_run
from jaxtrade.runs.train import resume, run
from tests import uncounted
from tests.messages import missing
from tests.reporting.parsed import parsed

pytestmark = pytest.mark.slow  # a whole run
VALUES = {
    "data": {
        "source": "synthetic",
        "markets": ["MES", "MNQ"],
        "synthetic_sessions": 5,
        "per_market": {"MNQ": {"synthetic_seed": 3}},
    },
    "env": {"task": "allocate", "window": 2},
    "allocate": {"cost_bp": 0.5, "fee": 0.1, "size": [3, 2]},
    "account": {"preset": "rules_off_50k", "drawdown": 900.0},
    "split": {"test_sessions": 3},
    "network": {"hidden": [8]},
    "rollout": {"num_envs": 8, "num_steps": 16},
    "ppo": {"num_minibatches": 1},
    "train": {"total_timesteps": 512, "chunk_updates": 2},
}


@pytest.fixture(scope="module")
def setup():
    return prepare(make_config(VALUES, "test"))


@pytest.fixture(scope="module")
def policy(setup):
    return finish_policy(
        policies_of(setup, setup.algorithm.init(jax.random.key(1), setup.params))[0]
    )


@pytest.fixture(scope="module")
def result(setup, policy):
    env, params, market, config = setup.env, setup.params, setup.market, setup.config
    agents = joint_agents(env, market, params, config, setup.algorithm, policy)
    held, seen = setup.splits["test"], setup.splits["train"]
    about = {"provenance": {"split": "test"}, "trained_on": seen}
    return evaluate(env, params, market, held, config, agents, **about)


def test_the_policy_stands_beside_the_baselines(result):
    assert tuple(agent.name for agent in result.agents) == ("greedy", "sampled", *NAMES)
    (label,) = result.labels
    assert label.startswith("synthetic: ")
    for agent in result.agents:
        figures = agent.strategy_figures
        both = figures["profit.MES"] + figures["profit.MNQ"]
        assert figures["net_profit"] == pytest.approx(both, abs=1e-9)
    flat, hold = result.agent("flat").strategy_figures, result.agent("buy_hold").strategy_figures
    assert (flat["net_profit"], flat["orders"], flat["exposure"], flat["win_rate"]) == (
        0.0,
        0,
        0.0,
        None,
    )
    assert hold["orders"] == 2 * 3  # two symbols, three sessions
    assert hold["trades"] == 2 * 3
    assert result.agent("sma_cross").strategy_figures["orders"] > 10
    assert result.agent("random").strategy_figures["illegal_actions"] == 0


def test_buy_and_hold_by_hand(result, setup):
    """Bought at the open after each session's first decision bar, sold at the flat bar's close,
    both slipped.
    """
    market = setup.market
    expected, data = [0, 0], market.data
    for i in result.decisions.ids:
        first, flat = int(data.sessions.first[i]), int(data.sessions.last[i]) + 1
        for s, (size, contract) in enumerate(zip((3, 2), market.contracts, strict=True)):
            bought = int(data.open[first + 1, s]) + contract.slippage_ticks
            sold = int(data.close[flat, s]) - contract.slippage_ticks
            expected[s] += size * (sold - bought) * contract.tick_mills
            for price in (bought, sold):
                share = round(size * price * contract.tick_mills * 50_000 / 10**9)
                expected[s] -= size * contract.commission_mills + 100 + share
    figures = result.agent("buy_hold").strategy_figures
    found = [round(1000 * figures[f"profit.{symbol}"]) for symbol in ("MES", "MNQ")]
    assert found == expected


def test_an_account_that_ends_is_followed_by_a_new_one(result):
    """Random trading in large sizes busts; the rest of the session is idle, and the next session
    has a new account.
    """
    agent = result.agent("random")
    record, figures = agent.account, agent.account_figures
    assert figures["bust"] == int((record.end == EndReason.BUST).sum()) > 0
    assert figures["accounts"] == figures["bust"] + figures["open_at_end"]
    at = int(np.flatnonzero(record.end == EndReason.BUST)[0])
    session = result.decisions.session
    rest = (session == session[at]) & (np.arange(len(session)) > at)
    assert not record.active[rest].any()
    assert (record.equity[rest] == record.equity[at]).all()
    assert (record.quantity[rest] == 0).all()
    follows = int(np.flatnonzero(session > session[at])[0])
    assert record.account[follows] == record.account[at] + 1
    assert abs(int(record.equity[follows])) < 400_000


def test_files_add_up(result, tmp_path):
    write(result, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "evaluation.json",
        "evaluation.txt",
        "trades.csv",
        "equity.csv",
        "equity.png",
        "records.npz",
        "digests.json",
    }
    document = json.loads((tmp_path / "evaluation.json").read_text())
    net = document["agents"]["greedy"]["strategy"]["net_profit"]
    with (tmp_path / "trades.csv").open() as file:
        fills = list(csv.DictReader(file))
    assert sum(round(1000 * float(row["booked"])) for row in fills) == round(1000 * net)
    position = {"MES": 0, "MNQ": 0}
    for row in fills:
        position[row["symbol"]] += int(row["quantity"])
        assert position[row["symbol"]] == int(row["position"])
    assert set(position.values()) == {0}
    with (tmp_path / "equity.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["equity"]) == net
    assert float(last["profit_MES"]) + float(last["profit_MNQ"]) == pytest.approx(net)
    assert len(result.trades) == len(fills)
    assert len(result.equity) == len(result.decisions.rows)
    assert document["verdict"] == result.verdict()
    stored = StoredEvaluation(tmp_path, document, "America/New_York")
    pd.testing.assert_frame_equal(stored.trades, result.trades)
    pd.testing.assert_frame_equal(stored.equity, result.equity)
    assert stored.table == result.table()
    assert "  of MES ($)".strip() in stored._repr_html_()
    assert "MES" in repr(stored)
    for drawn in (stored.plot(), result.plot()):
        assert drawn.axes[0].lines[0].get_ydata()[-1] == pytest.approx(50_000 + net)


def test_the_records_hold_each_symbol(result, setup, tmp_path):
    """What is read back says what each symbol held, traded and made, bar by bar."""
    write(result, tmp_path)
    found = read_records(tmp_path / "records.npz")
    bars, greedy = found.bars, result.agent("greedy")
    assert bars is not None
    assert np.array_equal(bars.row[bars.decision], result.decisions.rows)
    assert np.array_equal(bars.close, np.asarray(setup.market.data.close)[bars.row])
    assert found.meta["tick_size"] == [str(each.tick_size) for each in setup.market.contracts]
    for own, record in ((bars.strategy, greedy.strategy), (bars.account, greedy.account)):
        for name in ("quantity", "equity", "account", "active", "end", "action"):
            assert np.array_equal(own[name], getattr(record, name)), name
        assert np.array_equal(own["legal"], ~record.illegal)
        assert np.array_equal(own["profit"], record.event.profit)
        assert not own.keys() & {"mask", "stop", "target", "high_water", "reached"}
    assert (bars.strategy["floor"] == ABSENT).all()
    assert (bars.account["floor"] != ABSENT).all()
    assert np.array_equal(bars.strategy["profit"].sum(axis=1).cumsum(), bars.strategy["equity"])
    for agent in result.agents:
        fills, frame = bars.trades[agent.name], result.trades_of(agent.name)
        assert fills["quantity"].tolist() == frame["quantity"].tolist()
        assert (fills["booked"] / 1000).tolist() == frame["booked"].tolist()
        assert np.array(("MES", "MNQ"))[fills["symbol"]].tolist() == frame["symbol"].tolist()
        assert (fills["price"] * 0.25).tolist() == frame["price"].tolist()
    assert {f"event.{name}" for name in fills} <= bars.strategy.keys()
    write_records(tmp_path / "again.npz", found)
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "records.npz").read_bytes()


def test_the_verdict_names_each_rival_and_says_whether_it_can_be_luck(result):
    said = result.verdict()
    assert not missing(said, "3 held-out sessions", "your policy")
    assert all(f"{name} (" in said for name in NAMES)
    assert "sampled" not in said
    assert not missing(said, "skill from luck", "split.test_sessions")


def test_an_order_has_the_time_of_the_bar_at_whose_open_it_is_filled(result, setup):
    """The first bar that is joined in its symbol; here one bar was missing in the other symbol."""
    late = replace(setup.market, opens=setup.market.opens - np.array([0, 60]))
    record, before = result.agents[0].strategy, result.trades
    after = fills_frame(record, result.decisions, late)
    moved = (before["time"] - after["time"]).dt.total_seconds()
    ordered = (before["symbol"] == "MNQ") & (before["reason"] == "order")
    assert len(before) == len(after) > ordered.sum() > 0
    assert moved.tolist() == (60.0 * ordered).tolist()


def test_the_validation_score_is_the_account_pass(result, setup, policy):
    score = mean_reward(setup.env, setup.params, setup.splits["test"], setup.algorithm, [policy])
    reward = result.agent("greedy").account.reward
    assert score == pytest.approx(float(reward.sum(dtype=np.float64)) / 3)


def test_a_run_trains_evaluates_resumes_and_is_read_again(tmp_path):
    values = VALUES | {
        "network": {"hidden": [8]},
        "split": {"test_sessions": 1, "validation_sessions": 1},
        "control": {"evaluate_every": 1},
    }
    path = tmp_path / "run"
    first = run(make_config(values, "test"), path)
    assert "your policy" in first.table
    assert uncounted.table(evaluate_run(Request(path))) == uncounted.table(first.table)
    resumed = resume(path)
    assert uncounted.table(resumed.table) == uncounted.table(first.table)
    assert "looked at 3 times (1 distinct trial)" in resumed.table
    again = open_run(path)
    assert again.table == resumed.table
    assert len(again.trades) == len(first.trades)
    with pytest.raises(ConfigError, match=r"env\.task=allocate"):
        grid_run(Request(path), ["intrabar order"])
    greedy = first.evaluation.agent("greedy")
    costs = json.loads(grid_run(Request(path, as_json=True), ["costs"]))
    rows = next(iter(costs.values()))["rows"]
    assert rows["costs 1x, slippage 1x"]["greedy"] == greedy.strategy_figures["net_profit"]
    assert rows["costs 0x, slippage 0x"]["buy_hold"] > rows["costs 2x, slippage 4x"]["buy_hold"]
    (session,) = first.evaluation.dates.astype(str)
    _, _, *lines = replay_run(Request(path), session)
    assert len(lines) == len(first.evaluation.decisions.rows)
    profits = [float(line.split(" | ")[2].split()[0]) for line in lines]
    assert profits == pytest.approx((greedy.account.equity / 1000).tolist(), abs=0.0051)
    a_page_shows(path, resumed.evaluation)


def a_page_shows(path, result):
    """`jaxtrade report` of a run of `allocate`: the account, and what each symbol contributed."""
    made, greedy = make(collect(choose(path))), result.agent("greedy").strategy_figures
    assert made.html == make(collect(choose(path))).html, "made twice it is the same page"
    shown, data = parsed(made.html), json.loads(made.json)
    named = [
        "equity",
        "honesty",
        "baselines",
        "sample",
        "symbols",
        "account",
        "grids",
        "training",
        "absent",
        "provenance",
    ]
    assert [each["id"] for tag, each, _ in shown.elements if tag == "section"] == named
    assert "--nulls" not in made.html
    assert "breakdown" not in data
    assert data["costs"] is not None
    assert made.trades == (path / "evaluation" / "test" / "trades.csv").read_text()
    for each in data["symbols"]["each"]:
        own = result.trades[result.trades["symbol"] == each["symbol"]]
        assert each["net"] == greedy[f"profit.{each['symbol']}"] == each["profit"][-1]
        assert each["fills"] == len(own)
        assert each["costs"] == pytest.approx(own["cost"].sum(), abs=1e-9)
    assert sum(each["trades"] for each in data["sessions"]) == len(result.trades)
    folder = path / "evaluation" / "test"
    (folder / "digests.json").unlink()
    write_records(folder / "records.npz", replace(read_records(folder / "records.npz"), bars=None))
    with pytest.raises(DataError, match=r"holds the days alone.*jaxtrade evaluate"):
        collect(choose(path))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"agents": (), "algorithm": 1, "policy": 1},
        {"agents": (), "policy": 1},
        {"algorithm": 1},
    ],
)
def test_an_evaluation_takes_either_agents_or_a_policy(given):
    """It ignores none of its arguments."""
    with pytest.raises(ConfigError, match="either agents"):
        evaluate_joint(*[cast(Any, None)] * 5, **given)
