"""Several samples of one model: the agreement is the confidence, and every request is counted,
capped and paid.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from jaxtrade.advisor.host.backends import (
    Sampled,
    calls_of,
    combined,
    is_worth_more,
    merged,
)
from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.paid import Spend, cache_key
from jaxtrade.advisor.host.registry import check_kind, make_backend
from jaxtrade.advisor.host.schema import advice_of
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Answer, Failure
from jaxtrade.cli import main
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import ConfigError
from tests.advisor.asking import SOON
from tests.advisor.balance import imbalance
from tests.advisor.servers import GOOD, FaultServer, advises, reply, says
from tests.advisor.service_parts import bad, question, until
from tests.advisor.test_precompute import BARS, command

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
        ([LONG], LONG, 1.0),
        ([LONG, LONG, SHORT], LONG, 1 / 3),  # |1 + 1 - 1| / 3
        ([SHORT, SHORT, SHORT, FLAT], SHORT, 3 / 4),
        ([LONG, LONG, FLAT, SHORT], LONG, 1 / 4),
        ([LONG] * 5 + [SHORT] * 2 + [FLAT], LONG, 3 / 8),
        ([FLAT, FLAT, LONG], FLAT, 2 / 3),
        ([FLAT, FLAT], FLAT, 1.0),
        ([LONG, SHORT], FLAT, 0.0),  # ties
        ([LONG, LONG, FLAT, FLAT], FLAT, 0.0),
        ([LONG, SHORT, FLAT], FLAT, 0.0),
        ([SHORT, SHORT, LONG, LONG, FLAT], FLAT, 0.0),
    ],
)
def test_the_majority_and_its_agreement(votes, direction, confidence):
    for order in (votes, votes[::-1]):
        found = combined([said(vote) for vote in order])
        assert found == advice_of(direction, confidence, 0.2, 30)


def test_risk_and_horizon_are_medians():
    samples = [
        said(LONG, risk=risk, horizon=horizon)
        for risk, horizon in ((0.1, 5), (0.9, 60), (0.3, 10), (0.4, 30))
    ]
    found = combined(samples)
    assert (found.risk, found.horizon) == (
        pytest.approx(0.35),
        10,
    )  # between 0.3 and 0.4; the lower of 10 and 30
    assert combined(samples[:3])[4:] == (0.3, 10)


def test_what_a_sample_claims_is_not_used_apart_from_no_confidence():
    assert [said(direction).direction for direction in (LONG, SHORT, FLAT)] == [1, -1, 0]
    assert said(LONG, confidence=0.0).direction == 0
    assert combined([said(LONG, 0.1), said(LONG, 0.2)]) == combined(
        [said(LONG, 1.0), said(LONG, 0.9)]
    )


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
    found = merged(parts, 4)
    assert (found.advice is not None) == usable
    assert (found.failure is None) == usable
    assert found.parts == tuple(parts)
    assert found.prompt_tokens == sum(part.prompt_tokens for part in parts)
    assert json.loads(found.raw) == [part.raw for part in parts if part.raw]
    if not usable:
        assert found.failure is parts[-1].failure


def test_asking_ends_early_where_no_answer_can_come_of_it():
    assert is_worth_more([UNUSABLE, UNUSABLE], 4)
    assert not is_worth_more([UNUSABLE, UNUSABLE, UNUSABLE], 4)
    assert not is_worth_more(
        [answer(LONG), bad(Failure.CONNECTION)], 4
    )  # an outage is not multiplied
    assert not is_worth_more([bad(Failure.REFUSED, status=401)], 4)


class Script:
    """Answers sample after sample by script."""

    name = "script"

    def __init__(self, *answers):
        self.answers, self.asked = answers, list[tuple[int, float]]()

    def identity(self):
        return {"kind": "script"}

    def sample(self, question, deadline, number):
        self.asked.append((number, deadline))
        return self.answers[number]

    def answer(self, question, deadline):
        raise AssertionError

    def close(self):
        """Nothing to let go."""


def test_each_sample_gets_its_number_and_its_share_of_the_time():
    script = Script(answer(LONG), answer(SHORT), answer(LONG))
    found = Sampled(script, 3, lambda: 100.0).answer(question(1), 130.0)
    assert script.asked == [(0, 110.0), (1, 110.0), (2, 110.0)]
    assert found.advice == combined([said(LONG), said(SHORT), said(LONG)])
    assert (found.detail, len(found.parts)) == ("3 of 3 samples usable", 3)


def test_the_identity_names_the_samples():
    one, three = (
        make_backend("http://127.0.0.1:1/v1", {"model": "m", "temperature": 0.7, "samples": n})
        for n in (1, 3)
    )
    assert {**one.identity(), "samples": "3"} == three.identity()
    assert cache_key(one.identity(), question(1)) != cache_key(three.identity(), question(1))
    assert (calls_of(one), calls_of(three)) == (1, 3)
    slow = make_backend(
        "mock:slow:1/http://127.0.0.1:1/v1", {"model": "m", "temperature": 0.7, "samples": 3}
    )
    assert calls_of(slow) == 3
    assert calls_of(make_backend("mock:random")) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "advisor.options.samples = 0"),
        ({"samples": 33, "temperature": 1.0}, "to 32"),
        ({"samples": True}, "samples = True"),
        ({"samples": 2.0, "temperature": 1.0}, "samples = 2.0"),
        ({"samples": "3"}, "samples = '3'"),
        (
            {"samples": 3},
            "advisor.options.temperature=0.7",
        ),
        ({"samples": 3, "temperature": 0}, "advisor.options.temperature"),
    ],
)
def test_samples_that_cannot_be_are_refused_before_anything_starts(options, words):
    for check in (check_kind, make_backend):
        with pytest.raises(ConfigError) as caught:
            check("http://127.0.0.1:1/v1", {"model": "m", **options})
        assert words in str(caught.value)
    check_kind("http://127.0.0.1:1/v1", {"model": "m", "samples": 3, "temperature": None})


# --- with a server: counts, caps, money ------------------------------------------------------------------------------


def service(url, samples, told=None, **options):
    backend = OpenAIBackend(OpenAIOptions(url, "m", temperature=0.7, seed=40))
    chosen: dict[str, Any] = {"workers": 1, **options}
    lines = [] if told is None else told
    return AdviceService(Sampled(backend, samples), ServiceOptions(**chosen), tell=lines.append)


def done(running, asked):
    def settled():
        found = running.statistics()
        return found["asked"] == asked and found["in_flight"] == 0

    return until(settled, SOON)


def stopped(running):
    running.stop()
    found = running.statistics()
    assert imbalance(found) == 0
    return found


def test_every_request_is_counted_and_paid(tmp_path):
    pytest.importorskip("httpx")
    with FaultServer(advises(), advises(direction="short"), says("no"), advises()) as server:
        running = service(server.url, 4, price_prompt=1.0, price_completion=2.0)
        running.submit([(question(1), 1.0)])
        assert done(running, 4)
        got = running.take(9)
        found = stopped(running)
        assert [request.body["seed"] for request in server.requests] == [40, 41, 42, 43]
    assert [(bar, advice.confidence) for bar, advice in got] == [
        (1, pytest.approx(1 / 3))
    ]  # long, short, long
    assert (found["done"], found["prompt_tokens"], found["completion_tokens"]) == (
        1,
        4 * 321,
        4 * 45,
    )
    assert found["cost"] == pytest.approx(4 * (321 + 2 * 45) / 1e6)
    assert (found["unusable"], found["http"], found["failures"]) == (
        {"prose": 1},
        {"200": 4},
        {"parse": 1},
    )
    assert sum(found["latency"]["counts"]) == 4


@pytest.mark.parametrize(("calls", "questions"), [(7, 2), (8, 2), (9, 3), (2, 0)])
def test_the_cap_on_calls_counts_every_sample(calls, questions):
    pytest.importorskip("httpx")
    told: list[str] = []
    with FaultServer(advises()) as server:
        running = service(server.url, 3, told, max_calls=calls)
        running.submit([(question(bar), 1.0) for bar in range(9)])
        assert until(lambda: running.statistics()["mode"].startswith("cache only"), SOON)
        found = stopped(running)
        assert len(server.requests) == found["asked"] == 3 * questions <= calls
    assert (found["done"], len(told)) == (questions, 1)


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ([says("no")], 3),
        ([reply(401, "{}")], 1),
        ([advises(), reply(500, "")], 2),
    ],
)
def test_requests_that_were_not_made_are_given_back(script, asked, tmp_path):
    """Of 4 samples; the ledger then holds what was asked, and unreported usage at its most."""
    pytest.importorskip("httpx")
    with FaultServer(*script) as server:
        running = service(server.url, 4, attempts=1, max_calls=100)
        running.submit([(question(1), 1.0)])
        assert done(running, asked)
        spent = running._ledger.spent()
        found = stopped(running)
        assert len(server.requests) == asked
    answered = found["http"].get("200", 0)
    assert spent == Spend(asked, answered * (321 + 45), 0)
    assert (found["failed"], found["done"]) == (1, 0)


def test_samples_of_two_models_are_a_refusal_where_one_is_wanted():
    pytest.importorskip("httpx")
    told: list[str] = []
    good = json.dumps(GOOD)
    with FaultServer(
        says(good, model="one"), says(good, model="another"), says(good, model="one")
    ) as server:
        running = service(server.url, 3, told, same_model=True)
        running.submit([(question(1), 1.0)])
        assert until(lambda: running.statistics()["mode"].startswith("refused"), SOON)
        assert running.take(9) == []
        stopped(running)
    assert "it now runs another" in told[0]


@pytest.mark.slow
def test_precompute_plans_and_asks_n_calls_per_question(tmp_path, capsys):
    pytest.importorskip("httpx")
    more = ("--set", "advisor.options.samples=3", "--set", "advisor.options.temperature=0.7")
    with FaultServer(advises()) as server:
        assert main(command(tmp_path / "one.npz", server, "--plan")) == 0
        tokens = _tokens(capsys.readouterr().out)
        assert main(command(tmp_path / "a.npz", server, *more, "--plan")) == 0
        plan = capsys.readouterr().out
        assert f"{3 * BARS} calls" in plan
        assert _tokens(plan) == 3 * tokens
        assert main(command(tmp_path / "a.npz", server, *more)) == 0
        assert len(server.requests) == 3 * BARS
        assert main(command(tmp_path / "a.npz", server, *more)) == 0  # from the cache
        assert len(server.requests) == 3 * BARS


def _tokens(plan):
    return int(plan.split(" tokens at most")[0].split()[-1].replace(",", ""))


def test_a_service_with_samples_gives_the_question_their_time(
    monkeypatch,
):
    """deadline_s is the time of one request."""
    seen: list[float] = []
    inner: Callable[..., Answer] = Sampled.answer

    def answer(self, question, deadline):
        seen.append(deadline - self._monotonic())
        return inner(self, question, deadline)

    monkeypatch.setattr(Sampled, "answer", answer)
    pytest.importorskip("httpx")
    with FaultServer(advises()) as server:
        running = service(server.url, 5, deadline_s=60.0)
        running.submit([(question(1), 1.0)])
        assert done(running, 5)
        stopped(running)
    assert 5 * 60.0 - SOON < seen[0] <= 5 * 60.0
