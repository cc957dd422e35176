"""The desk and its gates: breaker, refusals, caps and rates."""

import pytest

from jaxtrade.advisor.host.types import Failure
from tests.advisor.service_parts import (
    bad,
    good,
)
from tests.advisor.test_desk import Office
from tests.messages import missing

# --- breaker, caps, rates --------------------------------------------------------------------------------------------


def broken(pool, **answer):
    """An office whose first five requests failed to connect."""
    office = Office(pool=pool)
    office.want(*range(10))
    for _ in range(5):  # the first request of several stays in flight
        office.answer(bad(Failure.CONNECTION, **answer), index=len(office.pool.jobs) - 1)
    return office


def test_a_dead_endpoint_is_one_clear_line_and_is_tried_again():
    office = broken(1, detail="connection refused by 127.0.0.1:9\x1b[31m")
    assert office.asked() == []
    [line] = office.lines
    assert not missing(line, "advisor scripted", "connection", "127.0.0.1:9", "next try in 30 s")
    assert line.isprintable()
    office.turn(30)
    office.answer(bad(Failure.CONNECTION))
    office.turn(59)
    assert office.asked() == []
    office.turn(1)
    office.answer(good())
    assert len(office.asked()) == 1
    assert office.lines[1:] == ["advisor scripted: answers again"]
    assert (office.counts["breaker_open_s"], office.counts["breaker_openings"]) == (90.0, 1)


@pytest.mark.parametrize(
    "probe",
    [bad(Failure.REFUSED, status=402), bad(Failure.EMPTY, status=200)],
    ids=["refused", "refused by the model"],
)
def test_a_probe_that_is_refused_does_not_answer_again(probe):
    office = broken(1)
    office.turn(30)
    office.answer(probe)
    assert not any("answers again" in line for line in office.lines)


def test_a_refusal_while_a_probe_is_in_flight_is_the_last_word():
    office = broken(2)
    office.turn(30)
    assert len(office.asked()) == 2
    office.answer(bad(Failure.REFUSED, status=402, detail="quota used"))
    office.answer(good())  # the probe
    office.turn(1e6)
    assert office.asked() == []
    [line] = office.lines[1:]
    assert not missing(line, "advisor scripted: it refuses", "quota used")


def test_an_outage_that_ends_in_an_unusable_answer_ends_with_the_first_usable_one():
    office = broken(1)
    office.turn(30)
    office.answer(bad(Failure.PARSE))
    assert (office.counts["breaker"], len(office.lines)) == ("closed", 2)
    office.answer(good())
    assert office.lines[2:] == ["advisor scripted: answers again"]


def test_a_refusal_ends_asking_with_one_clear_line():
    office = Office(pool=3)
    office.want(*range(10))
    refused = bad(Failure.REFUSED, status=401, detail="wrong key")
    for _ in range(3):
        office.desk.handle_result(office.pool.result(refused))
    office.turn(1e6)
    office.want(11)
    assert office.asked() == []
    [line] = office.lines
    assert not missing(line, "advisor scripted: it refuses", "(wrong key)")
    assert office.counts["mode"].startswith("refused: ")


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


def test_money_stops_where_the_most_that_a_request_can_cost_does_not_fit():
    """A request costs at most 0.000594, and 0.00008 in truth."""
    office = Office(max_cost=0.001, price_prompt=1.0, price_completion=2.0)
    office.want(*range(20))
    while office.pool.jobs:
        office.answer(good())
    assert (office.counts["asked"], office.ledger.sum_spend().cost) == (6, 480)
    assert office.counts["cost"] == pytest.approx(0.00048)
    assert "service.max_cost = 0.001" in office.lines[0]


def test_cost_is_unknown_without_prices():
    office = Office()
    office.want(1)
    office.answer(good())
    assert office.counts["cost"] is None


def test_another_model_is_reported_once_and_names_are_bounded():
    """Fault 17."""
    office = Office()
    office.want(*range(20))
    office.answer(good(model=""))
    for number in range(19):
        office.answer(good(model=f"tiny-{number}\x1b[2J" + "x" * 500))
    [line] = office.lines
    assert not missing(line, "tiny-0", "tiny-1")
    assert len(office.counts["models"]) == 8
    assert "tiny-0 [2J" + "x" * 70 + "…" in office.counts["models"]


def test_another_model_is_a_refusal_where_one_is_wanted(tmp_path):
    """Fault 17: its answer is absent, paid for and not remembered; nothing more is asked. A server
    that does not say cannot be caught."""
    office = Office(cache=tmp_path / "cache", same_model=True)
    office.want(1, 2, 3)
    for model in ("one", "", "another"):
        office.answer(good(model=model, prompt_tokens=100))
    office.want(4)
    assert ([bar for bar, _ in office.ready], office.asked()) == ([1, 2], [])
    [line] = office.lines
    assert not missing(line, "it refuses", "one", "another", "advisor.service.same_model")
    assert (office.counts["models"], office.counts["prompt_tokens"]) == ({"one": 1}, 300)
    again = Office(cache=tmp_path / "cache")
    again.want(1, 2, 3)
    assert ([bar for bar, _ in again.ready], again.asked()) == ([1, 2], [3])


def test_without_usage_the_most_is_spent_unless_the_server_did_not_answer():
    office = Office()
    office.want(1, 2, 3)
    office.answer(good(0, 0))
    assert office.ledger.sum_spend().tokens == 3 * 335  # the two under way, and this one
    office.answer(bad(Failure.HTTP, status=500))
    office.answer(bad(Failure.TIMEOUT))
    assert office.ledger.sum_spend() == (3, 2 * 335, 0)
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
