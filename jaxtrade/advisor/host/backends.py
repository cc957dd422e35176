"""Backends that ask no server themselves: several samples of one, recorded answers, and rules.

Several samples of one model: the same question, asked `advisor.options.samples` times, becomes
one answer.

Each sample votes: +1 long, -1 short, 0 flat or without confidence. Over the usable samples,

    direction  = the most frequent vote; flat where two are equally frequent
    confidence = |mean of the votes| where the direction is long or short; the share of flat votes
                 where it is flat and no other vote is as frequent; 0 in a tie
    risk       = the median; horizon = the lower median, in bars

What the model states as its confidence is not used: the confidence is measured, as the agreement of
its samples (Wang et al. 2023, self-consistency). Unusable samples count as missing. If fewer than
half of the samples are usable, there is no answer, only the last failure. Asking ends early where
half can no longer be usable, and at a failure of the endpoint: a question must not multiply the
load of an outage.

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

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low

from jaxtrade.advisor.host.blocks import record_of
from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.prompts import RULE_SLOTS, checked_value
from jaxtrade.advisor.host.replies import is_unusable
from jaxtrade.advisor.host.types import (
    MAX_BYTES,
    PARSERS,
    Advice,
    Answer,
    Backend,
    FailedError,
    Failure,
    Question,
    advice_of,
    sha256_of,
    strict_json,
)
from jaxtrade.config.base import FromZero, Section
from jaxtrade.errors import ConfigError, DataError

_NAMES = {0: "flat", 1: "long", -1: "short"}


@dataclass(eq=False)
class SampledBackend:
    """A backend that makes one answer of `calls` samples of another one.

    The samples are asked one after the other.
    """

    inner: OpenAIBackend
    calls: int
    monotonic: Callable[[], float] = time.monotonic

    @property
    def name(self) -> str:
        return self.inner.name

    def identity(self) -> Mapping[str, str]:
        return {**self.inner.identity(), "samples": str(self.calls)}

    def answer(self, question: Question, deadline: float) -> Answer:
        """Return all samples by `deadline`; each gets an equal share of the time."""
        began = self.monotonic()
        share, parts = max(0.0, deadline - began) / self.calls, list[Answer]()
        failed = list[Answer]()
        # Further samples can make an answer while the endpoint works, and half can still be usable.
        while (
            len(parts) < self.calls
            and all(map(is_unusable, failed))
            and 2 * (self.calls - len(failed)) >= self.calls
        ):
            parts.append(self.inner.answer(question, self.monotonic() + share, len(parts)))
            failed = [part for part in parts if not part.advice]
        return merge_answers(parts, self.calls)._replace(latency=self.monotonic() - began)

    def close(self) -> None:
        self.inner.close()


def calls_of(backend: Backend) -> int:
    """Return the number of requests that one question to this backend takes at most."""
    if isinstance(backend, SampledBackend):
        return backend.calls
    inner = getattr(backend, "inner", None)
    return calls_of(inner) if inner else 1


def combine_samples(samples: Sequence[Advice]) -> Advice:
    """Combine at least one sample into one advice, by the rules above."""
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


def merge_answers(parts: Sequence[Answer], calls: int) -> Answer:
    """Merge the answers to at least one request of `calls` into one.

    Its tokens are theirs in total.
    """
    usable = [part.advice for part in parts if part.advice]
    if 2 * len(usable) >= calls:
        found = next(part for part in parts if part.advice)._replace(
            advice=combine_samples(usable), detail=f"{len(usable)} of {calls} samples usable"
        )
    else:
        # Fewer usable ones than asked for: asking ended at a failure, or all were asked.
        found = next(part for part in reversed(parts) if not part.advice)
    texts = [part.raw for part in parts if part.raw]
    return found._replace(
        raw=json.dumps(texts)[:MAX_BYTES] if texts else "",
        reason="",
        parts=tuple(parts),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        completion_tokens=sum(part.completion_tokens for part in parts),
    )


STRONG, WEAK = 30.0, 20.0  # ADX
OVERBOUGHT, OVERSOLD = 70.0, 30.0  # RSI
CONFIDENCE = {"strong": 0.8, "moderate": 0.6, "none": 0.5}


def rule_advice(slots: Mapping[str, float], horizon: int) -> Advice:
    """Return the rules' advice from raw values (units in `prompts.RAW_SLOTS`).

    Raises KeyError for a missing value.
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


@dataclass(eq=False)
class RuleBackend:
    """Answers from the raw slots of a question.

    A slot that is missing or outside its raw range is a failure.
    """

    name = "rules"
    horizon: int = 30

    def identity(self) -> Mapping[str, str]:
        return {
            "kind": "rules",
            "horizon": str(self.horizon),
            "rules": f"adx {WEAK:g} {STRONG:g} rsi {OVERSOLD:g} {OVERBOUGHT:g}",
        }

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline  # takes microseconds
        try:
            for name in RULE_SLOTS:
                checked_value(f"bar {question.bar}", name, question.slots[name])
            return Answer(rule_advice(question.slots, self.horizon), model=self.name)
        except KeyError as missing:
            detail = f"bar {question.bar}: no raw slot {missing}"
        except DataError as error:
            detail = str(error)
        return Answer(None, Failure.SCHEMA, detail)

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""


class RecordedRow(Section, frozen=True):
    """The record of one bar, a line of a file."""

    bar: FromZero
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
        self._rows, self._format = dict(sorted(rows.items())), answer_format
        self._digest = sha256_of(
            json.dumps([[*row.model_dump().values()] for row in self._rows.values()])
        )

    @property
    def bars(self) -> list[int]:
        """Bars with a row, ascending."""
        return list(self._rows)

    def identity(self) -> Mapping[str, str]:
        return {"kind": "recorded", "rows": self._digest, "answer_format": self._format}

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline  # a look-up takes no time
        row = self._rows.get(question.bar)
        if not row:
            return Answer(None, Failure.EMPTY, f"nothing recorded for bar {question.bar}")
        for name in ("time", "symbol"):
            if (recorded := getattr(row, name)) and recorded != getattr(question, name):
                detail = (
                    f"bar {question.bar} was recorded for {name} {ascii(recorded)[:40]}, "
                    f"the question has {getattr(question, name)}"
                )
                return Answer(None, Failure.SCHEMA, detail, raw=row.raw)
        return PARSERS[self._format](row.raw)._replace(raw=row.raw, model=row.model)

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""


def read_recorded(path: Path) -> dict[int, RecordedRow]:
    """Read rows of a JSONL file by bar.

    Raises DataError, with file and line, for a row that is not valid.
    """
    try:
        return read_rows(str(path), path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as recorded answers ({error})") from None


def read_rows(name: str, lines: Iterable[str]) -> dict[int, RecordedRow]:
    """Read rows like `read_recorded`, from lines of text.

    Args:
        name: stands for the file in error messages.
    """
    rows: dict[int, RecordedRow] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _row(f"{name}:{number}", line)
        if row.bar in rows:
            raise DataError(f"{name}:{number}: bar {row.bar} has a row already")
        rows[row.bar] = row
    if not rows:
        raise DataError(f"{name}: no rows; expected one JSON object per line with 'bar' and 'raw'")
    return rows


def _row(where: str, line: str) -> RecordedRow:
    try:
        # Escapes make a JSON string longer than its text.
        return record_of(RecordedRow, strict_json(line, 8 * MAX_BYTES), where)
    except FailedError as failed:
        raise DataError(f"{where}: {failed}") from None
