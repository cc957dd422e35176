"""Reads a chat-completions server's response: pure functions from status, headers, body to Answer.

status                              failure      retry
408, 409, 425, 429, 5xx             HTTP         may help; `Retry-After` is passed on, and the caller waits
429 insufficient_quota, 401, 402,   REFUSED      cannot help: wrong key, no quota, no permission, no such model, a
  403, 404, 400 context_length                   prompt that is too long, or a setting that the model does not take
400, 422, 500, 501 about the form   UNSUPPORTED  helps: the next request asks for a weaker form, see `Forms`
  of the answer (response_format)
other 4xx, 3xx, 1xx, 2xx but 200    HTTP         cannot help
200 without a completion            PARSE        may help: HTML, JSON of another form, `{"error": ...}`
200 without text                    EMPTY        may help: no choices, null content, tool calls, refusals, filters
200 with text that is not advice    PARSE,       may help where sampling is random; TOO_LARGE is text above 64 KiB or
                                    SCHEMA,      cut off at the token limit
                                    TOO_LARGE

The form that requests ask for (`response_format`), and the next weaker one where a server
rejects it.

The forms are json_schema, json_object, none. A server that answers a form with an error never
accepts it later, so a run falls back and stays there. Nothing else changes: every answer is checked
in the same way, with or without a form. The backend's identity, and so every cache key, keeps the
form that was configured; a server that rejects it does so for every question.

Judges what an answer says about the question, the endpoint and its load. Pure functions.
"""

from __future__ import annotations

import email.utils
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jaxtrade.advisor.host.types import (
    MAX_BYTES,
    Advice,
    Answer,
    FailedError,
    Failure,
    loose_json,
)

FORMS = ("json_schema", "json_object", "none")
MOST_FALLBACKS = len(FORMS) - 1  # of one question
_STATUSES = frozenset((400, 422, 500, 501))
# llama.cpp, vLLM, OpenAI, Ollama, LM Studio, Groq and DeepSeek all use some of these words.
_WORDS = re.compile(
    r"response[ _.-]?format|json[ _-]?(schema|object)|structured[ _-]output|guided[ _-]|grammar"
    r"|invalid format",
    re.IGNORECASE,
)
_ECHOES = frozenset(
    ("input", "body", "ctx", "url", "messages", "request")
)  # parts of an error that repeat the request
_MOST_DEPTH, _MOST_ITEMS, _MOST_TEXT = 5, 20, 1000


def complains(status: int, error: object) -> bool:
    """Return whether an error response is about the form of the answer.

    Args:
        error: the body, as JSON value or as text.
    """
    return status in _STATUSES and any(_WORDS.search(text) for text in _texts(error, _MOST_DEPTH))


def _texts(value: object, depth: int) -> Iterator[str]:
    """Yield the texts of an error, without those in which servers repeat the request."""
    if isinstance(value, str):
        yield value[:_MOST_TEXT]
    elif isinstance(value, dict | list) and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items)[:_MOST_ITEMS]:
            if key not in _ECHOES:
                yield from _texts(item, depth - 1)


class Forms:
    """The form in use. Many threads may use it.

    first: the one that is configured.
    now: the one that the next request asks for, of `FORMS`.
    """

    def __init__(self, first: str) -> None:
        self._first = self.now = first
        self._line = ""
        self._lock = threading.Lock()

    def note_rejection(self, form: str, words: str) -> str:
        """Note that the server rejects `form`, and return a line about the form in use.

        Requests that were in flight during a fall-back are rejected later, and get the same line.

        Args:
            words: the server's.
        """
        with self._lock:
            if form == self.now and form != FORMS[-1]:
                self.now = FORMS[FORMS.index(form) + 1]
                given_up = FORMS[FORMS.index(self._first) : FORMS.index(self.now)]
                asked = "no response_format" if self.now == FORMS[-1] else self.now
                self._line = (
                    f"the server rejects response_format {' and '.join(given_up)} ({words[:100]}); from here "
                    f"on it is asked for {asked}, and answers are checked as before"
                )
            return self._line


