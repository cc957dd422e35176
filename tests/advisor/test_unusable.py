"""Unusable answers: the first is reported with a remedy, too many in a row pause asking, and all
are counted.
"""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.policy import ServiceUse
from jaxtrade.advisor.host.replies import (
    CUT_OFF,
    WHAT,
    is_unusable,
    reason_of,
    reasons_text,
    remedy,
    unusable_lines,
)
from jaxtrade.advisor.host.types import Failure
from tests.advisor.asking import SOON
from tests.advisor.servers import GOOD, FaultServer, advises, completion, reply, says
from tests.advisor.service_parts import CANARY, HandClock, bad, good, until
from tests.advisor.test_desk import Office
from tests.messages import missing

pytest.importorskip("httpx")

N = 6
PROSE = bad(Failure.PARSE, raw="I would buy here.")
SERVER = {"structured": "json_schema", "answer": "json"}


# --- reasons and remedies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "raw", "detail", "reason"),
    [
        (Failure.PARSE, "I would buy here.", "", "prose"),
        (Failure.PARSE, " <THINK>Up?", "", "think"),
        (Failure.PARSE, '{"v": 1,', "", "json"),
        (Failure.SCHEMA, '{"v": 2}', "", "schema"),
        (Failure.TOO_LARGE, '{"v"', CUT_OFF, "cut_off"),
        (Failure.TOO_LARGE, "", CUT_OFF, "cut_off"),
        (Failure.TOO_LARGE, "", "more than 262144 bytes", "too_large"),
        (Failure.EMPTY, "", "", "empty"),
    ],
)
def test_the_reason(failure, raw, detail, reason):
    answer = bad(failure, status=200, raw=raw, detail=detail)
    assert (is_unusable(answer), reason_of(answer)) == (True, reason)


@pytest.mark.parametrize(
    "answer",
    [
        good(),
        bad(Failure.PARSE, raw="", status=200),  # a proxy's page
        bad(Failure.EMPTY),  # a mock's way of saying nothing
        bad(Failure.CONNECTION),
        bad(Failure.HTTP, status=500),
        bad(Failure.STOPPED),
        bad(Failure.UNSUPPORTED, status=400),
    ],
)
def test_what_is_not_an_unusable_answer(answer):
    assert not is_unusable(answer)


@pytest.mark.parametrize(
    ("reason", "identity", "words"),
    [
        ("cut_off", SERVER, "service.completion_tokens (now 256)"),
        ("empty", SERVER, "advisor.service.completion_tokens"),
        ("too_large", SERVER, "advisor.options.max_bytes"),
        ("prose", SERVER, "advisor.template=pipe"),
        ("schema", {**SERVER, "structured": "none"}, "options.structured=json_schema"),
        ("schema", {"inner.structured": "none", "inner.answer": "json"}, "structured=json_schema"),
        ("prose", {**SERVER, "answer": "pipe"}, "advisor.template=v1"),
    ],
)
def test_the_remedy_fits(reason, identity, words):
    assert words in remedy(reason, identity, 256)
    assert all(WHAT[each] and remedy(each, identity, 256) for each in WHAT)


def test_the_report_s_line():
    assert unusable_lines({}) == unusable_lines({"unusable": {}, "unusable_pauses": 0}) == []
    [line] = unusable_lines({"unusable": {"think": 2, "prose": 1200}, "unusable_pauses": 1})
    assert not missing(line, "1,202", "(1200 prose, 2 think)", "paused 1 time")
    assert reasons_text({}) == ""


# --- the pause, by hand ----------------------------------------------------------------------------------------------


def test_asking_pauses_and_probes_with_growing_pauses():
    office = Office(pool=1, unusable_pause_after=N, failed_for_s=1e9, breaker_longest_s=120.0)
    office.want(*range(100))
    for _ in range(N):
        office.answer(PROSE)
    assert (office.asked(), office.counts["asked"], office.counts["breaker"]) == ([], N, "closed")
    for pause in (30, 60, 120, 120):
        office.turn(pause - 1)
        assert office.asked() == []
        office.turn(1)
        assert len(office.asked()) == 1  # one probe at a time
        office.answer(PROSE)
    names = ("asked", "unusable", "unusable_state", "unusable_pauses")
    assert [office.counts[name] for name in names] == [N + 4, {"prose": N + 4}, "open", 1]
    assert f"{N + 4} prose" in office.counts["mode"]
    office.turn(120)
    for _ in range(2):
        office.answer(good())
        assert len(office.asked()) == 1
    first, pause, end = office.lines
    assert not missing(first, "prose", '"I would buy here."', "advisor.template=pipe")
    assert not missing(pause, f"{N} answers", f"({N} prose)", "next try in 30 s")
    assert not missing(end, "advisor scripted", "asking goes on")


def test_a_usable_answer_opens_all_workers_and_ends_the_row():
    office = Office(pool=10, unusable_pause_after=N)
    office.want(*range(100))
    for answer in [PROSE] * (N - 1) + [good()]:
        office.answer(answer)
    assert len(office.asked()) == 10
    for _ in range(N - 1):
        office.answer(PROSE)
    assert office.counts["unusable_state"] == "closed"
    assert len(office.asked()) == 10 - N + 1  # only what was in flight already
    office.answer(PROSE)
    assert (office.counts["unusable_state"], office.counts["asked"]) == ("open", N + 10)


