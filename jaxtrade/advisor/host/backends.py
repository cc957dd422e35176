"""Backends that ask no server themselves: several samples of one, recorded answers, and rules.

Several samples of one model: the same question, asked `advisor.options.samples` times, becomes
one answer.

Each sample votes: +1 long, -1 short, 0 flat or without confidence. Over the usable samples,

    direction  = the most frequent vote; flat where two are equally frequent
    confidence = |mean of the votes| where the direction is long or short; the share of flat votes where it is flat and
                 no other vote is as frequent; 0 in a tie
    risk       = the median; horizon = the lower median, in bars

What the model states as its confidence is not used: the confidence is measured, as the agreement of
its samples (Wang et al. 2023, self-consistency). Unusable samples count as missing. If fewer than
half of the samples are usable, there is no answer, only the last failure. Asking ends early where
half can no longer be usable, and at a failure of the
endpoint: a question must not multiply the load of an outage.

Answers without a model: recorded ones, and the guides of the prompt as code.

Records come from a mapping of bars or a JSONL file, and are parsed under the strict schema. One row
is one bar: `{"bar": 17, "time": "2024-03-01T10:31:00-05:00", "symbol": "ES", "raw": "..."}`, where
`raw` is the model's text as received. A text that does not parse is a valid record: the answer is
then that bar's failure. `time` and `symbol` are optional. If one is given and differs from the
question's, the row belongs to other data and the answer is a failure.

A language model must beat the rules to be worth its calls. ADX above 30 is a strong trend, 20 to 30
a moderate one, below 20 none. Momentum and the side of VWAP must agree. RSI above 70 forbids
buying, below 30 selling. No rule concerns the account (losses, win rate, open profit): market
advice does not see it, and action masks enforce its limits. The prompt states no confidences; those
here are our own choice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, median_low
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrade.advisor.host.prompts import RAW_SLOTS
from jaxtrade.advisor.host.replies import is_unusable
from jaxtrade.advisor.host.types import (
    MAX_BYTES,
    Advice,
    Answer,
    Backend,
    Failure,
    Question,
    RefusedError,
    advice_of,
    parse_advice,
    parse_pipe,
    strict_json,
)
from jaxtrade.errors import ConfigError, DataError

if TYPE_CHECKING:
    from jaxtrade.advisor.host.openai import OpenAIBackend

MOST = 32
_NAMES = {0: "flat", 1: "long", -1: "short"}


class Sampled:
    """A backend that makes one answer of `calls` samples of another one, asked one after the
    other.
    """

    def __init__(
        self, inner: OpenAIBackend, calls: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner, self.calls, self._monotonic = inner, calls, monotonic

    @property
    def name(self) -> str:
        return self._inner.name

    def identity(self) -> Mapping[str, str]:
        return {**self._inner.identity(), "samples": str(self.calls)}

    def answer(self, question: Question, deadline: float) -> Answer:
        """All samples by `deadline`; each gets an equal share of the time."""
        began = self._monotonic()
        share, parts = max(0.0, deadline - began) / self.calls, list[Answer]()
        failed = list[Answer]()
        # Further samples can make an answer while the endpoint works, and half can still be usable.
        while (
            len(parts) < self.calls
            and all(map(is_unusable, failed))
            and 2 * (self.calls - len(failed)) >= self.calls
        ):
            parts.append(self._inner.sample(question, self._monotonic() + share, len(parts)))
            failed = [part for part in parts if part.advice is None]
        return merged(parts, self.calls)._replace(latency=self._monotonic() - began)

    def close(self) -> None:
        self._inner.close()


def calls_of(backend: Backend) -> int:
    """Requests that one question to this backend takes at most."""
    inner = getattr(backend, "inner", None)
    return (
        backend.calls if isinstance(backend, Sampled) else 1 if inner is None else calls_of(inner)
    )


def combined(samples: Sequence[Advice]) -> Advice:
    """One advice from at least one sample, by the rules above."""
    votes = [advice.direction for advice in samples]
    counts = Counter(votes).most_common()
    tied = len(counts) > 1 and counts[0][1] == counts[1][1]
    direction = 0 if tied else counts[0][0]
    agreement = abs(sum(votes)) / len(votes) if direction else counts[0][1] / len(votes)
    return advice_of(
        _NAMES[direction],
        0.0 if tied else agreement,
        median(advice.risk for advice in samples),
        median_low([advice.horizon for advice in samples]),
    )


def merged(parts: Sequence[Answer], calls: int) -> Answer:
    """The answer that the answers to at least one request of `calls` make. Its tokens are theirs in
    total.
    """
    usable = [part.advice for part in parts if part.advice is not None]
    failed = next((part for part in reversed(parts) if part.advice is None), None)
    if 2 * len(usable) >= calls:
        found = next(part for part in parts if part.advice is not None)._replace(
            advice=combined(usable), detail=f"{len(usable)} of {calls} samples usable"
        )
    else:
        assert (
            failed is not None
        )  # fewer usable ones than asked for: asking ended at a failure, or all were asked
        found = failed
    raw = (
        json.dumps([part.raw for part in parts if part.raw])
        if any(part.raw for part in parts)
        else ""
    )
    return found._replace(
        raw=raw[:MAX_BYTES],
        parts=tuple(parts),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        completion_tokens=sum(part.completion_tokens for part in parts),
    )


def check_samples(options: Mapping[str, Any]) -> int:
    """The number of samples that the options of a server ask for; 1 by default. Raises
    ConfigError.
    """
    samples, temperature = options.get("samples", 1), options.get("temperature", 0.0)
    if type(samples) is not int or not 1 <= samples <= MOST:
        raise ConfigError(
            f"advisor.options.samples = {samples!r}: expected a whole number from 1 (one answer per "
            f"question) to {MOST}"
        )
    if samples > 1 and temperature == 0:
        raise ConfigError(
            f"advisor.options.samples = {samples}: needs random answers, and advisor.options.temperature "
            "= 0 gives the same one each time; set advisor.options.temperature=0.7, or null for the "
            "server's own"
        )
    return samples


STRONG, WEAK = 30.0, 20.0  # ADX
OVERBOUGHT, OVERSOLD = 70.0, 30.0  # RSI
CONFIDENCE = {"strong": 0.8, "moderate": 0.6, "none": 0.5}
RULE_SLOTS = ("adx", "roc", "price_to_vwap", "rsi")


def rule_advice(slots: Mapping[str, float], horizon: int) -> Advice:
    """The rules' advice from raw values (units in `prompts.RAW_SLOTS`). Raises KeyError for a missing
    value.
    """
    adx, momentum, distance, rsi = (slots[name] for name in RULE_SLOTS)
    strength = "strong" if adx > STRONG else "moderate" if adx >= WEAK else "none"
    direction = "flat"
    if strength != "none" and momentum > 0 and distance > 0 and rsi <= OVERBOUGHT:
        direction = "long"
    if strength != "none" and momentum < 0 and distance < 0 and rsi >= OVERSOLD:
        direction = "short"
    confidence = CONFIDENCE["none" if direction == "flat" else strength]
    return advice_of(direction, confidence, 1.0 - confidence, horizon)


class RuleBackend:
    """Answers from the raw slots of a question. A slot that is missing or outside its raw range is
    a failure.
    """

    name = "rules"

    def __init__(self, horizon: int = 30) -> None:
        self._horizon = horizon

    def identity(self) -> Mapping[str, str]:
        return {
            "kind": "rules",
            "horizon": str(self._horizon),
            "rules": f"adx {WEAK:g} {STRONG:g} rsi {OVERSOLD:g} {OVERBOUGHT:g}",
        }

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline  # takes microseconds
        for name in RULE_SLOTS:
            if name not in question.slots:
                return Answer(None, Failure.SCHEMA, f"bar {question.bar}: no raw slot {name!r}")
            low, high = RAW_SLOTS[name][:2]
            if not low <= question.slots[name] <= high:  # also true for NaN
                return Answer(
                    None,
                    Failure.SCHEMA,
                    f"bar {question.bar}: raw slot {name!r} is "
                    f"{question.slots[name]:g}, expected {low:g} to {high:g}",
                )
        return Answer(rule_advice(question.slots, self._horizon), model=self.name)

    def close(self) -> None:
        """Nothing to close."""


PARSERS = {"json": parse_advice, "pipe": parse_pipe}
_KEYS = {"bar", "time", "symbol", "raw", "model"}


class RecordedRow(NamedTuple):
    """The record of one bar. Fields that the record lacks are empty strings."""

    raw: str
    time: str = ""
    symbol: str = ""
    model: str = ""


class RecordedBackend:
    """Returns the recorded answer of a bar, and the failure EMPTY for bars without a record.

    answer_format: `json` or `pipe`. Raises ConfigError for another format.
    """

    name = "recorded"

    def __init__(self, rows: Mapping[int, RecordedRow], answer_format: str = "json") -> None:
        if answer_format not in PARSERS:
            raise ConfigError(
                f"advisor answer_format {answer_format!r}: expected {' or '.join(PARSERS)}"
            )
        self._rows, self._format = dict(rows), answer_format
        text = json.dumps([[bar, *row] for bar, row in sorted(self._rows.items())])
        self._digest = hashlib.sha256(text.encode()).hexdigest()

    @property
    def bars(self) -> list[int]:
        """Bars with a row, ascending."""
        return sorted(self._rows)

    def identity(self) -> Mapping[str, str]:
        return {"kind": "recorded", "rows": self._digest, "answer_format": self._format}

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline  # a look-up takes no time
        row = self._rows.get(question.bar)
        if row is None:
            return Answer(None, Failure.EMPTY, f"nothing recorded for bar {question.bar}")
        for name in ("time", "symbol"):
            if (recorded := getattr(row, name)) and recorded != getattr(question, name):
                detail = (
                    f"bar {question.bar} was recorded for {name} {ascii(recorded)[:40]}, "
                    f"the question has {getattr(question, name)}"
                )
                return Answer(None, Failure.SCHEMA, detail, raw=row.raw)
        parsed = PARSERS[self._format](row.raw)
        detail = "repaired" if parsed.repaired and not parsed.failure else parsed.detail
        return Answer(parsed.advice, parsed.failure, detail, raw=row.raw, model=row.model)

    def close(self) -> None:
        """Nothing to close."""


def read_recorded(path: Path) -> dict[int, RecordedRow]:
    """Rows of a JSONL file by bar. Raises DataError, with file and line, for a row that is not
    valid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as recorded answers ({error})") from None
    return read_rows(str(path), lines)