CUT_OFF = "the answer was cut off at the token limit"
_RETRYABLE = frozenset((408, 409, 425, 429))
_REFUSED = {
    401: "the key is not accepted",
    402: "a payment is due",
    403: "the key may not do this",
    404: "no such model or path",
}
_NO_QUOTA = frozenset(("insufficient_quota", "billing_hard_limit_reached"))
_TOO_LONG = frozenset(("context_length_exceeded", "exceed_context_size_error"))
# Words of vLLM, llama.cpp (its server and llama-cpp-python), Ollama, TGI, OpenAI, Mistral and
# Anthropic.
_TOO_LONG_WORDS = re.compile(
    r"context[ _-]?(length|size|window)|(max\w*|maximum) (model|context|input|prompt|sequence) (length|tokens)"
    r"|(prompt|input|inputs|request)( tokens)? (is|are|was|were) too (long|large)|too many (input |prompt )?tokens",
    re.IGNORECASE,
)
_LENGTH_STATUSES = frozenset((400, 413, 422, 500))
_NOT_TAKEN = re.compile(
    r"unsupported|not support|n't support|only the default|not allowed|not permitted"
    r"|unknown parameter|unrecognized",
    re.IGNORECASE,
)
_REMEDIES = {
    "temperature": "set advisor.options.temperature=null",
    "seed": "set advisor.options.seed=null",
    "max_tokens": "set advisor.options.tokens_key=max_completion_tokens",
}  # by the setting that is not taken
_MAX_TOKENS = 10**9
_OWN_ID = re.compile(r"jaxtrade-[0-9a-f]{16}")


class Sampling(NamedTuple):
    """What the reader needs to know about the request.

    request_id: as sent.
    random: whether the same prompt may get another text.
    parse: parses the model's text.
    form: the form that the request asks for, see `Forms`; "none" without one.
    """

    request_id: str
    random: bool
    parse: Callable[[str], Answer]
    form: str = FORMS[-1]


def read_reply(status: int, headers: Mapping[str, str], body: bytes, sampling: Sampling) -> Answer:
    """Read the answer in a complete response. Header names are in lower case.

    Raises FailedError for the response to another request, and nothing else.
    """
    check_id(headers.get("x-request-id", ""), sampling.request_id)
    if status != 200:
        return _refusal(status, headers, body, sampling.form)
    try:
        value = loose_json(body.decode("utf-8"), max(len(body), 1))
    except UnicodeDecodeError:
        return Answer(None, Failure.PARSE, "body is not UTF-8", status, True)
    except FailedError as refused:
        kind = "HTML" if body.lstrip()[:1] == b"<" else "no completion"
        return Answer(None, refused.answer.failure, f"{kind}: {refused}", status, True)
    if not isinstance(value, dict) or value.get("error") or value.get("object") == "error":
        found = _error_text(value) or f"a JSON {type(value).__name__}"
        return Answer(None, Failure.PARSE, f"no completion but {found}", status, True)
    check_id(str(value.get("id", "")), sampling.request_id)
    usage, model = _object(value.get("usage")), value.get("model")
    return _completion(value, sampling)._replace(
        status=status,
        model=printable(model[:200]) if isinstance(model, str) else "",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _completion(value: dict[str, Any], sampling: Sampling) -> Answer:
    """Read the answer in the text of a completion.

    What else is known of the response is left out.
    """

    def fail(failure: Failure, detail: str, retryable: bool = True) -> Answer:
        return Answer(None, failure, detail, retryable=retryable)

    choices = value.get("choices")
    if not isinstance(choices, list):
        return fail(Failure.PARSE, "no completion: 'choices' is no list")
    if not choices:
        return fail(Failure.EMPTY, "no choices")
    choice = _object(choices[0])
    message = _object(choice.get("message"))
    content, is_cut = message.get("content"), choice.get("finish_reason") == "length"
    if choice.get("finish_reason") == "content_filter" or message.get("refusal"):
        return fail(Failure.EMPTY, "refused by the model or a content filter")
    if message.get("tool_calls") or message.get("function_call"):
        return fail(Failure.EMPTY, "tool calls instead of text")
    if content in (None, ""):
        if is_cut:  # all tokens went into reasoning, which some servers keep apart
            return fail(Failure.TOO_LARGE, f"{CUT_OFF} before any text", sampling.random)
        return fail(Failure.EMPTY, "no content")
    if not isinstance(content, str):
        return fail(Failure.PARSE, f"content is a {type(content).__name__}, expected text")
    text = content.encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be stored
    answer = fail(Failure.TOO_LARGE, CUT_OFF) if is_cut else sampling.parse(text)
    return answer._replace(
        raw=text.encode("utf-8")[:MAX_BYTES].decode("utf-8", "ignore"),
        retryable=sampling.random and bool(answer.failure),
    )


def _object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}


