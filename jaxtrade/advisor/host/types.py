"""Types that the modules of the host side share. Nothing here imports JAX."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Question(NamedTuple):
    """A question about one market bar. It holds public market state only, so all environments share
    it.

    bar: index on the market's time axis. symbol, time: validated symbol and ISO time stamp of the
        bar's close. slots:
    raw (never normalised) values at that close by name. prompt: the whole text that a language
    model receives.
    prompt_version: name and hash of the prompt's template.
    """

    bar: int
    symbol: str
    time: str
    slots: Mapping[str, float]
    prompt: str
    prompt_version: str


class Advice(NamedTuple):
    """Advice about one bar: logits of hold, buy and sell; confidence and risk in [0, 1]; horizon in
    bars, >= 1.
    """

    hold: float
    buy: float
    sell: float
    confidence: float
    risk: float
    horizon: int

    @property
    def direction(self) -> int:
        """+1 to buy, -1 to sell: its logit is above both others. 0 otherwise."""
        return (self.buy > max(self.hold, self.sell)) - (self.sell > max(self.hold, self.buy))


class Failure(enum.Enum):
    """Why there is no advice. A failure means that advice is absent; it is never read as an
    opinion.
    """

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    HTTP = "http"  # a status other than success, see `Answer.status`
    UNSUPPORTED = "unsupported"  # the server rejects the form of the request; the backend uses another from here on
    REFUSED = "refused"  # credentials, model or quota: a retry cannot help
    TOO_LARGE = "too_large"
    EMPTY = "empty"
    PARSE = "parse"
    SCHEMA = "schema"
    STOPPED = "stopped"  # the run ended first: the request was cancelled, and nothing has failed
    RAISED = "raised"  # the backend raised an exception, against its contract


class Answer(NamedTuple):
    """The result of one request: advice, or a failure with its detail (scrubbed of secrets).

    status: HTTP status, or 0. retryable: whether another attempt may help. retry_after: seconds
        that the server asks to
    wait, or None. latency: in seconds. raw: the model's text as received, at most 64 KiB. model:
    the model's name as the server reports it. parts: the answers of the single requests, where one
    question took several; their tokens add up to this answer's.
    """

    advice: Advice | None
    failure: Failure | None = None
    detail: str = ""
    status: int = 0
    retryable: bool = False
    retry_after: float | None = None
    latency: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    raw: str = ""
    model: str = ""
    parts: tuple[Answer, ...] = ()


class TransportError(Exception):
    """There is no complete response to a request, or it is the response to another one. Its text
    holds no request header. answer: the failure.
    """

    def __init__(self, failure: Failure, detail: str, retryable: bool, status: int = 0) -> None:
        super().__init__(detail)
        self.answer = Answer(None, failure, detail, status, retryable)


class Backend(Protocol):
    """Answers questions: a server, a mock, a set of rules or recorded answers."""

    @property
    def name(self) -> str:
        """A short name for reports."""
        ...

    def identity(self) -> Mapping[str, str]:
        """Everything that its answers depend on: kind, model, base URL, sampling, schema hash.

        It is part of cache keys and journals, and holds no secret.
        """
        ...

    def answer(self, question: Question, deadline: float) -> Answer:
        """Make one attempt, which ends by `deadline` (of `time.monotonic`).

        It never raises and never retries. Many threads may call it at once.
        """
        ...

    def close(self) -> None:
        """Release what it holds. It is called once."""
        ...


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known name, or all known names where none is
    close.
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"
