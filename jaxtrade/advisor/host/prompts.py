"""Prompts from named raw values of one market bar: numbers and a validated symbol, no free text, no account.

A template is a constant: its text, the slots it shows and how. `prompt_version` is its name and the hash of all that,
so a changed word is another version in caches and journals. A prompt is a function of nothing but (symbol, time, slots,
template): account state is not among them, so that all environments share one question per bar.

The old advisor printed a z-scored slot as ADX, RSI -0.5, price 0 and the time 00:00, each a default that stood in for
what was not found. Here there are no defaults, values are looked up by name, and each has the range of its raw unit:
`check_columns` tells normalised columns from raw ones before the first question, `make_question` checks each bar.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from types import MappingProxyType

from jaxtrade.advisor.host.names import nearest
from jaxtrade.advisor.host.slots import RAW_SLOTS, checked_value, known_slot
from jaxtrade.advisor.host.types import Question
from jaxtrade.errors import ConfigError, DataError

_SYMBOL = re.compile(r"[A-Z0-9]{1,12}")
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})")


@dataclass(frozen=True)
class Template:
    """The text of a prompt. Its {fields} are `symbol`, `time` and names in RAW_SLOTS. answer: `json` or `pipe`."""

    name: str
    text: str
    answer: str = "json"

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Field names in the order of their first use."""
        return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.text) if name is not None))

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names of the raw slots it shows."""
        return tuple(name for name in self.fields if name not in ("symbol", "time"))

    @cached_property
    def version(self) -> str:
        """`name:hash`, of everything that shapes the prompt."""
        shape = [self.name, self.text, self.answer, {name: RAW_SLOTS[name] for name in self.slots}]
        return f"{self.name}:{hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]}"


_RULES = """\
You advise on the direction of one futures or currency market over the next bars. You see one bar's indicators, nothing
about any account or position, and you answer for the market alone.

Guides:
- ADX above 30 is a strong trend: go with it. 20 to 30 is moderate: lower confidence. Below 20 is none: prefer FLAT.
- 10-bar change and distance from VWAP both positive speak for LONG, both negative for SHORT; if they differ, FLAT.
- RSI above 70 is overbought: avoid LONG. Below 30 is oversold: avoid SHORT.

"""
# The part that is the same for every bar comes first, so that servers can keep it.
_PLACE = """
Market: {symbol}
Bar close: {time}
Price: {close}
ATR: {atr} (same unit as the price)
"""
_INDICES = """\
ADX: {adx} (+DI {plus_di}, -DI {minus_di})
RSI: {rsi}
10-bar change: {roc} (share of the price)
"""
_VALUES = _INDICES + """\
Distance from VWAP: {price_to_vwap} (share of the price)
"""
_JSON = """\
Answer with one JSON object and nothing else, with exactly these keys:
"v": 1, "direction": "long", "short" or "flat", "confidence": 0 to 1, "risk": 0 to 1, "horizon_bars": 1 to 390,
"reason": at most 200 characters.
"""
_PIPE = """\
Answer with one line and nothing else: ACTION | confidence | reason
ACTION is BUY, SELL or HOLD; confidence is a number from 0 to 1; the reason is brief.
"""
_NO_VWAP = _RULES.replace(
    "10-bar change and distance from VWAP both positive speak for LONG, both negative for SHORT; if they differ, FLAT.",
    "10-bar change: positive speaks for LONG, negative for SHORT.")
_OLD_RULES = _RULES.replace("FLAT", "HOLD").replace("LONG", "BUY").replace("SHORT", "SELL")

# `no_volume` is for bars without it, which have no VWAP. `anonymous` shows neither date nor price level: what is left
# of a model's skill there is no memory of that day.
TEMPLATES: Mapping[str, Template] = MappingProxyType({
    "v1": Template("v1", _RULES + _JSON + _PLACE + _VALUES),
    "no_volume": Template("no_volume", _NO_VWAP + _JSON + _PLACE + _INDICES),
    "anonymous": Template("anonymous", _RULES + _JSON + "\n" + _VALUES),
    "pipe": Template("pipe", _OLD_RULES + _PIPE + _PLACE + _VALUES, answer="pipe"),
})


def find_template(name: str) -> Template:
    """A template by name. Raises ConfigError with the nearest one."""
    if name not in TEMPLATES:
        raise ConfigError(f"prompt template {name!r}: unknown{nearest(name, TEMPLATES)}")
    return TEMPLATES[name]


def make_question(
    bar: int, symbol: str, time: str, slots: Mapping[str, float], template: Template = TEMPLATES["v1"]
) -> Question:
    """The question about one bar.

    Args:
        symbol: letters and digits, at most 12. time: full ISO stamp of the bar's close with its offset.
        slots: raw values by name, at least those that the template shows.
    Raises ConfigError for an unknown or missing slot name, DataError for a value, symbol or stamp that cannot be.
    """
    _check_symbol(symbol)
    _check_stamp(time)
    for name in slots:
        known_slot(name)
    if missing := [name for name in template.slots if name not in slots]:
        raise ConfigError(f"bar {bar}: no raw slot {missing[0]!r}, which prompt {template.name!r} shows; it needs "
                          f"{', '.join(template.slots)}")
    values = {name: checked_value(f"bar {bar}", name, value) for name, value in slots.items()}
    shown = {name: _shown(values[name], RAW_SLOTS[name].decimals) for name in template.slots}
    prompt = template.text.format_map({"symbol": symbol, "time": time, **shown})
    return Question(bar, symbol, time, MappingProxyType(values), prompt, template.version)


def _shown(value: float, decimals: int) -> str:
    """Fixed decimals, without trailing zeros past the first, and without a negative zero."""
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"
    whole, _, part = text.partition(".")
    return f"{whole}.{part.rstrip('0') or '0'}"


def _check_symbol(symbol: str) -> None:
    if not _SYMBOL.fullmatch(symbol):
        raise DataError(f"symbol {ascii(symbol)[:40]}: expected 1 to 12 capital letters and digits")


def _check_stamp(time: str) -> None:
    try:
        if not _STAMP.fullmatch(time):
            raise ValueError
        datetime.datetime.fromisoformat(time)
    except ValueError:
        raise DataError(f"time {ascii(time)[:40]}: expected a bar's close as 2024-03-01T10:31:00-05:00") from None
