"""The desk and its gates: breaker, refusals, caps and rates."""

from __future__ import annotations

import pytest

from jaxtrade.advisor.host.types import Failure
from tests.advisor.service_parts import (
    bad,
    good,
)
from tests.advisor.test_desk import Office
from tests.messages import missing

# --- breaker, caps, rates --------------------------------------------------------------------------------------------


def test_a_dead_endpoint_is_one_clear_line_and_is_tried_again():
    office = Office(pool=1)
    office.want(*range(10))
    for _ in range(5):
        office.answer(bad(Failure.CONNECTION, detail="connection refused by 127.0.0.1:9\x1b[31m"))
    assert office.asked() == []
    [line] = office.lines
    assert not missing(line, "advisor scripted", "connection", "127.0.0.1:9", "next try in 30 s")
    assert "\x1b" not in line
    office.turn(30)
    assert len(office.asked()) == 1
    office.answer(bad(Failure.CONNECTION))
    office.turn(59)
    assert office.asked() == []
    office.turn(1)
    office.answer(good())
    assert len(office.asked()) == 1
    assert office.lines[1:] == ["advisor scripted: answers again"]
    assert (office.counts["breaker_open_s"], office.counts["breaker_openings"]) == (90.0, 1)


def test_a_proxys_pages_open_the_breaker_and_poison_nothing():
    """Fault 13: 200 with HTML."""
    office = Office(pool=1)
    office.want(*range(10))
    for _ in range(5):
        office.answer(bad(Failure.PARSE, raw="", status=200, detail="HTML: not JSON"))
    assert (office.asked(), office.counts["breaker"], office.counts["poisoned"]) == ([], "open", 0)


@pytest.mark.parametrize(
    "probe",
    [bad(Failure.REFUSED, status=402), bad(Failure.EMPTY, status=200)],
    ids=["refused", "refused by the model"],
)
def test_a_probe_that_is_refused_does_not_answer_again(probe):
    office = Office(pool=2)
    office.want(*range(10))
    for _ in range(5):
        office.answer(bad(Failure.CONNECTION))
    office.turn(30)
    while office.pool.jobs:
        office.answer(probe)
    assert not any("answers again" in line for line in office.lines)


def test_a_refusal_while_a_probe_is_in_flight_is_the_last_word():
    office = Office(pool=2)
    office.want(*range(10))
    for _ in range(5):
        office.answer(
            bad(Failure.CONNECTION), index=len(office.pool.jobs) - 1
        )  # the first request stays in flight
    office.turn(30)
    assert len(office.asked()) == 2
    office.answer(bad(Failure.REFUSED, status=402, detail="quota used"))
    office.answer(good())  # the probe
    office.turn(1e6)
    assert office.asked() == []
    [line] = office.lines[1:]
    assert not missing(line, "advisor scripted: it refuses", "quota used")


def test_an_outage_that_ends_in_an_unusable_answer_ends_with_the_first_usable_one():
    office = Office(pool=1)
    office.want(*range(10))
    for _ in range(5):
        office.answer(bad(Failure.CONNECTION))
    office.turn(30)
    office.answer(bad(Failure.PARSE))
    assert (office.counts["breaker"], len(office.lines)) == ("closed", 2)
    assert "answer cannot be used" in office.lines[1]
    office.answer(good())
    assert office.lines[2:] == ["advisor scripted: answers again"]


@pytest.mark.parametrize(
    ("status", "detail"),
    [(401, "wrong key"), (403, "forbidden"), (404, "no such model: nano"), (402, "quota used")],
)
def test_a_refusal_ends_asking_with_one_clear_line(status, detail):
    office = Office(pool=3)
    office.want(*range(10))
    for _ in range(3):
        office.desk.finished(office.pool.result(bad(Failure.REFUSED, status=status, detail=detail)))
    office.turn(1e6)
    office.want(11)
    assert office.asked() == []
    [line] = office.lines
    assert not missing(line, "advisor scripted: it refuses", f"({detail})")
    assert office.counts["mode"] == f"refused: it refuses ({detail})"


def test_no_cap_is_ever_exceeded_and_one_line_says_so():
    office = Office(max_calls=5)
    office.want(*range(20))
    for _ in range(20):
        if office.pool.jobs:
            office.answer(good())
    assert (office.counts["asked"], len(office.ready)) == (5, 5)
    [line] = office.lines
    assert not missing(line, "advisor scripted", "5 of", "service.max_calls = 5")
    assert office.counts["mode"].startswith("cache only")


def test_caps_survive_a_restart(tmp_path):
    for expected in (3, 0):
        office = Office(ledger=tmp_path / "ledger", max_calls=3)
        office.want(*range(9))
        while office.pool.jobs:
            office.answer(good())
        assert office.counts["asked"] == expected
        office.ledger.close()


