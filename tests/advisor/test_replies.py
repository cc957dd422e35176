"""What a response means, without a socket: every status and malformed success has its failure and
its advice on asking again."""

import json

import pytest

from jaxtrade.advisor.host.replies import Sampling, read_reply, retry_after
from jaxtrade.advisor.host.types import MAX_BYTES, FailedError, Failure, parse_advice
from tests.advisor.servers import GOOD, completion
from tests.advisor.test_schema import by_failure

OWN, OTHER = "jaxtrade-0123456789abcdef", "jaxtrade-fedcba9876543210"
TEXT = json.dumps(GOOD)
FULL = completion(TEXT)


def read(
    status=200,
    body=FULL,
    headers=None,
    random=False,
):
    return read_reply(status, headers or {}, body, Sampling(OWN, random, parse_advice))


def error(message, **fields):
    return json.dumps({"error": {"message": message, **fields}}).encode()


def test_good():
    answer = read()
    assert answer.advice == parse_advice(TEXT).advice
    assert answer[1:6] == (None, "", 200, False, 0.0)
    assert answer[7:12] == (321, 45, TEXT, "tiny-1", ())
    assert not answer.repaired


REFUSED, AGAIN = {401, 402, 403, 404}, {408, 409, 425, 429, 500, 502, 503, 504, 529}
OTHERS = {100, 201, 204, 302, 307, 400, 405, 413, 418, 422}


@pytest.mark.parametrize("status", sorted(REFUSED | AGAIN | OTHERS))
@pytest.mark.parametrize(
    "body", [FULL, b"", error("sorry\x1b[31m\n"), b'{"error": "text"}', b"\xff"]
)
def test_statuses(status, body):
    """Whatever the body says: a good completion under a failing status is no advice."""
    answer = read(status, body)
    assert answer.failure is (Failure.REFUSED if status in REFUSED else Failure.HTTP)
    assert (answer.advice, answer.status, answer.retryable) == (None, status, status in AGAIN)
    assert str(status) in answer.detail
    assert answer.detail.isprintable()


HOPELESS = [
    (429, error("You exceeded your current quota", code="insufficient_quota")),
    (400, error("too long", type="exceed_context_size_error")),
    (404, error("The model does not exist", code="model_not_found")),
]


@pytest.mark.parametrize(("status", "body"), HOPELESS)
def test_what_asking_again_cannot_help(status, body):
    answer = read(status, body, {"retry-after": "5"})
    assert (answer.failure, answer.retryable, answer.retry_after) == (Failure.REFUSED, False, 0.0)


def flat(message, **fields):
    """As vLLM's server before 0.10 and SGLang's."""
    return json.dumps({"object": "error", "message": message, "param": None, **fields}).encode()


@pytest.mark.parametrize(
    ("status", "body", "failure", "words"),
    [
        (400, flat("bad request", code=400), Failure.HTTP, "bad request"),
        (200, flat("model is loading", code=503), Failure.PARSE, "model is loading"),
        (400, b'{"detail": "another model"}', Failure.HTTP, "another model"),
        (422, b'{"detail": [{"loc": ["body"]}]}', Failure.HTTP, "422"),
        (400, error("temperature at most 1", param="temperature"), Failure.HTTP, "most 1"),
    ],
)
def test_where_an_error_may_stand(status, body, failure, words):
    """A setting out of its range is not one that the model does not take."""
    answer = read(status, body)
    assert (answer.failure, answer.detail.endswith(words)) == (failure, True)


TOO_LONG = [
    (400, flat("This model's maximum context length is 4096 tokens.", code=400)),
    (400, error("the request exceeds the available context size", type="server_error")),
    (422, error("inputs tokens + max_new_tokens must be <= 4096: too many input tokens")),
    (400, error("prompt is too long: 210000 tokens > 200000 maximum")),
    (500, error("input is too large to process. increase the physical batch size")),
    (413, error("Request too large: reduce the context length")),
]


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_a_prompt_that_is_too_long_is_no_outage(status, body):
    answer = read(status, body)
    assert (answer.failure, answer.retryable) == (Failure.REFUSED, False)
    assert "error" in answer.detail


NOT_TAKEN = [
    (error("Only the default is supported.", param="temperature"), "temperature=null"),
    (
        error("'max_tokens' is not supported", param="max_tokens"),
        "tokens_key=max_completion_tokens",
    ),
    (flat("seed is not supported by this engine", code=400), "seed=null"),
]


