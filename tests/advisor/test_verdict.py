"""What an answer says, and advice that must not reach training."""

from __future__ import annotations

import math

import pytest

from jaxtrade.advisor.host.replies import checked, one_line, problem, verdict_of
from jaxtrade.advisor.host.types import Advice, Answer, Failure
from tests.advisor.service_parts import ADVICE, bad, good


def test_good_advice_is_healthy():
    assert verdict_of(good()) == (True, False, "", False)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (bad(Failure.TIMEOUT), (False, True, "", False)),
        (bad(Failure.CONNECTION), (False, False, "", False)),
        (bad(Failure.RAISED), (False, False, "", False)),
        (bad(Failure.STOPPED), (None, False, "", False)),
        (bad(Failure.UNSUPPORTED, status=400), (None, False, "", True)),
        (bad(Failure.REFUSED, status=401), (False, False, "", True)),
        (bad(Failure.HTTP, status=429, retryable=True), (False, True, "", True)),
        (bad(Failure.HTTP, status=529, retryable=True), (False, True, "", True)),
        (bad(Failure.HTTP, status=500, retryable=True), (False, False, "", True)),
        (bad(Failure.HTTP, status=400), (False, False, "http 400", True)),
        (bad(Failure.PARSE), (True, False, "parse", False)),
        (
            bad(Failure.PARSE, raw="", status=200),
            (False, False, "", False),
        ),  # a proxy's page, not the model's text
        (bad(Failure.SCHEMA), (True, False, "schema", False)),
        (bad(Failure.EMPTY), (True, False, "empty", False)),
        (bad(Failure.TOO_LARGE), (True, False, "too_large", False)),
    ],
)
def test_failures(answer, expected):
    assert verdict_of(answer) == expected


def test_every_failure_is_judged():
    assert all(verdict_of(bad(failure)) for failure in Failure)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hold": math.nan},
        {"buy": math.inf},
        {"sell": -math.inf},
        {"confidence": 1.2},
        {"confidence": -0.1},
        {"confidence": True},
        {"confidence": "0.9"},
        {"risk": 85.0},
        {"risk": None},
        {"horizon": 0},
        {"horizon": -3},
        {"horizon": 2.5},
        {"horizon": True},
    ],
)
def test_unusable_advice_is_a_failure_and_no_opinion(wrong):
    """The old parsers turned "85 %" into 0.0 and 42 into 1.0; here it is absence."""
    advice = Advice(**(ADVICE._asdict() | wrong))
    answer = checked(good()._replace(advice=advice))
    assert problem(advice)
    assert (answer.advice, answer.failure) == (None, Failure.SCHEMA)


def test_an_answer_with_neither_advice_nor_failure_is_empty():
    assert checked(Answer(None)).failure is Failure.EMPTY
    assert checked(good()) == good()


@pytest.mark.parametrize("tokens", [-5, 10**30, 2.5, None, True])
def test_a_usage_that_cannot_be_is_unknown(tokens):
    """A negative one would give budget back."""
    assert checked(good()._replace(prompt_tokens=tokens)) == good(0, 0)


def test_messages_hold_no_control_characters_and_end():
    assert one_line("a\x1b[2Jb\nc\u202e") == "a [2Jb c "
    assert one_line("x" * 500) == "x" * 200 + "…"
