"""Judges what an answer says about the question, the endpoint and its load. Pure functions."""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtrade.advisor.host.replies import printable
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
