"""What a chat-completions request means here and what is answered: pure functions, and the Protocol of a model.

Only what the advisor's client sends is offered: messages of text, greedy or sampled decoding, one choice, no streams,
no tools and no constrained decoding (answers are validated by whoever asked).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from jaxtrade.advisor.host.schema import RefusedError, strict_json
from jaxtrade.advisor.host.types import Failure

MAX_BODY = 64 * 1024  # bytes of a request
MAX_MESSAGES = 16
MAX_TOKENS = 4096  # of an answer
_ROLES = frozenset(("system", "user", "assistant"))
_KEYS = frozenset(("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "seed", "stream", "n"))


class Ask(NamedTuple):
    """A request. messages: (role, content). temperature 0: greedy. seed: of the sampling, None: any."""

    messages: tuple[tuple[str, str], ...]
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None


class Text(NamedTuple):
    """What a model wrote. cut: it had more to say when its tokens were used up."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    cut: bool


class Model(Protocol):
    """Who writes; called by one thread at a time."""

    @property
    def name(self) -> str: ...

    def write(self, ask: Ask, go_on: Callable[[], bool]) -> Text:
        """An answer. `go_on` is asked at every token: False means that nobody waits for the rest.

        Raises RequestError for a request that this model cannot serve.
        """
        ...


class RequestError(Exception):
    """A request that is not served: HTTP status, the protocol's error code, a message without the request's text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def read_request(body: bytes, model: str) -> Ask:
    """The request in a body. Raises RequestError."""
    try:
        value = strict_json(body.decode("utf-8"), MAX_BODY)
    except UnicodeDecodeError:
        raise RequestError(400, "invalid_json", "the body is not UTF-8") from None
    except RefusedError as refused:
        status = 413 if refused.failure is Failure.TOO_LARGE else 400
        raise RequestError(status, "invalid_json", "the body is not one JSON object of at most "
                           f"{MAX_BODY} bytes") from None
    if not isinstance(value, dict):
        raise _wrong("body", "expected a JSON object")
    if unknown := sorted(set(value) - _KEYS):
        raise _wrong(ascii(unknown[0])[:40], "not offered by this server")
    if value.get("model") != model:
        raise RequestError(404, "model_not_found", f"this server runs {model}")
    if value.get("stream", False) is not False or value.get("n", 1) != 1:
        raise _wrong("stream, n", "one whole answer is all that is offered")
    tokens = [value[key] for key in ("max_tokens", "max_completion_tokens") if key in value] or [256]
    if len(tokens) > 1 or type(tokens[0]) is not int or not 1 <= tokens[0] <= MAX_TOKENS:
        raise _wrong("max_tokens", f"expected one whole number from 1 to {MAX_TOKENS}")
    temperature, seed = value.get("temperature", 0.0), value.get("seed")
    if type(temperature) not in (int, float) or not 0 <= temperature <= 2:
        raise _wrong("temperature", "expected 0 to 2")
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise _wrong("seed", "expected a whole number from 0")
    return Ask(_messages(value.get("messages")), tokens[0], float(temperature), seed)


def _messages(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise _wrong("messages", f"expected 1 to {MAX_MESSAGES}")
    for message in value:
        if (not isinstance(message, dict) or set(message) != {"role", "content"} or message["role"] not in _ROLES
                or not isinstance(message["content"], str)):
            raise _wrong("messages", "each has a role (system, user, assistant) and a content of text")
    return tuple((message["role"], message["content"]) for message in value)


def _wrong(key: str, why: str) -> RequestError:
    return RequestError(400, "invalid_request", f"{key}: {why}")


def completion(text: Text, model: str, number: int) -> Mapping[str, Any]:
    """The JSON value of an answer; `number` counts them."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text.text},
              "finish_reason": "length" if text.cut else "stop"}
    usage = {"prompt_tokens": text.prompt_tokens, "completion_tokens": text.completion_tokens,
             "total_tokens": text.prompt_tokens + text.completion_tokens}
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "model": model, "choices": [choice],
            "usage": usage}


def failure(code: str, message: str) -> Mapping[str, Any]:
    """The JSON value of an error."""
    return {"error": {"message": message, "type": code, "code": code}}


def models(model: str) -> Mapping[str, Any]:
    """The JSON value of `/v1/models`."""
    return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "local"}]}
