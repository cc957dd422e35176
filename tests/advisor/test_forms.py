"""Which errors are about `response_format`, and what a run falls back to."""

from __future__ import annotations

import json

import pytest

from jaxtrade.advisor.host.replies import (
    FORMS,
    MOST_FALLBACKS,
    Forms,
    Sampling,
    complains,
    read_reply,
)
from jaxtrade.advisor.host.schema import parse_advice
from jaxtrade.advisor.host.types import Failure
from tests.messages import missing

ECHO = {"messages": [], "response_format": {"type": "json_schema"}}


def read(status, body, form="json_schema"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(status, {}, data, Sampling("jaxtrade-0", False, parse_advice, form))


COMPLAINTS = [
    # llama.cpp
    (
        400,
        {
            "error": {
                "code": 400,
                "type": "invalid_request_error",
                "message": 'response_format type must be one of "text" or "json_object", but got: json_schema',
            }
        },
    ),
    (
        500,
        {"error": {"code": 500, "type": "server_error", "message": "Failed to parse grammar"}},
    ),
    # vLLM
    (
        400,
        {
            "object": "error",
            "type": "BadRequestError",
            "code": 400,
            "message": "[{'type': 'literal_error', 'loc': ('body', 'response_format', "
            "'type'), 'msg': 'Input should be ...'}]",
        },
    ),
    (
        400,
        {
            "error": {
                "message": "The provided JSON schema contains features not supported by xgrammar."
            }
        },
    ),
    # OpenAI
    (
        400,
        {
            "error": {
                "message": "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this "
                "model.",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
    ),
    (
        400,
        {
            "error": {
                "message": "'messages' must contain the word 'json' in some form, to use 'response_format' of "
                "type 'json_object'.",
                "param": "messages",
            }
        },
    ),
    (400, {"error": {"message": "Unknown parameter.", "param": "response_format"}}),
    # Ollama
    (
        400,
        {
            "error": {
                "message": 'invalid format: expected "json" or a JSON schema',
                "type": "invalid_request_error",
            }
        },
    ),
    # LM Studio
    (400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}),
    # FastAPI servers, Groq, DeepSeek
    (
        422,
        {
            "detail": [
                {
                    "type": "literal_error",
                    "loc": ["body", "response_format", "type"],
                    "msg": "Input should be 'text'",
                    "input": "json_schema",
                }
            ]
        },
    ),
    (400, {"error": {"message": "This model does not support response format `json_schema`."}}),
    (400, {"error": {"message": "This response_format type is unavailable now"}}),
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
    (400, {"error": {"message": "max_tokens is too large"}}, Failure.HTTP),
    (
        422,
        {"detail": [{"loc": ["body", "model"], "msg": "no such model", "input": ECHO}]},
        Failure.HTTP,
    ),
    (400, {"error": {"message": "bad", "body": ECHO}}, Failure.HTTP),
    (
        400,
        {"error": {"code": "context_length_exceeded", "message": "with json_schema: too long"}},
        Failure.REFUSED,
    ),
    (401, {"error": {"message": "response_format: wrong key"}}, Failure.REFUSED),
    (429, {"error": {"message": "response_format: too many"}}, Failure.HTTP),
    (503, {"error": {"message": "response_format: loading"}}, Failure.HTTP),
    (400, b"", Failure.HTTP),
    (400, b"\xff\xfe", Failure.HTTP),
]


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    NO_COMPLAINTS,
)
def test_what_is_no_complaint(status, body, failure):
    assert read(status, body).failure is failure


def test_an_error_nested_without_end_is_read_to_a_depth():
    error: object = "response_format"
    for _ in range(100):
        error = [error]
    assert not complains(400, error)


def test_the_forms_weaken_one_by_one_and_the_line_stays_the_same():
    forms = Forms("json_schema")
    first = forms.rejected("json_schema", "status 400")
    assert forms.now == "json_object"
    assert not missing(first, "json_schema (status 400)", "json_object")
    assert forms.rejected("json_schema", "status 400: sent before") == first
    line = forms.rejected("json_object", "status 422")
    assert not missing(line, "and json_object (status 422)", "no response_format")
    assert forms.now == "none"
    forms.rejected("none", "whatever")
    assert forms.now == "none"
    assert MOST_FALLBACKS == 2
    assert Forms("json_object").rejected("json_object", "").startswith("the server rejects")
    assert all(Forms(form).now == form for form in FORMS)
