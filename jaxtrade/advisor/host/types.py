"""What the host side's parts say to each other. Nothing here imports JAX."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Question(NamedTuple):
    """What is asked about one market bar: public state of the market only, so that all environments share it.

    bar: row of the market's time axis. slots: raw (never normalised) values of named slots at its close. symbol, time:
    validated symbol and ISO stamp of the bar's close. prompt: the whole text that a language model gets, and its
    version (template hash).
    """

    bar: int
    symbol: str
    time: str
    slots: Mapping[str, float]
    prompt: str
    prompt_version: str


class Advice(NamedTuple):
    """An opinion: direction logits of hold, buy and sell, confidence and risk in [0, 1], horizon in bars >= 1."""

    hold: float
    buy: float
    sell: float
    confidence: float
    risk: float
    horizon: int


class Failure(enum.Enum):
    """Why there is no advice. A failure is absence, never an opinion."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    HTTP = "http"  # a status that is no success; `Answer.status`
    REFUSED = "refused"  # credentials, model or quota: asking again is of no use
    TOO_LARGE = "too_large"
    EMPTY = "empty"
    PARSE = "parse"
    SCHEMA = "schema"
    STOPPED = "stopped"
    RAISED = "raised"  # a backend broke its promise not to


class Answer(NamedTuple):
    """What came of one attempt: advice, or a failure with its detail (scrubbed of secrets).

    retry_after: seconds that the server asked for, or None. retryable: another attempt may help. raw: the model's text
    as it came, at most 64 KiB. model: what the server says it ran.
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


class Backend(Protocol):
    """Who is asked."""

    @property
    def name(self) -> str: ...

    def identity(self) -> Mapping[str, str]:
        """What distinguishes its answers: kind, model, base URL, sampling, schema hash. Goes into cache keys and the
        journal; holds no secret."""
        ...

    def answer(self, question: Question, deadline: float) -> Answer:
        """One attempt, over at `deadline` (of `time.monotonic`). Never raises, never retries; safe in many threads."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Injected time, so that backoff and breakers are tested in no time."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...
