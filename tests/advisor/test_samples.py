"""Several samples of one model: the agreement is the confidence, and every request is counted,
capped and paid.
"""

import json
import time

import pytest

from jaxtrade.advisor.host.backends import SampledBackend, calls_of, combine_samples, merge_answers
from jaxtrade.advisor.host.ledger import Spend
from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.registry import check_kind, make_backend
from jaxtrade.advisor.host.types import Answer, Failure, advice_of
from jaxtrade.errors import ConfigError
from tests.advisor.asking import SOON
from tests.advisor.servers import FaultServer, advises, reply, says
from tests.advisor.service_parts import bad, until

LONG, SHORT, FLAT = "long", "short", "flat"


def said(direction, confidence=0.9, risk=0.2, horizon=30):
    return advice_of(direction, confidence, risk, horizon)


def answer(direction, **more):
    return Answer(
        said(direction), status=200, raw=direction, prompt_tokens=10, completion_tokens=5
    )._replace(**more)


# --- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "direction", "confidence"),
    [
        ("L", LONG, 1.0),
        ("LLS", LONG, 1 / 3),  # |1 + 1 - 1| / 3
        ("SSSF", SHORT, 3 / 4),
        ("LLFS", LONG, 1 / 4),
        ("LLLLLSSF", LONG, 3 / 8),
        ("FFL", FLAT, 2 / 3),
        ("LS", FLAT, 0.0),  # ties
        ("LLFF", FLAT, 0.0),
        ("SSLLF", FLAT, 0.0),
    ],
)
def test_the_majority_and_its_agreement(votes, direction, confidence):
    """In any order, whatever confidence the samples claim."""
    names = {"L": LONG, "S": SHORT, "F": FLAT}
    for order, claimed in ((votes, 0.9), (votes[::-1], 0.1)):
        found = combine_samples([said(names[vote], claimed) for vote in order])
        assert found == advice_of(direction, confidence, 0.2, 30)


def test_risk_and_horizon_are_medians():
    """Of 0.3 and 0.4 the middle, of 10 and 30 the lower."""
    given = ((0.1, 5), (0.9, 60), (0.3, 10), (0.4, 30))
    samples = [said(LONG, risk=risk, horizon=horizon) for risk, horizon in given]
    assert combine_samples(samples)[4:] == (pytest.approx(0.35), 10)
    assert combine_samples(samples[:3])[4:] == (0.3, 10)
    assert said(LONG, confidence=0.0).direction == 0


UNUSABLE = bad(Failure.PARSE, raw="no", prompt_tokens=10, completion_tokens=1, retryable=True)


@pytest.mark.parametrize(
    ("parts", "usable"),
    [
        ([answer(LONG), answer(LONG), UNUSABLE, UNUSABLE], True),
        ([answer(LONG), UNUSABLE, UNUSABLE, UNUSABLE], False),
        ([answer(LONG), answer(LONG), bad(Failure.TIMEOUT)], True),
        ([answer(LONG), bad(Failure.TIMEOUT)], False),
    ],
)
def test_half_of_the_samples_must_be_usable(parts, usable):
    found = merge_answers(parts, 4)
    assert (found.advice is not None) == usable
    assert found.failure is (None if usable else parts[-1].failure)
    assert found.parts == tuple(parts)
    assert found.prompt_tokens == sum(part.prompt_tokens for part in parts)
    assert json.loads(found.raw) == [part.raw for part in parts if part.raw]


class Script:
    """Answers sample after sample by script; remembers its number and the seconds that it had."""

    name = "script"

    def __init__(self, *answers):
        self.answers, self.asked = answers, []

    def identity(self):
        return {"kind": "script"}

    def answer(self, question, deadline, number):
        self.asked.append((number, deadline - time.monotonic()))
        return self.answers[number]

    def close(self):
        """Nothing to let go."""


