"""The pipe format, `ACTION | confidence | reason`, parsed as strictly as the JSON schema.

A lenient parser would turn an unknown action into HOLD, or read any number in the text as the
confidence. Here an unknown action, a missing `|`, "85%" and a number in another place are failures.
Actions that manage a position are failures too: market advice knows no position. The format has
neither risk nor horizon; both get the fixed values below. What a reasoning model writes up to its
last `</think>` is left out first; a long reason is no failure.
"""

from __future__ import annotations

import re

from jaxtrade.advisor.host.schema import (
    MAX_BYTES,
    MAX_REASON,
    Parsed,
    RefusedError,
    advice_of,
    after_thinking,
)
from jaxtrade.advisor.host.types import Advice, Failure

PIPE_ACTIONS = {"HOLD": "flat", "BUY": "long", "SELL": "short"}
POSITION_ACTIONS = ("MOVE_TO_BE", "ENABLE_TRAIL", "DISABLE_TRAIL")
PIPE_RISK = 0.5
PIPE_HORIZON = 30  # bars
_NUMBER = re.compile(r"(?:0(?:\.[0-9]{1,6})?|1(?:\.0{1,6})?)")


def parse_pipe(text: str) -> Parsed:
    """Parse one answer in the pipe format. Never raises."""
    found = _parsed(text, repaired=False)
    after = None if found.advice else after_thinking(text)
    return found if after is None else _parsed(after, repaired=True)


def _parsed(text: str, repaired: bool) -> Parsed:
    try:
        return Parsed(
            _advice(text), repaired=repaired, reason=text.rpartition("|")[2].strip()[:MAX_REASON]
        )
    except RefusedError as refused:
        return Parsed(None, refused.failure, str(refused), repaired)


def _advice(text: str) -> Advice:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise RefusedError(Failure.TOO_LARGE, f"text above {MAX_BYTES} bytes")
    line = text.strip()
    if not line:
        raise RefusedError(Failure.EMPTY, "empty text")
    if len(line.splitlines()) != 1:
        raise RefusedError(
            Failure.PARSE, "more than one line, expected ACTION | confidence | reason"
        )
    fields = [field.strip() for field in line.split("|")]
    if len(fields) != 3:
        raise RefusedError(
            Failure.PARSE, f"{len(fields) - 1} bars, expected 2: ACTION | confidence | reason"
        )
    action, confidence, _ = fields
    if action in POSITION_ACTIONS:
        raise RefusedError(
            Failure.SCHEMA,
            f"action {action} manages a position, of which market advice knows nothing",
        )
    if action not in PIPE_ACTIONS:
        raise RefusedError(
            Failure.SCHEMA,
            f"unknown action {ascii(action)[:40]}, expected {', '.join(PIPE_ACTIONS)}",
        )
    if not _NUMBER.fullmatch(confidence):
        raise RefusedError(
            Failure.SCHEMA, f"confidence {ascii(confidence)[:40]}, expected 0 to 1 as 0.85"
        )
    return advice_of(PIPE_ACTIONS[action], float(confidence), PIPE_RISK, PIPE_HORIZON)
