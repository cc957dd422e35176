"""Which errors are about `response_format`, and what a run falls back to."""

import json

import pytest

from jaxtrade.advisor.host.replies import (
    MOST_FALLBACKS,
    Forms,
    Sampling,
    complains,
    read_reply,
)
from jaxtrade.advisor.host.types import Failure, parse_advice
from tests.messages import missing

ECHO = {"messages": [], "response_format": {"type": "json_schema"}}


def read(status, body, form="json_schema"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(status, {}, data, Sampling("jaxtrade-0", False, parse_advice, form))


def error(message, **fields):
    return {"error": {"message": message, **fields}}


COMPLAINTS = [
    # llama.cpp
    (400, error('response_format type must be one of "text" or "json_object"')),
    (500, error("Failed to parse grammar", code=500, type="server_error")),
    # vLLM
    (400, {"message": "[{'loc': ('body', 'response_format', 'type'), 'msg': 'Input should be'}]"}),
    (400, error("The provided JSON schema contains features not supported by xgrammar.")),
    # OpenAI
    (400, error("Unknown parameter.", param="response_format")),
    # Ollama
    (400, error('invalid format: expected "json" or a JSON schema')),
    # LM Studio
    (400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}),
    # FastAPI servers, Groq, DeepSeek
    (422, {"detail": [{"loc": ["body", "response_format", "type"], "msg": "Input should be"}]}),
    (400, error("This model does not support response format `json_schema`.")),
    (501, b"structured output is not implemented"),
]


@pytest.mark.parametrize(
    ("status", "body"),
    COMPLAINTS,
)
def test_a_complaint_in_any_server_s_words(status, body):
    answer = read(status, body)
    assert (answer.failure, answer.retryable, answer.status) == (Failure.UNSUPPORTED, False, status)
    assert (
        read(status, body, "none").failure is Failure.HTTP
    )  # nothing was asked for that could be left out


NO_COMPLAINTS = [
    (400, error("max_tokens is too large"), Failure.HTTP),
    (422, {"detail": [{"loc": ["body", "model"], "input": ECHO}]}, Failure.HTTP),
    (400, error("json_schema: too long", code="context_length_exceeded"), Failure.REFUSED),
    (401, error("response_format: wrong key"), Failure.REFUSED),
    (503, error("response_format: loading"), Failure.HTTP),
    (400, b"\xff\xfe", Failure.HTTP),
]


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    NO_COMPLAINTS,
)
def test_what_is_no_complaint(status, body, failure):
    assert read(status, body).failure is failure


def test_an_error_nested_without_end_is_read_to_a_depth():
    error = "response_format"
    for _ in range(100):
        error = [error]
    assert not complains(400, error)


def test_the_forms_weaken_one_by_one_and_the_line_stays_the_same():
    forms = Forms("json_schema")
    first = forms.note_rejection("json_schema", "status 400")
    assert forms.now == "json_object"
    assert not missing(first, "json_schema (status 400)", "json_object")
    assert forms.note_rejection("json_schema", "status 400: sent before") == first
    line = forms.note_rejection("json_object", "status 422")
    assert not missing(line, "json_object (status 422)", "response_format")
    forms.note_rejection("none", "whatever")
    assert (forms.now, MOST_FALLBACKS) == ("none", 2)
