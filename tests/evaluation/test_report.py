"""`evaluate` as a whole: the table, the JSON, the labels, the picture."""

import dataclasses
import json

import numpy as np
import pytest

from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import baselines, results_table
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.evaluators import evaluate
from tests.evaluation.tiny import (
    WALK,
    evaluated,
    hand_market,
    result_of,
    setup,
    tiny_market,
    walk,
    walked,
)
from tests.messages import missing

pytestmark = pytest.mark.slow


def flat(env):
    return baselines.flat()


@pytest.fixture(scope="module")
def hand_result():
    return evaluated(hand_market(2), baselines.buy_and_hold, flat)


def lines_of(result):
    return {
        line.split("  ")[0].strip()
        if not line.startswith("  ")
        else line.strip().split("  ")[0]: line
        for line in result.table().splitlines()
    }


def test_undefined_is_na_in_the_table_and_none_in_json(hand_result):
    [costs] = [line for line in hand_result.header() if line.startswith("costs: ")]
    assert not missing(costs, "$2.08 per side", "$12.50 per market", "(1 tick)")
    lines = lines_of(hand_result)
    assert "daily Sharpe" not in lines
    assert results_table.SHARPE in results_table.lacking_of(2)
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
    with pytest.raises(KeyError, match="buy_hold, flat"):
        hand_result.agent("greedy")


def test_an_account_without_limits_shows_one_pass(hand_result):
    account = {"preset": "rules_off_50k"}
    free = evaluated(hand_market(2), baselines.buy_and_hold, flat, account=account)
    assert "account has no limits" in free.table()
    assert "accounts opened" not in free.table()
    for limited in (hand_result, walked()):
        assert "Strategy (account rules off)" in limited.table()
        assert "accounts opened" in limited.table()
    document = free.to_json()
    assert results_table.one_pass(document)
    assert "account" in document["agents"]["flat"], "the document has both passes"
    document["agents"]["flat"]["account"]["net_profit"] += 1
    assert not results_table.one_pass(document), "passes that differ are both shown"
    del document["settings"]["rules"]
    assert not results_table.one_pass(document), "an earlier version did not say"


def test_twenty_sessions_have_a_daily_sharpe():
    result = evaluated(
        tiny_market(walk([8] * 20, scale=6.0), [8] * 20), baselines.buy_and_hold, flat
    )
    agent = result.agent("buy_hold")
    pnl = np.diff(agent.strategy.equity.reshape(20, 7)[:, -1], prepend=0) / 1000
    sharpe = pnl.mean() / pnl.std(ddof=1) * 252**0.5
    assert agent.strategy_figures["sharpe_daily"] == pytest.approx(sharpe)
    assert result.agent("flat").strategy_figures["sharpe_daily"] is None
    assert results_table.SHARPE in lines_of(result)
    assert not results_table.lacking_of(20)


def test_a_run_ends_with_its_verdict_and_a_short_table(hand_result):
    first, *others = hand_result.table(brief=True).splitlines()
    assert first == hand_result.verdict() == hand_result.table().splitlines()[0]
    assert len(others) <= 22  # with what a command says besides, at most 30 lines


def test_json_is_strict_and_carries_provenance():
    document = json.loads(json.dumps(walked().to_json(), allow_nan=False))
    assert document["provenance"] == {"git": "abc"}
    assert document["settings"]["commission_per_side"] == 2.08
    assert document["settings"]["data_sha256"] == WALK.fingerprint
    assert document["settings"]["intrabar"] == "stop_first"
    assert list(document["agents"]) == ["random", "flat", "buy_hold", "sma_cross"]
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
    result = evaluated(market, flat, env=env)
    assert [
        label[: len(words)] for label, words in zip(result.labels, expected, strict=True)
    ] == expected
    text = result.table()
    assert all(f"NOTE: {label}" in text for label in result.labels)


def test_bars_without_volume_are_labelled():
    market = dataclasses.replace(hand_market(1), synthetic=False, has_volume=False)
    (label,) = evaluated(market, flat).labels
    assert "no volume" in label
    assert evaluated(market, flat, env={"features": ["close"]}).labels == ()


def test_in_sample_sessions_are_labelled():
    market = dataclasses.replace(hand_market(4), synthetic=False)
    env, params, config = setup(market, market.sessions(0))
    held = market.sessions(2, 3)
    for trained, expected in (((0,), 0), ((1, 2), 1), ((), 0)):
        own = market.sessions(*trained)
        result = evaluate(env, params, market, held, config, [baselines.flat()], trained_on=own)
        assert [label.count("1 of these 2 sessions") for label in result.labels] == [1] * expected


def test_one_sentence_compares_with_the_baselines(hand_result):
    assert not missing(hand_result.verdict(), "'buy_hold' made $91.68", "more than flat ($0.00)")
    seen = dataclasses.replace(hand_result, labels=("in sample: 2 of these 2 sessions",))
    held = dataclasses.replace(hand_result, provenance={"split": "test"})
    assert not missing(seen.verdict(), "2 training sessions")
    assert not missing(held.verdict(), "2 held-out sessions")
    one = dataclasses.replace(
        hand_result,
        labels=("in sample: the policy was trained on 1 of these 2 sessions",),
        provenance={"split": "all"},
    )
    assert not missing(one.verdict(), "On all 2 sessions, 1 of them trained on, ")


def test_agent_names_must_differ():
    market = hand_market(1)
    with pytest.raises(ConfigError, match="flat, flat"):
        evaluated(market, flat, flat)
    with pytest.raises(ConfigError, match="at least one agent"):
        result_of(market, lambda env: [])


def test_every_file_is_written(hand_result, tmp_path):
    for name, result in (("long", walked()), ("one", hand_result)):
        write(result, tmp_path / name)
        found = {path.name for path in (tmp_path / name).iterdir()} - {"digests.json"}
        assert sorted(found) == [
            "day.png",
            "equity.csv",
            "equity.png",
            "evaluation.json",
            "evaluation.txt",
            "records.npz",
            "trades.csv",
        ]
        for picture in ("equity.png", "day.png"):
            assert (tmp_path / name / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert json.loads((tmp_path / name / "evaluation.json").read_text()) == result.to_json()
