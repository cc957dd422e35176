"""What the modules of the host side share: questions, answers, their schema and parser, and counts.

Nothing here imports JAX.
"""

from __future__ import annotations

import bisect
import enum
import hashlib
import json
import logging
import math
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml
from pydantic import Field

from jaxtrade.config import validate
from jaxtrade.config.base import Section
from jaxtrade.errors import ConfigFaultsError
from jaxtrade.text import Log, did_you_mean


class Question(NamedTuple):
    """A question about one market bar.

    It holds public market state only, so all environments share it.

    bar: index on the market's time axis.
    symbol, time: validated symbol and ISO time stamp of the bar's close.
    slots: raw (never normalised) values at that close by name.
    prompt: the whole text that a language model receives.
    prompt_version: name and hash of the prompt's template.
    """

    bar: int
    symbol: str
    time: str
    slots: Mapping[str, float]
    prompt: str
    prompt_version: str


class Advice(NamedTuple):
    """Advice about one bar.

    It has logits of hold, buy and sell; confidence and risk in [0, 1]; horizon in bars, >= 1.
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
    """Why there is no advice.

    A failure means that advice is absent; it is never read as an opinion.
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
    """The result of one request, or of reading one text.

    It is advice, or a failure with its detail (scrubbed of secrets).

    status: HTTP status, or 0.
    retryable: whether another attempt may help.
    retry_after: seconds that the server asks to wait, or 0.
    latency: in seconds.
    raw: the model's text as received, at most 64 KiB.
    model: the model's name as the server reports it.
    parts: the answers of the single requests, where one question took several; their tokens add up
        to this answer's.
    reason: the advice's own, which nothing but reports for people reads.
    repaired: whether only a part of the text was read, with or without success.
    """

    advice: Advice | None
    failure: Failure | None = None
    detail: str = ""
    status: int = 0
    retryable: bool = False
    retry_after: float = 0.0
    latency: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    raw: str = ""
    model: str = ""
    parts: tuple[Answer, ...] = ()
    reason: str = ""
    repaired: bool = False


class FailedError(Exception):
    """A text is not accepted, or a request has no complete response of its own.

    The response may be to another request. The error's text holds no request header.

    answer: the failure.
    """

    def __init__(
        self, failure: Failure, detail: str, retryable: bool = False, status: int = 0
    ) -> None:
        super().__init__(detail)
        self.answer = Answer(None, failure, detail, status, retryable)


