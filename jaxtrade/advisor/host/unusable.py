"""Answers that cannot be used: names the reason, counts them, and pauses asking after too many in a
row.

A server that answers every request with prose is healthy, and every answer is paid for. The circuit
breaker, which watches over the endpoint, therefore never opens. This watch does: the first unusable
answer is reported with a remedy, and `advisor.service.unusable_pause_after` (N) of them in a row
pause asking. One probe at a time then tests the server, after pauses that double. A usable answer
ends the pause.

The bound on requests: until the last answer was usable, those in flight and those in the row
together are at most N. A server that never gives a usable answer therefore gets N requests, and the
probes. One that stops giving usable answers gets N more, or those in flight at that moment if they
are more. A request whose worker hangs is given up and counts no longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jaxtrade.advisor.host.breaker import Breaker
from jaxtrade.advisor.host.replies import CUT_OFF
from jaxtrade.advisor.host.schema import is_thinking
from jaxtrade.advisor.host.statistics import Statistics
from jaxtrade.advisor.host.types import Answer, Failure
from jaxtrade.advisor.host.verdict import is_unusable, one_line
from jaxtrade.config.service import ServiceOptions

_MOST_SHOWN = 80  # characters of an answer in a message

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


class UnusableWatch:
    """Watches the answers of one service. All state belongs to the one thread that calls.

    identity: the backend's. doubted: the same run has got unusable answers alone: one more pauses
        asking, and it is not
    reported again.
    """

    def __init__(
        self,
        options: ServiceOptions,
        counts: Statistics,
        identity: Mapping[str, str],
        doubted: bool = False,
    ) -> None:
        self._options, self._counts, self._identity = options, counts, identity
        self._breaker = Breaker(
            1 if doubted else options.unusable_pause_after,
            share=math.inf,
            first=options.breaker_open_s,
            longest=options.breaker_longest_s,
        )
        self._usable = False  # whether the last answer was usable
        self._told_first, self._told_pause = doubted, False

    @property
    def state(self) -> str:
        """closed while asking goes on, open while it pauses, half open while a probe is in
        flight.
        """
        return self._breaker.state

    @property
    def pauses(self) -> int:
        """How often asking has paused."""
        return self._breaker.openings

    @property
    def mode(self) -> str:
        """The pause in words; "" while there is none."""
        if self.state == "closed":
            return ""
        return f"paused after unusable answers: {reasons_text(self._counts.unusable)}"

    def lets(self, now: float, in_flight: int) -> bool:
        """Whether one more request may start beside those in flight."""
        if self.state != "closed":
            return self._breaker.wait(now) <= 0
        return self._usable or self._breaker.in_a_row + in_flight < self._breaker.consecutive

    def begin(self) -> bool:
        """Note that a request starts. Returns whether it is a probe."""
        return self._breaker.begin()

    def count(self, answer: Answer) -> str:
        """Count the answer of one request if it cannot be used. Returns a line about the first one,
        else "".
        """
        if not is_unusable(answer):
            return ""
        reason = reason_of(answer)
        self._counts.unusable[reason] += 1
        if self._told_first:
            return ""
        self._told_first = True
        sample = one_line(answer.raw.strip(), _MOST_SHOWN)
        said = f': "{sample}"' if sample else ""
        return (
            f"an answer cannot be used: {WHAT[reason]} ({one_line(answer.detail, _MOST_SHOWN)}){said}; "
            f"{remedy(reason, self._identity, self._options.completion_tokens)}. Further ones are only counted"
        )

    def end(self, answer: Answer, probe: bool, now: float) -> str:
        """Note the answer to a question. Returns a line about the first pause or its end, else
        "".
        """
        usable = answer.advice is not None
        if usable or is_unusable(answer):
            self._usable = usable
        if usable:
            self._breaker.consecutive = self._options.unusable_pause_after
        change = self._breaker.end(usable or (False if is_unusable(answer) else None), probe, now)
        if change == "opened" and self.pauses == 1:  # later pauses appear in the statistics only
            self._told_pause = True
            return (
                f"{self._breaker.consecutive} answers in a row cannot be used "
                f"({reasons_text(self._counts.unusable)}), so asking pauses"
            )
        if change == "closed" and self._told_pause:
            self._told_pause = False
            return "an answer can be used again; asking goes on"
        return ""


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
