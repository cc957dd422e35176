"""Whatever comes: bounded advice or a failure, and no exception."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.replies import Sampling, read_reply, retry_after
from jaxtrade.advisor.host.types import (
    LOGIT_SCALE,
    Advice,
    FailedError,
    parse_advice,
    parse_pipe,
)
from tests.advisor.asking import ask
from tests.advisor.servers import GOOD, FaultServer, completion, cut, head

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = (
    LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=5), LEAVES, max_size=3)
)
# Near misses: a good answer with some of its values replaced.
NEAR = st.dictionaries(st.sampled_from([*GOOD, "extra"]), JSON, max_size=3).map(
    lambda changes: {**GOOD, **changes}
)
FENCED = NEAR.map(lambda value: f"```{json.dumps(value)}```")
THOUGHT = st.tuples(st.text(max_size=20), NEAR.map(json.dumps) | FENCED).map(
    lambda parts: f"<think>{parts[0]}</think>{parts[1]}"
)
TEXTS = st.text(max_size=60) | JSON.map(json.dumps) | NEAR.map(json.dumps) | FENCED | THOUGHT
SAMPLING = Sampling("jaxtrade-" + "0" * 16, False, parse_advice)


def is_sound(found):
    """Advice within its bounds, or a failure with words; never both, never neither."""
    advice = found.advice
    if advice is None:
        return found.failure is not None and found.detail != ""
    bounded = (
        all(0 <= logit <= LOGIT_SCALE for logit in advice[:3])
        and sum(logit > 0 for logit in advice[:3]) <= 1
    )
    return (
        isinstance(advice, Advice)
        and found.failure is None
        and bounded
        and math.isfinite(sum(advice))
        and 0 <= advice.confidence <= 1
        and 0 <= advice.risk <= 1
        and 1 <= advice.horizon <= 390
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(TEXTS)
def test_any_text(text):
    assert is_sound(parse_advice(text))
    assert is_sound(parse_pipe(text))


@given(
    st.integers(100, 599),
    st.binary(max_size=60)
    | (TEXTS | JSON).map(completion)
    | st.dictionaries(st.sampled_from(["id", "choices", "usage", "model", "error"]), JSON).map(
        lambda value: json.dumps(value).encode()
    ),
    st.dictionaries(st.sampled_from(["retry-after", "date", "x-request-id"]), st.text(max_size=40)),
)
def test_any_response(status, body, headers):
    try:
        answer = read_reply(status, headers, body, SAMPLING)
    except FailedError:
        return
    assert is_sound(answer)
    assert answer.advice is None or status == 200
    answer.raw.encode("utf-8")
    seconds = retry_after(headers)
    assert seconds >= 0
    assert math.isfinite(seconds)


def test_any_bytes_from_a_server():
    """Good responses with a few bytes changed, removed or added, over a real socket."""
    pytest.importorskip("httpx")
    rng = random.Random(0)
    body = completion(json.dumps(GOOD))
    good = head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body
    steps = [cut(good)]
    for _ in range(40):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
        steps.append(cut(bytes(data)))
    with FaultServer(*steps) as server:
        backend = OpenAIBackend(base_url=server.url, model="tiny")
        first, *answers = [ask(backend) for _ in steps]
        backend.close()
    assert first.advice is not None
    assert all(map(is_sound, answers))
    assert [answer.detail for answer in answers if "in the client" in answer.detail] == []
    assert any(answer.failure for answer in answers)