def _refusal(status: int, headers: Mapping[str, str], body: bytes, form: str) -> Answer:
    try:
        value = loose_json(body.decode("utf-8"), max(len(body), 1))
    except (UnicodeDecodeError, FailedError):
        value = body[:1000].decode("utf-8", "replace")
    error = _error_of(value)
    codes = {str(_object(error).get(name)) for name in ("code", "type")}
    detail = ": ".join(filter(None, (f"status {status}", _REFUSED.get(status), _error_text(value))))
    if 300 <= status < 400:
        return Answer(
            None, Failure.HTTP, f"status {status}: a redirect, which is not followed", status
        )
    too_long = status in _LENGTH_STATUSES and (
        codes & _TOO_LONG or _TOO_LONG_WORDS.search(_message(error))
    )
    if status in _REFUSED or codes & _NO_QUOTA or too_long:
        return Answer(None, Failure.REFUSED, detail, status)
    if status in (400, 422) and (remedy := _remedy(error)):
        return Answer(None, Failure.REFUSED, f"{detail}; {remedy}", status)
    if form != FORMS[-1] and complains(status, value):
        return Answer(None, Failure.UNSUPPORTED, detail, status)
    retryable = status in _RETRYABLE or status >= 500
    wait = retry_after(headers) if retryable else 0.0
    return Answer(None, Failure.HTTP, detail, status, retryable, wait)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that the server asks to wait.

    It is 0 where `Retry-After` is absent or not usable.

    A date is compared with the response's own `Date` header, because the local clock may be wrong.
    Without that header a date is not usable.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        return float(text)
    try:
        when, now = map(email.utils.parsedate_to_datetime, (text, headers.get("date", "")))
        return max(0.0, when.timestamp() - now.timestamp())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def check_id(text: str, own: str) -> None:
    """Raise FailedError where `text` contains a request id made here that is not `own`.

    Ids that servers make themselves are ignored.
    """
    if any(found != own for found in _OWN_ID.findall(text)):
        raise FailedError(Failure.CONNECTION, "the answer to another request", True)


def printable(text: str) -> str:
    """Replace control and other unprintable characters in `text` by blanks."""
    return "".join(char if char.isprintable() else " " for char in text)


def _error_of(value: object) -> object:
    """Return the error in a body.

    FastAPI servers name it `detail`; vLLM's older ones are an error as a whole.
    """
    body = _object(value)
    found = body.get("error", body.get("detail"))
    return body if found is None and isinstance(body.get("message"), str) else found


