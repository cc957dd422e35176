"""Strict reading of answers: what is no advice is a failure of the right kind, and never HOLD."""

import json
import math
import re
import time

import pytest

from jaxtrade.advisor.host.types import (
    ADVICE_SCHEMA,
    LOGIT_SCALE,
    MAX_BYTES,
    PIPE_HORIZON,
    PIPE_RISK,
    SCHEMA_HASH,
    Advice,
    FailedError,
    Failure,
    advice_of,
    parse_advice,
    parse_pipe,
)
from tests.advisor.asking import SOON
from tests.advisor.servers import GOOD


def text(**changes):
    return json.dumps({**GOOD, **changes})


def replaced(key, literal):
    """Good advice with a literal that `json.dumps` would not write."""
    return text(**{key: "@"}).replace('"@"', literal)


def test_good_advice():
    parsed = parse_advice(" \n" + text() + "\n")
    assert parsed.advice == Advice(
        hold=0.0, buy=LOGIT_SCALE * 0.7, sell=0.0, confidence=0.7, risk=0.2, horizon=30
    )
    assert (parsed.failure, parsed.detail, parsed.repaired) == (None, "", False)


def test_direction_and_confidence_become_bounded_logits():
    assert advice_of("flat", 0.5, 0, 1) == Advice(1.5, 0.0, 0.0, 0.5, 0.0, 1)
    assert advice_of("short", 1, 1, 390) == Advice(0.0, 0.0, 3.0, 1.0, 1.0, 390)
    assert advice_of("long", 0.0, 0.5, 30)[:3] == (0.0, 0.0, 0.0)  # no confidence is no opinion
    with pytest.raises(FailedError, match="nan"):
        advice_of("long", math.nan, 0.5, 30)


# By failure: the answer, and what the detail names.
NO_ADVICE = {
    Failure.EMPTY: {"": "empty"},
    Failure.TOO_LARGE: {"[" * 100_000: "65536"},
    Failure.PARSE: {
        "Sure: " + text(): "not JSON",
        text() + text(direction="short"): "Extra data",
        text()[:-5]: "not JSON",
        text().replace('"', "'"): "not JSON",
        text()[:-1] + ",}": "not JSON",
        replaced("confidence", "NaN"): "NaN",
        replaced("risk", "-Infinity"): "-Infinity",
        replaced("confidence", "1e999"): "overflows",
        replaced("horizon_bars", "9" * 5000): "not JSON",
        text()[:-1] + ', "confidence": 0.9}': "twice",
        '{"a":' * 5000 + "1" + "}" * 5000: "nested",
    },
    Failure.SCHEMA: {
        "[]": "list",
        text(v=True): "'v' = True",
        text(confidence="0.9"): "'confidence' = '0.9'",
        text(confidence=True): "'confidence' = True",
        text(confidence=-0.1): "confidence -0.1",
        text(confidence="85%"): "85%",
        text(horizon_bars=391): "391",
        text(horizon_bars=30.0): "30.0",
        text(direction="BUY"): "'BUY'",
        text(direction="achat"): "'achat'",
        text(direction="\u202elong\x1b[31m"): "\\u202e",
        text(action="buy everything"): "'action'",
        json.dumps({key: value for key, value in GOOD.items() if key != "risk"}): "'risk'",
    },
}


def by_failure(table):
    return [(*case, failure) for failure, cases in table.items() for case in cases.items()]


@pytest.mark.parametrize(("answer", "words", "failure"), by_failure(NO_ADVICE))
def test_what_is_no_advice_is_a_failure(answer, words, failure):
    parsed = parse_advice(answer)
    assert parsed.advice is None
    assert parsed.failure is failure
    assert words in parsed.detail
    assert parsed.detail.isprintable()
    assert len(parsed.detail) < 300


@pytest.mark.parametrize("length", [8, 201, 10_000])
def test_the_reason_is_kept_for_people_and_bounded(length):
    """Both forms give it; a fence is no obstacle, a long one no failure, and a refused answer has
    none.
    """
    long = "x" * length
    plain, fenced = parse_advice(text(reason=long)), parse_advice(f"```\n{text(reason=long)}\n```")
    pipe = parse_pipe(f"BUY | 0.7 | {long} ")
    assert plain == parse_advice(text())._replace(reason=long[:200])
    assert (fenced.reason, pipe.reason) == (long[:200], long[:200])
    assert fenced.advice == plain.advice
    assert pipe.advice == parse_pipe("BUY | 0.7 | up").advice
    assert parse_advice(text(confidence=2, reason=long)).reason == ""
    assert parse_pipe(f"BUY | 2 | {long}").reason == ""


@pytest.mark.parametrize(
    "answer",
    [
        "```json\n" + text() + "\n```",
        "Here is my advice:\n```\n" + text() + "\n```\nGood luck!",
        "```json\nadvice = "
        + text(reason="brackets } and ] inside")
        + "\n"
        + text(direction="short")
        + "\n```",
    ],
)
def test_the_one_repair_reads_the_first_object_in_the_only_fence(answer):
    parsed = parse_advice(answer)
    assert parsed.advice is not None
    assert parsed.advice.buy > 0
    assert parsed.repaired