def read_rows(name: str, lines: Iterable[str]) -> dict[int, RecordedRow]:
    """Like `read_recorded`, for lines of text. name: stands for the file in error messages."""
    rows: dict[int, RecordedRow] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        bar, row = _row(f"{name}:{number}", line)
        if bar in rows:
            raise DataError(f"{name}:{number}: bar {bar} has a row already")
        rows[bar] = row
    if not rows:
        raise DataError(f"{name}: no rows; expected one JSON object per line with 'bar' and 'raw'")
    return rows


def _row(where: str, line: str) -> tuple[int, RecordedRow]:
    try:
        value: Any = strict_json(
            line, 8 * MAX_BYTES
        )  # escapes make a JSON string longer than its text
    except RefusedError as refused:
        raise DataError(f"{where}: {refused}") from None
    if not isinstance(value, dict) or not {"bar", "raw"} <= set(value) or set(value) - _KEYS:
        raise DataError(
            f"{where}: expected an object with 'bar' and 'raw', and of {', '.join(sorted(_KEYS))} only"
        )
    if type(value["bar"]) is not int or value["bar"] < 0:
        raise DataError(f"{where}: bar {value['bar']!r}, expected an integer from 0 on")
    texts = {key: text for key, text in value.items() if key != "bar"}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str)]:
        raise DataError(f"{where}: {wrong[0]} is no text")
    return value["bar"], RecordedRow(**texts)