def test_a_server_in_doubt_gets_one_request_and_its_answer_is_not_reported_again():
    office = Office(pool=4, unusable_pause_after=N, use=ServiceUse(goes_on=False, doubted=True))
    office.want(*range(20))
    assert len(office.asked()) == 1
    office.answer(PROSE)
    assert (office.asked(), office.lines, office.counts["unusable"]) == ([], [], {"prose": 1})
    office.turn(30)
    office.answer(good())
    assert len(office.asked()) == 4  # no doubt any more


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["answer", "hang", "turn", "want"]), max_size=80),
    st.integers(1, 12),
    st.integers(2, 9),
)
def test_a_server_without_a_usable_answer_gets_n_requests(steps, workers, most):
    office = Office(pool=workers, unusable_pause_after=most, retry_share=1.0, attempts=10)
    hung = 0
    for number, step in enumerate(steps):
        if step == "want":
            office.want(*range(10 * number, 10 * number + 10))
        elif step == "turn":
            office.turn(0.2)  # 16 s at most in total: no probe yet
        elif office.pool.jobs and step == "hang":
            office.pool.hang()
            hung += 1  # given up, and so no longer in flight
        elif office.pool.jobs and step == "answer":
            office.answer(PROSE._replace(retryable=True))
        assert office.counts["asked"] <= most + hung


# --- real servers ----------------------------------------------------------------------------------------------------

UNUSABLE = {
    "prose": (says("I would buy here."), "advisor.template=pipe"),
    "think": (says("<think>Up? ADX 42.</think>"), "advisor.service.completion_tokens"),
    "cut_off": (says(None, finish="length"), "advisor.service.completion_tokens"),
    "schema": (advises(direction="BUY"), "advisor.options.structured"),
}


@pytest.fixture
def serve(run):
    """A service on a server, with a clock by hand; failures are retried, and 60 bars are wanted."""

    def new(url, workers=8):
        made = run(
            OpenAIBackend(base_url=url, model="m", key_env="LLM_KEY", temperature=0.7),
            clock=HandClock(time.monotonic()),
            workers=workers,
            unusable_pause_after=N,
            retry_share=1.0,
            attempts=5,
        )
        made.want(*range(60))
        return made

    return new


@pytest.mark.parametrize("name", UNUSABLE)
def test_n_requests_and_the_probes(name, serve):
    step, words = UNUSABLE[name]
    with FaultServer(step) as server:
        served = serve(server.url)
        assert served.asked(N)
        for pause, probes in ((29.0, 0), (1.0, 1), (59.0, 1), (1.0, 2)):
            served.clock.now += pause
            assert served.asked(N + probes)
        served.stop()
        assert len(server.requests) == N + 2
    assert served.counts["unusable"] == {name: N + 2}
    first, pause = served.lines
    assert words in first
    assert not missing(pause, f"{N} answers", f"({N} {name})", "next try in 30 s")
    assert all(line.isprintable() and len(line) < 500 for line in served.lines)


def test_the_sample_holds_no_key_and_no_control_characters(serve):
    with FaultServer(says(f"\x1b[2JMy key is {CANARY}, or {CANARY[:14]}.\n" + "x" * 500)) as server:
        served = serve(server.url)
        assert served.asked(N)
        served.stop()
    assert "My key is [key]" in served.lines[0]
    assert "CANARY" not in repr(served.lines)
    assert served.lines[0].isprintable()
    assert len(served.lines[0]) < 500


# --- response_format -------------------------------------------------------------------------------------------------


def takes_only(*forms):
    """A server that answers 400 to any other `response_format`."""

    def run(wire):
        form = wire.request.body.get("response_format", {}).get("type", "none")
        words = json.dumps(
            {"error": {"message": f"response_format type must be one of {forms}, but got: {form}"}}
        )
        (reply(200, completion(json.dumps(GOOD))) if form in forms else reply(400, words))(wire)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms", "said"),
    [
        (("json_object", "none"), "json_schema (status 400"),
        (("none",), "json_object (status 400"),
    ],
)
def test_a_rejected_response_format_falls_back_and_stays_there(forms, said, serve):
    with FaultServer(takes_only(*forms)) as server:
        served = serve(server.url)
        assert until(lambda: served.counts["done"] == 60, SOON)
        served.stop()
        asked = [
            request.body.get("response_format", {}).get("type", "none")
            for request in server.requests
        ]
        rejected = [form for form in asked if form not in forms]
    assert served.counts["failures"] == {"unsupported": len(rejected)}
    assert len(rejected) <= N + 1  # those in flight at the start, then one at a time
    assert set(asked) - set(rejected) == {forms[0]}
    assert len(served.lines) == 1
    assert said in served.lines[0]
    assert served.counts["breaker"] == "closed"


def test_a_server_that_rejects_every_form_is_an_outage(serve):
    with FaultServer(takes_only()) as server:
        served = serve(server.url, workers=4)
        assert until(
            lambda: served.counts["breaker"] == "open" and served.counts["in_flight"] == 0, SOON
        )
        served.stop()
        assert (
            len(server.requests) <= 4 + 1 + 5 + 3
        )  # in flight, json_object, the breaker's failures, in flight then
    assert ["no response_format" in line for line in served.lines] == [True, False]
    assert "http" in served.lines[1]