def test_each_sample_gets_its_number_and_its_share_of_the_time(run):
    """deadline_s is the time of one request: a question has that of all its samples."""
    script = Script(answer(LONG), answer(SHORT), answer(LONG))
    running = run(SampledBackend(script, 3), deadline_s=60.0, workers=1)
    running.want(1)
    assert running.asked(3)
    assert running.service.take(9) == [(1, combine_samples([said(LONG), said(SHORT), said(LONG)]))]
    assert [number for number, _ in script.asked] == [0, 1, 2]
    assert all(60.0 - SOON < seconds <= 60.0 + SOON for _, seconds in script.asked)


def test_the_identity_names_the_samples():
    def of(samples, wrapped=""):
        options = {"model": "m", "temperature": 0.7, "samples": samples}
        return make_backend(f"{wrapped}http://127.0.0.1:1/v1", options)

    assert {**of(1).identity(), "samples": "3"} == of(3).identity()
    calls = [calls_of(each) for each in (of(1), of(3), of(3, "mock:slow:1/"))]
    assert calls == [1, 3, 3]
    assert calls_of(make_backend("mock:random")) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "'samples' = 0"),
        ({"samples": 33, "temperature": 1.0}, "32"),
        ({"samples": 2.0, "temperature": 1.0}, "'samples' = 2.0"),
        ({"samples": 3}, "advisor.options.temperature"),
    ],
)
def test_samples_that_cannot_be_are_refused_before_anything_starts(options, words):
    for check in (check_kind, make_backend):
        with pytest.raises(ConfigError, match=words):
            check("http://127.0.0.1:1/v1", {"model": "m", **options})
    check_kind("http://127.0.0.1:1/v1", {"model": "m", "samples": 3, "temperature": None})


# --- with a server: counts, caps, money ------------------------------------------------------------------------------


@pytest.fixture
def serve(run):
    """A service of several samples a question, on a server."""
    pytest.importorskip("httpx")

    def new(url, samples, **options):
        backend = OpenAIBackend(base_url=url, model="m", temperature=0.7, seed=40)
        return run(SampledBackend(backend, samples), workers=1, **options)

    return new


def test_every_request_is_counted_and_paid(serve):
    with FaultServer(advises(), advises(direction="short"), says("no"), advises()) as server:
        running = serve(server.url, 4, price_prompt=1.0, price_completion=2.0)
        running.want(1)
        assert running.asked(4)
        [(bar, advice)] = running.service.take(9)
        running.stop()
        found = running.counts
        assert [request.body["seed"] for request in server.requests] == [40, 41, 42, 43]
    assert (bar, advice.confidence) == (1, pytest.approx(1 / 3))  # long, short, long
    names = ("done", "prompt_tokens", "completion_tokens", "unusable", "http", "failures")
    expected = [1, 4 * 321, 4 * 45, {"prose": 1}, {"200": 4}, {"parse": 1}]
    assert [found[name] for name in names] == expected
    assert found["cost"] == pytest.approx(4 * (321 + 2 * 45) / 1e6)
    assert sum(found["latency"]["counts"]) == 4


@pytest.mark.parametrize(("calls", "questions"), [(7, 2), (8, 2), (9, 3), (2, 0)])
def test_the_cap_on_calls_counts_every_sample(calls, questions, serve):
    with FaultServer(advises()) as server:
        running = serve(server.url, 3, max_calls=calls)
        running.want(*range(9))
        assert until(lambda: running.counts["mode"].startswith("cache only"), SOON)
        running.stop()
        found = running.counts
        assert len(server.requests) == found["asked"] == 3 * questions <= calls
    assert (found["done"], len(running.lines)) == (questions, 1)


@pytest.mark.parametrize(
    ("script", "asked", "answered"),
    [([says("no")], 3, 3), ([reply(401, "{}")], 1, 0), ([advises(), reply(500, "")], 2, 1)],
)
def test_requests_that_were_not_made_are_given_back(script, asked, answered, serve):
    """Of 4 samples; the ledger then holds what was asked, and unreported usage at its most."""
    with FaultServer(*script) as server:
        running = serve(server.url, 4, attempts=1, max_calls=100)
        running.want(1)
        assert running.asked(asked)
        assert running.service._ledger.sum_spend() == Spend(asked, answered * (321 + 45), 0)
        running.stop()
        found = running.counts
        assert len(server.requests) == asked
    assert (found["failed"], found["done"]) == (1, 0)
