"""The verdict: against which baselines, on how many sessions, and whether it can be luck."""

import numpy as np
import pytest

from jaxtrade.evaluation.results_table import (
    AgentStanding,
    compare_agents,
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
