"""Builds prompts from named raw values of one market bar, a validated symbol, and blocks of text.

A template has a text, the slots and blocks that it shows, and their format. Its version is its name
and a hash of all these, so changing one word gives another version in caches and journals. A prompt
depends on (symbol, time, slots, blocks, template) only. It contains no state of an account, so all
environments share one question per bar. The four templates here show one bar's indicators and no
blocks; `host.context` has those with blocks.

There are no default values: a default in place of a missing value would put a false number into the
prompt. Values are looked up by name and checked against the range of their raw unit.
`slots.check_columns` detects normalised columns before the first question, and `make_question`
checks each bar.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from string import Formatter
from types import MappingProxyType
from typing import Any

from jaxtrade.advisor.host.names import nearest
from jaxtrade.advisor.host.slots import RAW_SLOTS, checked_value, known_slot
from jaxtrade.advisor.host.types import Question
from jaxtrade.errors import ConfigError, DataError

_SYMBOL = re.compile(r"[A-Z0-9]{1,12}")
_STAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True)
class Template:
    """A prompt template. The {fields} of its text are `symbol`, `time`, names in RAW_SLOTS, and
    names of blocks.

    answer: the format that it asks for, `json` or `pipe`. shape: by name of each block, everything
        that shapes its text
    beside the market: words, formats, keys, hashes of files. It is part of the version.
    """

    name: str
    text: str
    answer: str = "json"
    shape: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Field names in the order of their first use."""
        return tuple(
            dict.fromkeys(
                name for _, name, _, _ in Formatter().parse(self.text) if name is not None
            )
        )

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names of the raw slots that the prompt shows."""
        return tuple(name for name in self.fields if name not in ("symbol", "time", *self.shape))

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks that the prompt shows."""
        return tuple(name for name in self.fields if name in self.shape)

    @cached_property
    def version(self) -> str:
        """`name:hash`, where the hash covers everything that shapes the prompt."""
        shape = [
            self.name,
            self.text,
            self.answer,
            {name: RAW_SLOTS[name] for name in self.slots},
            *([dict(self.shape)] if self.shape else []),
        ]
        return f"{self.name}:{hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]}"


RULES = """\
You advise on the direction of one futures or currency market over the next bars. You see one bar's indicators, nothing
about any account or position, and you answer for the market alone.

Guides:
- ADX above 30 is a strong trend: go with it. 20 to 30 is moderate: lower confidence. Below 20 is none: prefer FLAT.
- 10-bar change and distance from VWAP both positive speak for LONG, both negative for SHORT; if they differ, FLAT.
- RSI above 70 is overbought: avoid LONG. Below 30 is oversold: avoid SHORT.

"""
# The part that is the same for every bar comes first, so that servers can cache it as a common
# prefix.
PLACE = """
Market: {symbol}
Bar close: {time}
Price: {close}
ATR: {atr} (same unit as the price)
"""
INDICES = """\
ADX: {adx} (+DI {plus_di}, -DI {minus_di})
RSI: {rsi}
10-bar change: {roc} (share of the price)
"""
VALUES = (
    INDICES
    + """\
Distance from VWAP: {price_to_vwap} (share of the price)
"""
)
JSON_FORM = """\
Answer with one JSON object and nothing else, with exactly these keys:
"v": 1, "direction": "long", "short" or "flat", "confidence": 0 to 1, "risk": 0 to 1, "horizon_bars": 1 to 390,
"reason": at most 200 characters.
"""
PIPE_FORM = """\
Answer with one line and nothing else: ACTION | confidence | reason
ACTION is BUY, SELL or HOLD; confidence is a number from 0 to 1; the reason is brief.
"""
NO_VWAP = RULES.replace(
    "10-bar change and distance from VWAP both positive speak for LONG, both negative for SHORT; if they differ, FLAT.",
    "10-bar change: positive speaks for LONG, negative for SHORT.",
)
_OLD_RULES = RULES.replace("FLAT", "HOLD").replace("LONG", "BUY").replace("SHORT", "SELL")

# `no_volume` is for bars without volume, which have no VWAP. `anonymous` shows neither date nor
# price level, so a model cannot answer from its memory of that day: the skill that remains comes
# from the indicators.
_V1 = Template("v1", RULES + JSON_FORM + PLACE + VALUES)
TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "v1": _V1,
        "no_volume": Template("no_volume", NO_VWAP + JSON_FORM + PLACE + INDICES),
        "anonymous": Template("anonymous", RULES + JSON_FORM + "\n" + VALUES),
        "pipe": Template("pipe", _OLD_RULES + PIPE_FORM + PLACE + VALUES, answer="pipe"),
        "bar": _V1,  # its name beside `window` and `desk`; the version is that of v1, so answers are shared
    }
)
CONTEXT_NAMES = ("window", "desk")  # built in `host.context.templates`


def find_template(name: str) -> Template:
    """The template of a name, of those without blocks. Raises ConfigError, with the nearest known
    name, for an unknown one."""
    if name not in TEMPLATES:
        raise ConfigError(
            f"prompt template {name!r}: unknown{nearest(name, (*TEMPLATES, *CONTEXT_NAMES))}"
        )
    return TEMPLATES[name]


def make_question(
    bar: int,
    symbol: str,
    time: str,
    slots: Mapping[str, float],
    template: Template = TEMPLATES["v1"],
    blocks: Mapping[str, str] = MappingProxyType({}),
) -> Question:
    """The question about one bar.

    Args:
        symbol: 1 to 12 capital letters and digits. time: full ISO time stamp of the bar's close
            with its UTC offset.
        slots: raw values by name, at least those that the template shows. blocks: the texts of the
            blocks that it shows, by name.
    Raises ConfigError for an unknown or missing slot name, DataError for an invalid value, symbol
    or time stamp.
    """
    _check_symbol(symbol)
    _check_stamp(time)
    for name in slots:
        known_slot(name)
    if missing := [name for name in template.slots if name not in slots]:
        raise ConfigError(
            f"bar {bar}: no raw slot {missing[0]!r}, which prompt {template.name!r} shows; it needs "
            f"{', '.join(template.slots)}"
        )
    values = {name: checked_value(f"bar {bar}", name, value) for name, value in slots.items()}
    shown = {name: _shown(values[name], RAW_SLOTS[name].decimals) for name in template.slots}
    texts = {name: blocks[name] for name in template.blocks}
    prompt = template.text.format_map({"symbol": symbol, "time": time, **shown, **texts})
    return Question(bar, symbol, time, MappingProxyType(values), prompt, template.version)


def _shown(value: float, decimals: int) -> str:
    """`value` with at most `decimals` decimals. Trailing zeros are dropped except for the first
    decimal, and a negative zero loses its sign."""
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
        raise DataError(
            f"time {ascii(time)[:40]}: expected a bar's close as 2024-03-01T10:31:00-05:00"
        ) from None
