"""Several samples of one model: the same question, asked `advisor.options.samples` times, becomes
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
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median, median_low
from typing import Any, Protocol

from jaxtrade.advisor.host.schema import MAX_BYTES, advice_of
from jaxtrade.advisor.host.types import Advice, Answer, Backend, Question
from jaxtrade.advisor.host.verdict import is_unusable
from jaxtrade.errors import ConfigError

MOST = 32
_NAMES = {0: "flat", 1: "long", -1: "short"}


class Sampler(Backend, Protocol):
    """A backend whose answers are random samples."""

    def sample(self, question: Question, deadline: float, number: int) -> Answer:
        """Sample `number` (from 0) of the answer, as `Backend.answer`."""
        ...


class Sampled:
    """A backend that makes one answer of `calls` samples of another one, asked one after the
    other.
    """

    def __init__(
        self, inner: Sampler, calls: int, monotonic: Callable[[], float] = time.monotonic
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
        while len(parts) < self.calls and is_worth_more(parts, self.calls):
            parts.append(self._inner.sample(question, self._monotonic() + share, len(parts)))
        return merged(parts, self.calls)._replace(latency=self._monotonic() - began)

    def close(self) -> None:
        self._inner.close()


def calls_of(backend: Backend) -> int:
    """Requests that one question to this backend takes at most."""
    inner = getattr(backend, "inner", None)
    return (
        backend.calls if isinstance(backend, Sampled) else 1 if inner is None else calls_of(inner)
    )


def is_worth_more(parts: Sequence[Answer], calls: int) -> bool:
    """Whether further samples can make an answer: the endpoint works, and half of all `calls` can
    still be usable.
    """
    failed = [part for part in parts if part.advice is None]
    return all(map(is_unusable, failed)) and 2 * (calls - len(failed)) >= calls


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