@pytest.mark.parametrize(("body", "remedy"), NOT_TAKEN)
def test_a_setting_that_the_model_does_not_take_names_the_key(body, remedy):
    answer = read(400, body)
    assert (answer.failure, answer.retryable) == (Failure.REFUSED, False)
    assert answer.detail.endswith(f"; set advisor.options.{remedy}")
    assert remedy not in read(500, body).detail


def test_parts_that_nobody_reads_may_hold_anything():
    extra = b'"usage": {"prompt_tokens": 5, "seconds": Infinity, "x": 1, "x": NaN}, '
    answer = read(200, FULL.replace(b'"usage": ', extra + b'"usage": ', 1))
    assert answer.advice == parse_advice(TEXT).advice
    doubled = read(200, completion(TEXT[:-1] + ', "risk": 0.1}'))
    assert (doubled.advice, doubled.failure) == (
        None,
        Failure.PARSE,
    )  # in the advice itself it is refused as before


NOW = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "1e9"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "\u0661"}, 0.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT", "date": NOW}, 60.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:48:37 GMT", "date": NOW}, 0.0),  # past: at once
        ({"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT"}, 0.0),  # no clock of ours decides
        ({"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT", "date": "yesterday"}, 0.0),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds
    found = [read(status, b"", headers).retry_after for status in (429, 503, 400)]
    assert found == [seconds, seconds, 0.0]


NO_SUCCESS = {
    Failure.EMPTY: {
        b"": "empty",
        b'{"choices": []}': "no choices",
        b'{"choices": [{"text": "HOLD"}]}': "no content",
        completion(None): "no content",
        completion("", finish="stop"): "no content",
        completion(TEXT, message={"tool_calls": [{"type": "function"}]}): "tool calls",
        completion(None, message={"refusal": "I cannot"}): "refused",
        completion(TEXT, finish="content_filter"): "filter",
    },
    Failure.PARSE: {
        b"<!doctype html><title>Sign in</title>": "HTML",
        b"ok": "no completion",
        FULL[:-20]: "not JSON",
        b"[" * 100_000: "nested",
        error("model is loading"): "error model is loading",
        b"{}": "'choices'",
        completion([{"type": "text", "text": TEXT}]): "list",
    },
}


@pytest.mark.parametrize(("body", "words", "failure"), by_failure(NO_SUCCESS))
def test_success_that_is_none(body, words, failure):
    answer = read(200, body)
    assert (answer.advice, answer.failure, answer.status, answer.retryable) == (
        None,
        failure,
        200,
        True,
    )
    assert words in answer.detail


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (completion("I would hold."), Failure.PARSE),
        (completion(json.dumps({**GOOD, "confidence": 7.3})), Failure.SCHEMA),
        (completion("x" * (MAX_BYTES + 1)), Failure.TOO_LARGE),
        (
            completion(TEXT, finish="length"),
            Failure.TOO_LARGE,
        ),  # whole by luck; a cut text is not kept
        (completion("  "), Failure.EMPTY),
    ],
)
def test_text_that_is_no_advice_is_kept_and_asked_again_only_where_chance_plays(
    body, failure, random
):
    answer = read(200, body, random=random)
    assert (answer.advice, answer.failure, answer.retryable) == (None, failure, random)
    assert answer.raw
    assert len(answer.raw.encode()) <= MAX_BYTES
    assert answer.prompt_tokens == 321


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-request-id": OTHER}, {}),
        ({"x-request-id": OWN}, {"id": f"chatcmpl-{OTHER}"}),
        ({}, {"id": f"chatcmpl-{OTHER}-0"}),
    ],
)
def test_the_answer_to_another_request_is_refused(headers, fields):
    with pytest.raises(FailedError):
        read(200, completion(TEXT, **fields), headers)


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-request-id": OWN}, {"id": f"chatcmpl-{OWN}"}),
        ({"x-request-id": "req_4f2a"}, {"id": 17}),  # a server's own id is not an echo
        ({}, {}),
    ],
)
def test_other_ids_are_no_concern(headers, fields):
    assert read(200, completion(TEXT, **fields), headers).advice is not None


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": -1},
        {"prompt_tokens": 1e3},
        {"prompt_tokens": 10**12},
    ],
)
def test_tokens_that_cannot_be_counted_are_not(usage):
    answer = read(200, completion(TEXT, usage=usage))
    assert answer.advice is not None
    assert (answer.prompt_tokens, answer.completion_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("model", "shown"), [("m\x1b[31m", "m [31m"), (None, ""), (7, ""), ("x" * 999, "x" * 200)]
)
def test_the_model_is_what_the_server_says(model, shown):
    assert read(200, completion(TEXT, model=model)).model == shown
