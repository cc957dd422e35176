"""`evaluate` as a whole: the table, the JSON, the labels, the picture."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import baselines, report
from jaxtrade.evaluation.evaluate import evaluate, standard_agents, write
from tests.evaluation.tiny import hand_market, setup, tiny_market, walk
from tests.messages import missing

MARKET = tiny_market(walk([40] * 20, scale=6.0), [40] * 20)


def result_of(market, agents=None, **sections):
    sessions = market.sessions(*range(len(market.data.sessions.first)))
    env, params, config = setup(market, sessions, **sections)
    chosen = standard_agents(env, market, config) if agents is None else agents(env)
    return evaluate(env, params, market, sessions, config, chosen, provenance={"git": "abc"})


@pytest.fixture(scope="module")
def long_result():
    return result_of(MARKET, account={"drawdown": 1_000.0, "profit_target": 1_500.0})


@pytest.fixture(scope="module")
def hand_result():
    return result_of(hand_market(2), lambda env: [baselines.buy_and_hold(env), baselines.flat()])


def lines_of(result):
    return {
        line.split("  ")[0].strip()
        if not line.startswith("  ")
        else line.strip().split("  ")[0]: line
        for line in result.table().splitlines()
    }


@pytest.mark.slow
def test_undefined_is_na_in_the_table_and_none_in_json(hand_result):
    lines = lines_of(hand_result)
    assert lines["daily Sharpe"].split("  ")[-1] == "n/a (2 sessions)"
    assert lines["win rate"].split()[-3:] == ["100.0", "%", "n/a"]
    assert lines["profit factor"].split()[-2:] == ["n/a", "n/a"]
    assert lines["net profit ($)"].split()[-2:] == ["91.68", "0.00"]
    assert lines["best session share"].split()[-3:] == [
        "50.0",
        "%",
        "n/a",
    ]  # 45.84 in each of two sessions
    assert hand_result.agent("buy_hold").account_figures["best_session_share"] == 0.5
    document = hand_result.to_json()
    flat = document["agents"]["flat"]["strategy"]
    assert [
        flat[key] for key in ("sharpe_daily", "win_rate", "profit_factor", "average_trade")
    ] == [None] * 4
    assert flat["net_profit"] == 0
    assert document["settings"]["coverage"] == 1.0


@pytest.mark.slow
def test_an_account_without_limits_shows_one_pass(hand_result, long_result):
    free = result_of(
        hand_market(2),
        lambda env: [baselines.buy_and_hold(env), baselines.flat()],
        account={"preset": "rules_off_50k"},
    )
    assert "account has no limits" in free.table()
    assert "accounts opened" not in free.table()
    for limited in (hand_result, long_result):
        assert "Strategy (account rules off)" in limited.table()
        assert "accounts opened" in limited.table()
    document = free.to_json()
    assert report.one_pass(document)
    assert "account" in document["agents"]["flat"], "the document has both passes"
    document["agents"]["flat"]["account"]["net_profit"] += 1
    assert not report.one_pass(document), "passes that differ are both shown"
    del document["settings"]["rules"]
    assert not report.one_pass(document), "an earlier version did not say"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("costs", "facts"),
    [
        (
            {},
            ("$2.08 per side", "$12.50 per market", "(1 tick)"),
        ),
        (
            {"commission": 0.125, "slippage": 2},
            ("$0.125 per side", "$25.00 per market", "(2 ticks, $12.50 per tick)"),
        ),
        (
            {"slippage": 0},
            ("$2.08 per side", "$0.00 per market", "(0 ticks, $12.50 per tick)"),
        ),
    ],
)
def test_costs_are_money_first(costs, facts):
    result = result_of(hand_market(1), lambda env: [baselines.flat()], costs=costs)
    [line] = [line for line in result.header() if line.startswith("costs: ")]
    assert not missing(line, *facts)


@pytest.mark.slow
def test_twenty_sessions_have_a_daily_sharpe(long_result):
    sharpe = {agent.name: agent.strategy_figures["sharpe_daily"] for agent in long_result.agents}
    assert sharpe["flat"] is None
    for name in ("random", "buy_hold", "sma_cross"):
        record = long_result.agent(name).strategy
        pnl = np.diff(record.equity.reshape(20, 39)[:, -1], prepend=0) / 1000
        assert sharpe[name] == pytest.approx(pnl.mean() / pnl.std(ddof=1) * 252**0.5)
    assert "n/a (" not in long_result.table()


def test_json_is_strict_and_carries_provenance(long_result):
    document = json.loads(json.dumps(long_result.to_json(), allow_nan=False))
    assert document["provenance"] == {"git": "abc"}
    assert document["settings"]["commission_per_side"] == 2.08
    assert document["settings"]["data_sha256"] == MARKET.fingerprint
    assert document["settings"]["intrabar"] == "stop_first"
    assert list(document["agents"]) == ["flat", "random", "buy_hold", "sma_cross"]
    for agent in document["agents"].values():
        account = agent["account"]
        ends = (
            account["passed"]
            + account["bust"]
            + account["failed_daily_loss"]
            + account["open_at_end"]
        )
        assert account["accounts"] == ends
        assert agent["strategy"]["illegal_actions"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "kind", "expected"),
    [
        ({}, "future", ["synthetic"]),
        ({"mark": "close", "fill": "close"}, "future", ["synthetic", "optimistic"]),
        (
            {},
            "fx",
            ["synthetic", "one-sided bars", "no overnight swap"],
        ),
    ],
)
def test_labels(env, kind, expected):
    market = hand_market(1)
    market = dataclasses.replace(market, contract=dataclasses.replace(market.contract, kind=kind))
    result = result_of(market, lambda env: [baselines.flat()], env=env)
    assert [
        label[: len(words)] for label, words in zip(result.labels, expected, strict=True)
    ] == expected
    text = result.table()
    assert all(f"NOTE: {label}" in text for label in result.labels)


@pytest.mark.slow
def test_bars_without_volume_are_labelled():
    market = dataclasses.replace(hand_market(1), synthetic=False, has_volume=False)
    (label,) = result_of(market, lambda env: [baselines.flat()]).labels
    assert "no volume" in label
    assert (
        result_of(market, lambda env: [baselines.flat()], env={"features": ["close"]}).labels == ()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        ((0,), ()),
        ((1, 2), ("1 of these 2 sessions",)),
        ((), ()),
    ],
)
def test_in_sample_sessions_are_labelled(trained, expected):
    market = dataclasses.replace(hand_market(4), synthetic=False)
    env, params, config = setup(market, market.sessions(0))
    result = evaluate(
        env,
        params,
        market,
        market.sessions(2, 3),
        config,
        [baselines.flat()],
        trained_on=market.sessions(*trained),
    )
    assert len(result.labels) == len(expected)
    assert not missing("".join(result.labels), *expected)


@pytest.mark.slow
def test_one_sentence_compares_with_the_baselines(hand_result):
    assert not missing(
        hand_result.verdict(),
        "2 sessions",
        "'buy_hold' made $91.68",
        "more than flat ($0.00)",
        "skill from luck",
    )
    assert "staying flat" not in hand_result.verdict()
    dear = result_of(
        hand_market(1), lambda env: [baselines.buy_and_hold(env)], costs={"commission": 100.0}
    )
    assert dear.verdict().endswith(
        "cannot tell skill from luck; staying flat can be the right answer."
    )
    seen = dataclasses.replace(
        hand_result, labels=("in sample: the policy was trained on 2 of these 2 sessions",)
    )
    held = dataclasses.replace(hand_result, provenance={"split": "test"})
    assert seen.verdict().startswith("On 2 training sessions, ")
    assert held.verdict().startswith("On 2 held-out sessions, ")


@pytest.mark.slow
def test_agents_of_one_program_act_as_alone(long_result):
    alone = result_of(
        MARKET,
        lambda env: [baselines.sma_cross(env, MARKET.data, 10, 50), baselines.random_masked(env)],
        account={"drawdown": 1_000.0, "profit_target": 1_500.0},
    )
    for agent in alone.agents:
        other = long_result.agent(agent.name)
        for one, both in ((agent.strategy, other.strategy), (agent.account, other.account)):
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(both), strict=True):
                assert np.array_equal(a, b)


def test_agent_names_must_differ():
    with pytest.raises(ConfigError, match="flat, flat"):
        result_of(hand_market(1), lambda env: [baselines.flat(), baselines.flat()])
    with pytest.raises(ConfigError, match="at least one agent"):
        result_of(hand_market(1), lambda env: [])


def test_unknown_agent_is_named(hand_result):
    with pytest.raises(KeyError, match="buy_hold, flat"):
        hand_result.agent("greedy")


@pytest.mark.slow
def test_every_file_is_written(long_result, hand_result, tmp_path):
    for name, result in (("long", long_result), ("one", hand_result)):
        paths = write(result, tmp_path / name)
        assert sorted(path.name for path in paths) == [
            "day.png",
            "equity.csv",
            "equity.png",
            "evaluation.json",
            "evaluation.txt",
            "records.npz",
            "trades.csv",
        ]
        assert (tmp_path / name / "equity.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert json.loads((tmp_path / name / "evaluation.json").read_text()) == result.to_json()