BEYOND_REPAIR = [
    ("```\n" + text(confidence=7.3) + "\n```", Failure.SCHEMA, True),  # the same rules inside
    ("```\n" + text()[:-1] + ",}\n```", Failure.PARSE, True),  # one repair, not two
    (
        "```\n" + text() + "\n```\n```\n" + text() + "\n```",
        Failure.PARSE,
        False,
    ),  # which of two?
    ("```\n" + text(), Failure.PARSE, False),  # a fence that does not end
    ("<think>It rises.</think>\n" + text(confidence=7.3), Failure.SCHEMA, True),
    ("<think>" + text() + "</think>", Failure.PARSE, False),  # what is thought is no answer
    ("<think>It rises." + text(), Failure.PARSE, False),  # thinking that does not end
    (text() + "</think>" + text()[:-1] + ",}", Failure.PARSE, True),
]


@pytest.mark.parametrize(
    ("answer", "failure", "repaired"),
    BEYOND_REPAIR,
)
def test_the_repair_goes_no_further(answer, failure, repaired):
    parsed = parse_advice(answer)
    assert (parsed.advice, parsed.failure, parsed.repaired) == (None, failure, repaired)


REASONED = [
    "<think>ADX 42 {rising}, [so] buy.</think>\n\n" + text(),
    "<think>" + text(direction="short") + "</think>" + text(),  # the answer, not what was thought
    "I think </think> no, wait: <think>more</think>" + text(),
    "<think>```json\n" + text(direction="short") + "\n```</think>\n```json\n" + text() + "\n```",
]


@pytest.mark.parametrize(
    "answer",
    REASONED,
)
def test_reasoning_is_left_out(answer):
    parsed = parse_advice(answer)
    assert parsed.advice is not None
    assert parsed.advice.buy > 0
    assert parsed.repaired


def test_a_think_tag_in_the_reason_is_a_reason():
    parsed = parse_advice(text(reason="</think>" + text(direction="short")))
    assert (parsed.advice, parsed.repaired) == (parse_advice(text()).advice, False)


@pytest.mark.parametrize(
    "answer",
    [
        '{"' + '\\"' * 30_000,
        '"\\' * 15_000,
        "```" + '{"\\"' * 7000 + "```",
        "{" * 65_000,
        "</think>" * 8000 + "x",
    ],
)
def test_reading_takes_linear_time(answer):
    began = time.perf_counter()
    assert parse_advice(answer).advice is None
    assert time.perf_counter() - began < SOON


def test_the_schema_that_servers_get_is_pinned():
    """A change of the schema is a change of every cache key: it is made on purpose, here."""
    assert SCHEMA_HASH == "acd6a828b88e279f3236eab9a3b807be26fe4388dda160bfb3355071775857a7"
    assert set(ADVICE_SCHEMA["required"]) == set(GOOD) == set(ADVICE_SCHEMA["properties"])
    pattern = ADVICE_SCHEMA["properties"]["reason"]["pattern"]
    assert re.search(pattern, "Strong trend; ADX 42.0 (up)")
    assert not re.search(pattern, 'quote " here')
    assert not re.search(pattern, "x" * 201)


# --- the old pipe format ---------------------------------------------------------------------------------------------


PIPE_LINES = [
    ("BUY | 0.85 | Strong uptrend ADX 42 above VWAP", (0.0, 2.55, 0.0)),
    ("SELL|1|x", (0.0, 0.0, 3.0)),
    (" HOLD | 0.5 |  \n", (1.5, 0.0, 0.0)),
    ("<think>ADX | 42\nis strong</think>\nBUY | 0.85 | up", (0.0, 2.55, 0.0)),
]


@pytest.mark.parametrize(
    ("answer", "logits"),
    PIPE_LINES,
)
def test_pipe(answer, logits):
    parsed = parse_pipe(answer)
    assert parsed.advice is not None
    assert parsed.advice[:3] == pytest.approx(logits)
    assert parsed.advice[4:] == (PIPE_RISK, PIPE_HORIZON)


# Each of these was HOLD, or an action with a number from elsewhere, in the old system.
NO_PIPE = {
    Failure.SCHEMA: {
        "Answer: BUY | 0.85 | up": "unknown action",
        "BUY | 85% | up": "85%",
        "BUY | | up": "''",
        "buy | 0.9 | up": "unknown action",
        "BUY | 0,9 | up": "0,9",
        "BUY | -0.2 | up": "-0.2",
        "BUY | 0.\u0669 | up": "\\u0669",  # a digit of another script
        "MOVE_TO_BE | 0.90 | Profit": "position",
        "<think>BUY | 0.9 | up</think>": "unknown action",
    },
    Failure.PARSE: {
        "BUY, as ADX is 42 and my confidence 0.7": "0 bars",
        "BUY | 0.9 | up | down": "3 bars",
        "BUY | 0.9 | up\nSELL | 0.9 | down": "line",
        "<think>up | or | down?</think>I would buy": "0 bars",
    },
    Failure.TOO_LARGE: {"BUY | 0.9 | " + "x" * MAX_BYTES: "65536"},
    Failure.EMPTY: {"": "empty"},
}


@pytest.mark.parametrize(("answer", "words", "failure"), by_failure(NO_PIPE))
def test_pipe_failures_are_never_hold(answer, words, failure):
    parsed = parse_pipe(answer)
    assert parsed.advice is None
    assert parsed.failure is failure
    assert words in parsed.detail
