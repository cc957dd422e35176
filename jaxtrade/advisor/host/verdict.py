"""Judges what an answer says about the question, the endpoint and its load. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtrade.advisor.host.replies import CUT_OFF, printable
from jaxtrade.advisor.host.schema import is_thinking
from jaxtrade.advisor.host.types import Advice, Answer, Failure

_CONTENT = frozenset({Failure.PARSE, Failure.SCHEMA, Failure.EMPTY, Failure.TOO_LARGE})
_UNBILLED = frozenset(
    {Failure.HTTP, Failure.REFUSED, Failure.UNSUPPORTED}
)  # error statuses: no answer to pay for
_OVERLOADED = frozenset({429, 503, 529})  # too many requests; unavailable; overloaded

_MOST_TOKENS = 10_000_000


class Verdict(NamedTuple):
    """What an answer says.

    healthy: whether the endpoint works; None where the answer does not show it. overload: the
        endpoint needs fewer
    concurrent requests. fault: a name if the question is expected to fail in the same way again,
    else "". unbilled: the server's status says that it did not answer.
    """

    healthy: bool | None
    overload: bool
    fault: str
    unbilled: bool


def problem(advice: Advice) -> str:
    """A description of what makes advice unusable for training; "" where nothing does."""
    if not all(type(value) in (int, float) and math.isfinite(value) for value in advice):
        return "a value is not a finite number"
    if not (0.0 <= advice.confidence <= 1.0 and 0.0 <= advice.risk <= 1.0):
        return "confidence or risk outside [0, 1]"
    if not isinstance(advice.horizon, int) or advice.horizon < 1:
        return "the horizon is no whole number of bars >= 1"
    return ""


def checked(answer: Answer) -> Answer:
    """`answer` after checks of a backend's result.

    Unusable advice becomes the failure SCHEMA. An answer with neither advice nor failure becomes
    EMPTY. Impossible token counts become 0, which means unknown.
    """
    if not all(
        type(tokens) is int and 0 <= tokens <= _MOST_TOKENS
        for tokens in (answer.prompt_tokens, answer.completion_tokens)
    ):
        answer = answer._replace(prompt_tokens=0, completion_tokens=0)
    if answer.advice is not None:
        found = problem(answer.advice)
        return (
            answer._replace(advice=None, failure=Failure.SCHEMA, detail=found) if found else answer
        )
    return (
        answer
        if answer.failure is not None
        else answer._replace(failure=Failure.EMPTY, detail="no advice")
    )


def verdict_of(answer: Answer) -> Verdict:
    """What follows from an answer: whether it counts as a success, as a fault of the backend, and
    as billed.
    """
    failure = answer.failure
    if answer.advice is not None or failure is None:
        return Verdict(True, False, "", False)
    fault = ""
    # A PARSE failure without a model's text is not content: it is, for example, a proxy's page.
    content = failure in _CONTENT and not (failure is Failure.PARSE and not answer.raw)
    if content:
        fault = failure.value
    elif failure is Failure.HTTP and not answer.retryable:
        fault = f"http {answer.status}"
    # An unusable text still shows that the endpoint works. A request that we stopped shows nothing,
    # and one of a rejected form is sent again in another.
    healthy = None if failure in (Failure.STOPPED, Failure.UNSUPPORTED) else content
    overload = failure is Failure.TIMEOUT or (
        failure is Failure.HTTP and answer.status in _OVERLOADED
    )
    return Verdict(healthy, overload, fault, failure in _UNBILLED)


def is_unusable(answer: Answer) -> bool:
    """Whether the server has answered, and the answer cannot be used.

    A proxy's page is no answer. Neither is an EMPTY result without an HTTP status: mocks return it
    on purpose.
    """
    if answer.advice is not None or answer.failure not in _CONTENT:
        return False
    return bool(answer.raw) or (answer.failure is not Failure.PARSE and answer.status != 0)


def one_line(text: str, most: int = 200) -> str:
    """At most `most` characters of a message. Control characters, which could move a terminal's
    cursor, are removed.
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
    """Why an unusable answer cannot be used: a key of `WHAT`."""
    if answer.failure is Failure.TOO_LARGE:
        return "cut_off" if answer.detail.startswith(CUT_OFF) else "too_large"
    if answer.failure in (Failure.SCHEMA, Failure.EMPTY):
        return answer.failure.value
    if is_thinking(answer.raw):
        return "think"
    return "json" if answer.raw.lstrip()[:1] in ("{", "[") else "prose"


def remedy(reason: str, identity: Mapping[str, str], completion_tokens: int) -> str:
    """What helps against unusable answers of a backend with this identity."""
    known = {
        name.rpartition(".")[2]: value for name, value in identity.items()
    }  # a wrapper's names have a prefix
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
    """Counts by reason as text: "8 prose, 2 cut_off"."""
    return ", ".join(
        f"{count} {reason}" for reason, count in sorted(unusable.items(), key=lambda item: -item[1])
    )


def unusable_lines(figures: Mapping[str, Any]) -> list[str]:
    """The line of a report about unusable answers; none where there were none, or in figures of
    earlier versions.
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
