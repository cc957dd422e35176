"""What an answer says, and advice that must not reach training."""

import math

import pytest

from jaxtrade.advisor.host.replies import check_answer, one_line, verdict_of
from jaxtrade.advisor.host.types import Answer, Failure
from tests.advisor.service_parts import ADVICE, bad, good


def test_good_advice_is_healthy():
    assert verdict_of(good()) == (True, False, "", False)


@pytest.mark.parametrize(
    ("failure", "status", "expected"),
    [
        (Failure.TIMEOUT, None, (False, True, "", False)),
        (Failure.CONNECTION, None, (False, False, "", False)),
        (Failure.STOPPED, None, (None, False, "", False)),
        (Failure.UNSUPPORTED, 400, (None, False, "", True)),
        (Failure.REFUSED, 401, (False, False, "", True)),
        (Failure.HTTP, 529, (False, True, "", True)),
        (Failure.HTTP, 500, (False, False, "", True)),
        (Failure.HTTP, 400, (False, False, "http 400", True)),
    ],
)
def test_failures(failure, status, expected):
    retryable = (status or 0) >= 429
    assert verdict_of(bad(failure, status=status, retryable=retryable)) == expected


def test_an_unreadable_answer_comes_from_a_healthy_server():
    for failure in (Failure.PARSE, Failure.SCHEMA, Failure.EMPTY, Failure.TOO_LARGE):
        assert verdict_of(bad(failure)) == (True, False, failure.value, False)


def test_a_proxy_s_page_is_not_the_model_s_text():
    assert verdict_of(bad(Failure.PARSE, raw="", status=200)) == (False, False, "", False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hold", math.nan),
        ("sell", -math.inf),
        ("confidence", 1.2),
        ("confidence", -0.1),
        ("confidence", True),
        ("confidence", "0.9"),
        ("risk", None),
        ("horizon", 0),
        ("horizon", 2.5),
    ],
)
def test_unusable_advice_is_a_failure_and_no_opinion(name, value):
    """The old parsers turned "85 %" into 0.0 and 42 into 1.0; here it is absence."""
    answer = check_answer(good()._replace(advice=ADVICE._replace(**{name: value})))
    assert (answer.advice, answer.failure) == (None, Failure.SCHEMA)


def test_an_answer_with_neither_advice_nor_failure_is_empty():
    assert check_answer(Answer(None)).failure is Failure.EMPTY
    assert check_answer(good()) == good()


@pytest.mark.parametrize("tokens", [-5, 10**30, 2.5, None, True])
def test_a_usage_that_cannot_be_is_unknown(tokens):
    """A negative one would give budget back."""
    assert check_answer(good()._replace(prompt_tokens=tokens)) == good(0, 0)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_latency_that_cannot_be_is_unknown(seconds):
    assert check_answer(good()._replace(latency=seconds)) == good()._replace(latency=0.0)


def test_messages_hold_no_control_characters_and_end():
    assert one_line("a\x1b[2Jb\nc\u202e") == "a [2Jb c "
    assert one_line("x" * 500) == "x" * 200 + "…"