class Backend(Protocol):
    """Answers questions: a server, a mock, a set of rules or recorded answers."""

    @property
    def name(self) -> str:
        """A short name for reports."""
        ...

    def identity(self) -> Mapping[str, str]:
        """Return everything that its answers depend on.

        This is kind, model, base URL, sampling, schema hash.

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
    """Return the end of an error message: the closest known name, or all where none is close."""
    known = sorted(known)
    return did_you_mean(name, known) or f"; choose one of {', '.join(known)}"


def canonical(value: object) -> str:
    """Format a value as JSON that depends on nothing but the value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def sha256_of(text: str) -> str:
    """Return the SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


# The schema of answers (version 1) and its strict parser. An answer that does not fit is a
# failure.
#
# It is never clamped into range and never read as HOLD. A server with constrained decoding receives
# `ADVICE_SCHEMA`. Every answer is still checked here, because some servers accept a schema and still
# return a confidence of 653.3.
#
# Direction and confidence become the three logits of `Advice`:
#
#     logit[direction] = LOGIT_SCALE * confidence,    the other two = 0        (flat = hold, long = buy, short = sell)
#
# Each logit lies in [0, LOGIT_SCALE]. Confidence 0 gives three equal logits, so no opinion.
# Confidence 1 gives its direction a softmax probability of e^3 / (e^3 + 2) = 0.91. Here the stated
# confidence is only bounded; the fusion measures later what it is worth.
#
# Where the text alone is not JSON, the parser looks for the answer in two places and nowhere else,
# under the same rules. `Answer.repaired` reports that it did.
#
# 1. After the reasoning: if the text contains a closing think tag (`</think>`), only what follows the last one is read.
# 2. In a fence: if that is not JSON either and contains exactly one code fence, the first balanced object inside it.
#
# A reason longer than `MAX_REASON` is cut, not refused: nothing depends on it, and the answer is paid
# for.
#
# The pipe format, `ACTION | confidence | reason`, parsed as strictly as the JSON schema.
#
# A lenient parser would turn an unknown action into HOLD, or read any number in the text as the
# confidence. Here an unknown action, a missing `|`, "85%" and a number in another place are failures.
# Actions that manage a position are failures too: market advice knows no position. The format has
# neither risk nor horizon; both get the fixed values below. What a reasoning model writes up to its
# last `</think>` is left out first; a long reason is no failure.

ADVICE_SCHEMA: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("answer.yaml").read_text(encoding="utf-8")
)
SCHEMA_HASH = sha256_of(canonical(ADVICE_SCHEMA))
_RULES = ADVICE_SCHEMA["properties"]
MAX_BYTES = 64 * 1024  # of one answer's text
MAX_DEPTH = 32  # of nested brackets; the schema itself needs 1
MAX_REASON = 200  # characters that the schema asks for; more are ignored
MAX_HORIZON: int = _RULES["horizon_bars"]["maximum"]  # bars
LOGIT_SCALE = 3.0
DIRECTIONS: tuple[str, ...] = tuple(_RULES["direction"]["enum"])
# A string, closed or not, or a bracket. The possessive quantifier keeps the search linear in time.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


class _Said(Section, frozen=True):
    """The keys of `ADVICE_SCHEMA`; `advice_of` checks the ranges."""

    v: int = Field(ge=1, le=1)
    direction: str
    confidence: float
    risk: float
    horizon_bars: int
    reason: str


REPAIRED = "repaired"  # `Answer.detail` of advice that was only a part of the text


def advice_of(direction: str, confidence: float, risk: float, horizon: int) -> Advice:
    """Build the advice of a direction and its values, by the formula above.

    Raises FailedError for a value out of range.
    """
    if direction not in DIRECTIONS:
        raise FailedError(
            Failure.SCHEMA,
            f"direction {_format_detail(direction)}, expected one of {', '.join(DIRECTIONS)}",
        )
    for name, value in (("confidence", confidence), ("risk", risk)):
        if not 0.0 <= value <= 1.0:
            raise FailedError(Failure.SCHEMA, f"{name} {_format_detail(value)}, expected 0 to 1")
    if not 1 <= horizon <= MAX_HORIZON:
        raise FailedError(
            Failure.SCHEMA, f"horizon_bars {_format_detail(horizon)}, expected 1 to {MAX_HORIZON}"
        )
    logit = LOGIT_SCALE * float(confidence)
    hold, buy, sell = (logit if direction == name else 0.0 for name in DIRECTIONS)
    return Advice(hold, buy, sell, float(confidence), float(risk), int(horizon))


def parse_advice(text: str) -> Answer:
    """Parse one answer strictly. Never raises.

    The failure is PARSE for a text that is not valid JSON, SCHEMA for a value that does not fit,
    EMPTY for no text and TOO_LARGE for too much of it.
    """
    found = _parse(_json_advice, text)
    if found.failure is Failure.PARSE and (after := _after_thinking(text)):
        text = after
        found = _parse(_json_advice, text, repaired=True)
    if found.failure is Failure.PARSE and (inner := _fenced_object(text)):
        found = _parse(_json_advice, inner, repaired=True)
    return found


def _after_thinking(text: str) -> str:
    """Return what follows the last closing think tag of a reasoning model.

    It is "" without a tag or without text after it.
    """
    parts = _THOUGHT.split(text)
    return parts[-1] if len(parts) > 1 and parts[-1].strip() else ""


def strict_json(text: str, max_bytes: int = MAX_BYTES) -> Any:
    """Parse a text that is exactly one JSON value.

    NaN, Infinity, overflowing numbers, duplicate keys and deep nesting are refused. Raises
    FailedError, with Failure.TOO_LARGE above `max_bytes`, Failure.EMPTY for an empty text and
    Failure.PARSE otherwise.
    """
    return loose_json(
        text, max_bytes, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
    )


def loose_json(text: str, max_bytes: int, **rules: Any) -> Any:
    """Parse like `strict_json` a text that only wraps what is read.

    NaN, Infinity and duplicate keys are allowed there. Of duplicate keys the last counts.

    Args:
        rules: further ones, of `json.loads`.
    """
    _check_size(text, max_bytes)
    _check_depth(text)
    try:
        return json.loads(text, **rules)
    except (ValueError, RecursionError) as error:  # not JSON, or an integer of too many digits
        raise FailedError(Failure.PARSE, f"not JSON: {error}"[:200]) from None


def _check_size(text: str, most: int = MAX_BYTES) -> None:
    """Refuse a text of more than `most` bytes, and one of blanks alone. Raises FailedError."""
    if len(text.encode("utf-8", "surrogatepass")) > most:
        raise FailedError(Failure.TOO_LARGE, f"text above {most} bytes")
    if not text.strip():
        raise FailedError(Failure.EMPTY, "empty text")


def _parse(read: Callable[[str], tuple[Advice, str]], text: str, repaired: bool = False) -> Answer:
    """Parse a text by `read`: its advice and reason, or the failure that it raises."""
    try:
        advice, reason = read(text)
        detail = REPAIRED if repaired else ""
        return Answer(advice, detail=detail, reason=reason[:MAX_REASON], repaired=repaired)
    except FailedError as failed:
        return failed.answer._replace(repaired=repaired)


def _json_advice(text: str) -> tuple[Advice, str]:
    value = strict_json(text)
    if not isinstance(value, dict):
        raise FailedError(Failure.SCHEMA, f"a JSON {type(value).__name__}, expected an object")
    try:
        said = validate(_Said, value, "answer")
    except ConfigFaultsError as error:
        raise FailedError(Failure.SCHEMA, error.faults[0][1]) from None
    advice = advice_of(said.direction, said.confidence, said.risk, said.horizon_bars)
    return advice, said.reason


def _format_detail(value: object) -> str:
    """Format a value as text for error details: short, ASCII only, without control characters."""
    return ascii(value)[:40]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FailedError(Failure.PARSE, "the same key twice")
    return found


def _no_constant(name: str) -> Any:
    raise FailedError(Failure.PARSE, f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise FailedError(Failure.PARSE, f"{text[:20]} overflows")
    return value


def _brackets(text: str) -> Iterator[re.Match[str]]:
    """Yield the brackets of a JSON text outside its strings."""
    return (match for match in _TOKENS.finditer(text) if match[0][0] != '"')


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the recursive parser runs. Raises FailedError."""
    depth = 0
    for bracket in _brackets(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise FailedError(Failure.PARSE, f"nested deeper than {MAX_DEPTH}")


def _fenced_object(text: str) -> str:
    """Return the first balanced object in the text's only code fence; "" where there is none."""
    parts = text.split("```")
    start = parts[1].find("{") if len(parts) == 3 else -1
    if start < 0:
        return ""
    depth = 0
    for bracket in _brackets(inside := parts[1][start:]):
        depth += {"{": 1, "}": -1}.get(bracket[0], 0)
        if depth == 0:
            return inside[: bracket.end()]
    return ""


PIPE_ACTIONS = {"HOLD": "flat", "BUY": "long", "SELL": "short"}
POSITION_ACTIONS = ("MOVE_TO_BE", "ENABLE_TRAIL", "DISABLE_TRAIL")
PIPE_RISK = 0.5
PIPE_HORIZON = 30  # bars
_NUMBER = re.compile(r"(?:0(?:\.[0-9]{1,6})?|1(?:\.0{1,6})?)")


def parse_pipe(text: str) -> Answer:
    """Parse one answer in the pipe format. Never raises."""
    found = _parse(_pipe_advice, text)
    if found.failure and (after := _after_thinking(text)):
        return _parse(_pipe_advice, after, repaired=True)
    return found


PARSERS = {"json": parse_advice, "pipe": parse_pipe}  # by the form of answers


def _pipe_advice(text: str) -> tuple[Advice, str]:
    _check_size(text)
    if len(text.strip().splitlines()) != 1:
        raise FailedError(
            Failure.PARSE, "more than one line, expected ACTION | confidence | reason"
        )
    fields = [field.strip() for field in text.split("|")]
    if len(fields) != 3:
        raise FailedError(
            Failure.PARSE, f"{len(fields) - 1} bars, expected 2: ACTION | confidence | reason"
        )
    action, confidence, reason = fields
    if action in POSITION_ACTIONS:
        raise FailedError(
            Failure.SCHEMA,
            f"action {action} manages a position, of which market advice knows nothing",
        )
    if action not in PIPE_ACTIONS:
        raise FailedError(
            Failure.SCHEMA,
            f"unknown action {_format_detail(action)}, expected {', '.join(PIPE_ACTIONS)}",
        )
    if not _NUMBER.fullmatch(confidence):
        raise FailedError(
            Failure.SCHEMA, f"confidence {_format_detail(confidence)}, expected 0 to 1 as 0.85"
        )
    advice = advice_of(PIPE_ACTIONS[action], float(confidence), PIPE_RISK, PIPE_HORIZON)
    return advice, reason


# What happened, in numbers: the service's counts and durations, and exceptions that were contained.
#
# Every submission is in exactly one count. One thread writes; other threads read snapshots.

_PER_DECADE = 5
EDGES = tuple(
    10.0 ** (step / _PER_DECADE) for step in range(-3 * _PER_DECADE, 2 * _PER_DECADE + 1)
)  # 1 ms .. 100 s


@dataclass
class Histogram:
    """Durations in logarithmic buckets, in seconds.

    `counts[i]` counts durations in (edges[i - 1], edges[i]]. The last bucket counts
    all longer ones.
    """

    edges: tuple[float, ...] = EDGES
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    longest: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.edges) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect.bisect_left(self.edges, seconds)] += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` in seconds; None without durations.

        It is rounded up to its bucket's upper edge, at most the longest duration.
        """
        wanted, seen = share * sum(self.counts), 0
        for count, edge in zip(self.counts, (*self.edges, math.inf), strict=True):
            seen += count
            if count and seen >= wanted:
                return min(edge, self.longest)
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return the durations as JSON values."""
        return {
            "edges_s": list(self.edges),
            "counts": list(self.counts),
            "total_s": self.total,
            "p50_s": self.quantile(0.5),
            "p99_s": self.quantile(0.99),
            "longest_s": self.longest,
        }


@dataclass
class ServiceCounts:
    """Counts since the start.

    The first block counts submissions, the second attempts, the third the service's events.

    deduped: submissions of a known question (waiting, in flight, answered, failed
        recently, or poisoned).
    dropped: submissions dropped because the queue was full, the priority was not finite, or the
        service had stopped.
    late: advice from workers that had been given up, kept in the cache.
    usage_unknown: answers without token counts; their whole reservation counts as spent.
    stopped: attempts that the end of the run cancelled; they are no failures, and their questions
        count as dropped.
    """

    submitted: int = 0
    deduped: int = 0
    cache_hit: int = 0
    done: int = 0
    failed: int = 0
    expired: int = 0
    dropped: int = 0
    poisoned: int = 0

    asked: int = 0
    retried: int = 0
    retries_denied: int = 0
    late: int = 0
    stopped: int = 0
    usage_unknown: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # attempts by kind of failure
    unusable: Counter[str] = field(
        default_factory=Counter
    )  # attempts whose answer cannot be used, by reason
    http: Counter[int] = field(default_factory=Counter)  # attempts by HTTP status
    models: Counter[str] = field(
        default_factory=Counter
    )  # attempts by the model that the server reports
    latency: Histogram = field(default_factory=Histogram)  # seconds per attempt

    negatives: int = 0  # questions poisoned by failures in the cache
    stuck: int = 0  # workers given up because they did not return
    died: int = 0  # worker threads that ended unexpectedly

    def snapshot(self, queued: int, in_flight: int, **more: Any) -> dict[str, Any]:
        """Copy all counts as JSON values, safe to pass to another thread."""
        found: dict[str, Any] = {"queued": queued, "in_flight": in_flight}
        for name, value in vars(self).items():
            if isinstance(value, Counter):
                found[name] = {str(key): count for key, count in value.items()}
            else:
                found[name] = value.snapshot() if isinstance(value, Histogram) else value
        return found | more


LOGGED: Log = logging.getLogger("jaxtrade.advisor").warning  # where no console is given


class ContainedFaults:
    """The contained exceptions of one object.

    `log` receives one line per kind. If `log` raises, the line is counted in `unreported` and
    nothing else happens.
    """

    def __init__(self, log: Log = LOGGED) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.unreported = 0

    def contain(self, where: str, error: BaseException) -> int:
        """Count an exception that is a bug of this package or of an object passed to it.

        The report names the exception's class and place only, because its text might
        contain a secret.
        """
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        name = type(error).__name__
        line = f"advisor: {name} in {where}{place}; contained, please report it"
        return self.trouble(f"{where} {name}", line)

    def trouble(self, kind: str, line: str) -> int:
        """Count a problem of `kind`, report `line` the first time, and return the count."""
        with self._lock:
            self._counts[kind] += 1
            count = self._counts[kind]
        if count == 1:
            self.log(line)
        return count

    def log(self, line: str) -> None:
        """Send one line to the console. An error of the console is counted, not raised."""
        try:
            self._log(line)
        except Exception:
            self.unreported += 1

    def counts(self) -> dict[str, int]:
        """Return the number of occurrences by kind."""
        with self._lock:
            return dict(self._counts)
