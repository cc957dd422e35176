"""The verdict: against which baselines, on how many sessions, and whether it can be luck."""

import numpy as np
import pytest

from jaxtrade.config.accounts import name_account, resolve_account
from jaxtrade.config.market import AccountConfig
from jaxtrade.evaluation.evaluate import rules_of
from jaxtrade.evaluation.results_table import (
    AgentStanding,
    cell,
    compare_agents,
    describe_accounts,
    describe_habit,
    join_names,
    mean_interval,
    split_size_key,
)
from jaxtrade.text import several
from tests.messages import missing


def agent(name, *dollars, trades=3):
    """An agent that makes `dollars`, one number per session."""
    return AgentStanding(
        name, float(sum(dollars)), trades, (1000 * np.array(dollars)).astype(np.int64)
    )


def said(*agents, kind="held-out"):
    return compare_agents(agents, several(len(agents[0].pnl), f"{kind} session".strip()))


def test_one_session_is_luck():
    text = said(
        agent("greedy", -1.5),
        agent("sampled", 9.0),
        agent("flat", 0.0),
        agent("random", -3.0),
        agent("hold", 2.0),
        agent("cross", -1.5),
    )
    assert not missing(
        text,
        "1 held-out session",
        "your policy made -$1.50",
        "more than random (-$3.00)",
        "as much as cross (-$1.50)",
        "less than flat ($0.00)",
        "hold ($2.00)",
    )
    assert "sampled" not in text
    assert not missing(text, "skill from luck", "staying flat")


def test_too_few_sessions_name_the_key_to_raise():
    few, enough = (
        [AgentStanding("greedy", float(days), 3, 1000 * np.ones(days, np.int64))] for days in (4, 5)
    )
    assert [split_size_key(split) for split in ("test", "validation", "train", None)] == [
        "split.test_sessions",
        "split.validation_sessions",
        "",
        "",
    ]
    assert not missing(
        compare_agents(few, "4 dates", "trade date", split_size_key("test")),
        "4 trade dates cannot",
        "skill from luck",
        "larger split.test_sessions",
    )
    assert "split." not in compare_agents(enough, "5 dates", "trade date", split_size_key("test"))
    assert "split." not in compare_agents(few, "4 dates", "trade date", split_size_key("train"))


def test_the_interval_is_students():
    """P&L of 1, 2, 3, 4 and 5: mean 3, standard error sqrt(2.5 / 5), t(4, 0.975) = 2.776445."""
    mean, half = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert mean == 3.0
    assert half == pytest.approx(2.776445 * 0.5**0.5, rel=1e-6)
    text = said(agent("greedy", 1, 2, 3, 4, 5), agent("flat", 0, 0, 0, 0, 0))
    assert not missing(text, "per session $3.00 +- $1.96", "95 %", "outside noise")
    assert "staying flat" not in text
    assert "within noise" in said(agent("greedy", 1, -2, 3, -4, 5), agent("flat", 0, 0, 0, 0, 0))


def test_a_policy_that_never_trades():
    never = said(agent("greedy", 0.0, trades=0), agent("flat", 0.0, trades=0), kind="")
    assert not missing(never, "1 session", "your policy never traded", "as much as flat ($0.00)")
    assert "luck" not in never
    assert not missing(
        said(agent("flat", 0.0, trades=0)), "1 held-out session", "'flat' never traded"
    )


def test_lists():
    assert [join_names(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]


def test_a_policy_that_knows_one_side_is_named():
    for sides, exposure, expected in (
        ([-1] * 4, 1.0, ("short", "4 of 4", "all the time")),
        ([1] * 3, 0.5, ("long", "3 of 3")),
    ):
        text = describe_habit(np.array(sides), exposure)
        assert not missing(text, *expected)
        assert ("all the time" in text) == (exposure == 1)
    for sides in ([1, 1], [1, 1, -1], []):
        assert describe_habit(np.array(sides), 1.0) == ""


def settings_of(**account):
    config = AccountConfig(**account)
    return {"account": name_account(config), "rules": rules_of(resolve_account(config))}


def ended(net, passed=0, bust=0, daily=0, still=0):
    counts = {"passed": passed, "bust": bust, "failed_daily_loss": daily, "open_at_end": still}
    return {"net_profit": net, "accounts": sum(counts.values()), **counts}


def test_a_second_sentence_says_how_the_accounts_ended():
    text = describe_accounts(settings_of(), [ended(-12503.4, passed=2, bust=10)])
    assert text == (
        "Under apex_like_50k_2025 it opened 12 accounts: 2 passed, 10 bust (-$12,503.40)."
    )
    one = describe_accounts(settings_of(drawdown=2000), [ended(-1004.14, still=1)])
    assert not missing(
        one,
        "apex_like_50k_2025 with drawdown 2,000 it",
        "1 account:",
        "none passed, none bust, 1 open (-$1,004.14)",
    )
    two = [ended(1, bust=1, daily=1), ended(2, passed=1)]
    assert not missing(
        describe_accounts(settings_of(), two, "they"),
        "they opened 3 accounts: 1 passed, 1 bust, 1 failed by daily loss ($3.00)",
    )
    assert describe_accounts(settings_of(preset="rules_off_50k"), two) == ""


def test_days_that_were_trained_on_prove_nothing():
    text = compare_agents([agent("greedy", 1, 2, 3, 4, 5)], "5 training sessions", trained=True)
    assert "memorised" in text
    assert "noise" not in text


def test_counts_are_written_as_counts():
    found = [cell(value, "count") for value in (674, 670.3333, 2.0, 12345.0, None)]
    assert found == ["674", "670.3", "2", "12,345", "n/a"]