def _message(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message[:2000] if isinstance(message, str) else ""


def _remedy(error: object) -> str:
    """Say how to mend a setting that the model does not take, in the words of `advisor.options`.

    The result is "" for other errors.
    """
    message, named = _message(error), _object(error).get("param")
    if _NOT_TAKEN.search(message):
        for name, remedy in _REMEDIES.items():
            if named == name or re.search(rf"\b{name}\b", message):
                return remedy
    return ""


def _error_text(value: object) -> str:
    """Return the message of an error, shortened; "" where there is none."""
    message = _message(_error_of(value))
    return "error " + printable(message[:200]) if message else ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else 0


_CONTENT = frozenset({Failure.PARSE, Failure.SCHEMA, Failure.EMPTY, Failure.TOO_LARGE})
_UNBILLED = frozenset(
    {Failure.HTTP, Failure.REFUSED, Failure.UNSUPPORTED}
)  # error statuses: no answer to pay for
_OVERLOADED = frozenset({429, 503, 529})  # too many requests; unavailable; overloaded

_MOST_TOKENS = 10_000_000


class Verdict(NamedTuple):
    """What an answer says.

    healthy: whether the endpoint works; None where the answer does not show it.
    overload: the endpoint needs fewer concurrent requests.
    fault: a name if the question is expected to fail in the same way again, else "".
    unbilled: the server's status says that it did not answer.
    """

    healthy: bool | None
    overload: bool
    fault: str
    unbilled: bool


def problem(advice: Advice) -> str:
    """Describe what makes advice unusable for training; "" where nothing does."""
    if not all(type(value) in (int, float) and math.isfinite(value) for value in advice):
        return "a value is not a finite number"
    if not (0.0 <= advice.confidence <= 1.0 and 0.0 <= advice.risk <= 1.0):
        return "confidence or risk outside [0, 1]"
    if not isinstance(advice.horizon, int) or advice.horizon < 1:
        return "the horizon is no whole number of bars >= 1"
    return ""


def check_answer(answer: Answer) -> Answer:
    """Check `answer`, a backend's result, and return it with faults replaced.

    Unusable advice becomes the failure SCHEMA. An answer with neither advice nor failure becomes
    EMPTY. Impossible token counts become 0, which means unknown; so do a wait and a latency that
    make no sense.
    """
    if not all(
        type(tokens) is int and 0 <= tokens <= _MOST_TOKENS
        for tokens in (answer.prompt_tokens, answer.completion_tokens)
    ):
        answer = answer._replace(prompt_tokens=0, completion_tokens=0)
    if not 0 < (answer.retry_after or 0) < math.inf:  # also true for NaN
        answer = answer._replace(retry_after=0.0)
    if not 0 <= answer.latency < math.inf:
        answer = answer._replace(latency=0.0)
    if answer.advice and (found := problem(answer.advice)):
        return answer._replace(advice=None, failure=Failure.SCHEMA, detail=found)
    if answer.advice or answer.failure:
        return answer
    return answer._replace(failure=Failure.EMPTY, detail="no advice")


def _is_content(answer: Answer) -> bool:
    """Return whether a failure is of what a model said.

    A PARSE failure without a model's text is not: it is, for example, a proxy's page.
    """
    return answer.failure in _CONTENT and (answer.failure is not Failure.PARSE or bool(answer.raw))


def verdict_of(answer: Answer) -> Verdict:
    """Judge an answer: whether it counts as a success, as a fault of the backend, and as billed."""
    failure = answer.failure
    if answer.advice or not failure:
        return Verdict(True, False, "", False)
    content = _is_content(answer)
    fault = failure.value if content else ""
    if failure is Failure.HTTP and not answer.retryable:
        fault = f"http {answer.status}"
    # An unusable text still shows that the endpoint works. A request that we stopped shows nothing,
    # and one of a rejected form is sent again in another.
    healthy = None if failure in (Failure.STOPPED, Failure.UNSUPPORTED) else content
    overload = failure is Failure.TIMEOUT or (
        failure is Failure.HTTP and answer.status in _OVERLOADED
    )
    return Verdict(healthy, overload, fault, failure in _UNBILLED)


def is_unusable(answer: Answer) -> bool:
    """Return whether the server has answered, and the answer cannot be used.

    A proxy's page is no answer. Neither is an EMPTY result without an HTTP status: mocks return it
    on purpose.
    """
    return not answer.advice and _is_content(answer) and bool(answer.raw or answer.status)


def one_line(text: str, most: int = 200) -> str:
    """Shorten a message to one line of at most `most` characters.

    Control characters, which could move a terminal's cursor, are removed.
    """
    line = printable(text[: most + 1])
    return line[:most] + "…" if len(line) > most else line


WHAT = {
    "prose": "prose, not the form that was asked for",
    "json": "JSON that cannot be read",
    "think": "reasoning without an answer after it",
    "cut_off": "cut off at the token limit",
    "schema": "a key or a value does not fit",
    "empty": "no text",
    "too_large": "too much text",
}


def reason_of(answer: Answer) -> str:
    """Say why an unusable answer cannot be used: a key of `WHAT`."""
    if answer.failure is Failure.TOO_LARGE:
        return "cut_off" if answer.detail.startswith(CUT_OFF) else "too_large"
    if answer.failure in (Failure.SCHEMA, Failure.EMPTY):
        return answer.failure.value
    if re.match(r"\s*<think(?:ing)?>", answer.raw, re.IGNORECASE):
        return "think"
    return "json" if answer.raw.lstrip()[:1] in ("{", "[") else "prose"


def remedy(reason: str, identity: Mapping[str, str], completion_tokens: int) -> str:
    """Say what helps against unusable answers of a backend with this identity."""
    # A wrapper's names have a prefix.
    known = {name.rpartition(".")[2]: value for name, value in identity.items()}
    tokens = f"raise advisor.service.completion_tokens (now {completion_tokens})"
    if reason == "cut_off":
        return tokens
    if reason == "think":
        return f"turn the model's reasoning off, or {tokens}"
    if reason == "empty":
        return f"{tokens}, if the model reasons before it answers; the server's log may say more"
    if reason == "too_large":
        return "raise advisor.options.max_bytes, or use another model"
    if known.get("answer") == "pipe":
        return "advisor.template=v1 asks for JSON, which advisor.options.structured=json_schema can enforce"
    line = "advisor.template=pipe asks for one short line instead"
    if known.get("structured") == "json_schema":
        return f"the server does not keep to advisor.options.structured=json_schema; {line}"
    if "structured" in known:
        return f"advisor.options.structured=json_schema makes many servers keep to the form; {line}"
    return line


def reasons_text(unusable: Mapping[str, int]) -> str:
    """Format counts by reason as text: "8 prose, 2 cut_off"."""
    return ", ".join(
        f"{count} {reason}" for reason, count in sorted(unusable.items(), key=lambda item: -item[1])
    )


def unusable_lines(figures: Mapping[str, Any]) -> list[str]:
    """Return the line of a report about unusable answers.

    There is none where there were none, or in statistics of earlier versions.
    """
    unusable = figures.get("unusable") or {}
    if not unusable:
        return []
    pauses = figures.get("unusable_pauses", 0)
    paused = f"; asking paused {pauses} time{'s' if pauses != 1 else ''}" if pauses else ""
    return [
        f"advisor: {sum(unusable.values()):,} answers were paid for and could not be used "
        f"({reasons_text(unusable)}){paused}"
    ]