def test_tokens_under_way_are_counted_at_their_most():
    """8 at once must not pass a cap that each alone would keep."""
    office = Office(pool=8, max_tokens=1000)  # a request may take 338: 18 bytes + 64 + 256
    office.want(*range(8))
    assert len(office.asked()) == 2
    while office.pool.jobs:
        office.answer(good())  # 60 in truth
    spent = office.ledger.spent()
    assert office.counts["asked"] == 8
    assert spent == (8, 480, 0)


def test_money_stops_where_the_most_that_a_request_can_cost_does_not_fit():
    office = Office(
        max_cost=0.001, price_prompt=1.0, price_completion=2.0
    )  # 0.000594 at most, 0.00008 in truth
    office.want(*range(20))
    while office.pool.jobs:
        office.answer(good())
    assert office.ledger.spent().cost == 80 * office.counts["asked"] <= 1000
    assert office.counts["asked"] == 6
    assert office.counts["cost"] == pytest.approx(0.00048)
    assert "service.max_cost = 0.001 is" in office.lines[0]


def test_cost_is_unknown_without_prices():
    office = Office()
    office.want(1)
    office.answer(good())
    assert office.counts["cost"] is None


def test_another_model_is_reported_once_and_names_are_bounded():
    """Fault 17."""
    office = Office()
    office.want(*range(20))
    for number in range(20):
        office.answer(good(model="" if number == 0 else f"tiny-{max(1, number - 10)}"))
    assert len(office.lines) == 1
    assert not missing(office.lines[0], "tiny-1", "tiny-2")
    assert len(office.counts["models"]) == 8
    assert office.counts["models"]["tiny-1"] == 11
    office = Office()
    office.want(1)
    office.answer(good(model="m\x1b[2J" + "x" * 500))
    assert list(office.counts["models"]) == ["m [2J" + "x" * 75 + "…"]


def test_another_model_is_a_refusal_where_one_is_wanted(tmp_path):
    """Fault 17: its answer is absent, paid for and not remembered; nothing more is asked."""
    office = Office(cache=tmp_path / "cache", same_model=True)
    office.want(1, 2, 3)
    office.answer(good(model="one", prompt_tokens=100))
    office.answer(good(model="", prompt_tokens=100))  # a server that does not say cannot be caught
    office.answer(good(model="another", prompt_tokens=100))
    office.want(4)
    assert office.asked() == []
    assert [bar for bar, _ in office.ready] == [1, 2]
    [line] = office.lines
    assert not missing(line, "it refuses", "one", "another", "advisor.service.same_model")
    assert office.counts["models"] == {"one": 1}
    assert office.counts["prompt_tokens"] == 300
    again = Office(cache=tmp_path / "cache")
    again.want(1, 2, 3)
    assert ([bar for bar, _ in again.ready], again.asked()) == ([1, 2], [3])


def test_without_usage_the_most_is_spent_unless_the_server_did_not_answer():
    office = Office()
    office.want(1, 2, 3)
    office.answer(good(0, 0))
    assert office.ledger.spent().tokens == 3 * 335  # the two under way, and this one
    office.answer(bad(Failure.HTTP, status=500))
    office.answer(bad(Failure.TIMEOUT))
    assert office.ledger.spent() == (3, 2 * 335, 0)
    assert office.counts["usage_unknown"] == 2


def test_a_ledger_that_cannot_be_written_ends_asking(tmp_path):
    office = Office(ledger=tmp_path / "ledger")
    office.ledger._connection.execute("PRAGMA query_only=ON")
    office.want(1, 2)
    assert office.asked() == []
    assert len(office.lines) == 1
    assert "cannot be read or" in office.lines[0]


def test_requests_and_tokens_per_minute():
    office = Office(pool=64, requests_per_minute=60, unusable_pause_after=64)
    office.want(*range(100))
    assert len(office.asked()) == 6
    office.turn(10.0)
    assert len(office.asked()) == 12  # the burst again, not more
    office = Office(pool=64, tokens_per_minute=6000, unusable_pause_after=64)
    office.want(*range(100))
    assert len(office.asked()) == 2  # 271 each, prompt and answer, of 600 at once
    office.answer(good())  # gives 211 back, which is 2 too few
    assert len(office.asked()) == 1
    office.turn(10.0)
    assert len(office.asked()) == 3


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (good(), 540),
        (good(171, 200), 229),
        (good(0, 0), 329),
        (bad(Failure.TIMEOUT), 329),
        (bad(Failure.HTTP, status=500), 600),
    ],
)
def test_the_rate_of_tokens_is_corrected_by_the_usage(answer, left):
    office = Office(tokens_per_minute=6000)
    office.want(1)
    office.answer(answer)
    tokens = office.desk.gates._rates[1]
    assert tokens is not None
    assert tokens._level == left
