"""Builds prompts from named raw values of one market bar, a validated symbol, and blocks of text.

A template has a text, the slots and blocks that it shows, and their format. Its version is its name
and a hash of all these, so changing one word gives another version in caches and journals. A prompt
depends on (symbol, time, slots, blocks, template) only. It contains no state of an account, so all
environments share one question per bar. The four templates here show one bar's indicators and no
blocks; `window` and `desk` show what came before it, `desk` also rules and the record.

There are no default values: a default in place of a missing value would put a false number into the
prompt. Values are looked up by name and checked against the range of their raw unit.
Names are those of the market's features. Values are never normalised. `check_columns` detects
normalised columns before the first question, and `make_question` checks each bar.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from string import Formatter
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host.types import Question, nearest
from jaxtrade.errors import ConfigError, DataError


class RawSlot(NamedTuple):
    """A raw value at a bar's close: its inclusive range, the decimals that prompts show, and a
    description.
    """

    low: float
    high: float
    decimals: int
    about: str


_TINY, _HUGE = 1e-9, 1e9  # bounds of prices in the market's quote unit: positive and finite
RAW_SLOTS: Mapping[str, RawSlot] = MappingProxyType(
    {
        "close": RawSlot(
            _TINY, _HUGE, 5, "last price, in the market's quote unit (points, dollars), not ticks"
        ),
        "vwap": RawSlot(_TINY, _HUGE, 5, "volume-weighted average price of the day, same unit"),
        "atr": RawSlot(0.0, _HUGE, 5, "average true range of 14 bars, same unit"),
        "adx": RawSlot(0.0, 100.0, 1, "average directional index, 0 to 100"),
        "plus_di": RawSlot(0.0, 100.0, 1, "positive directional indicator, 0 to 100"),
        "minus_di": RawSlot(0.0, 100.0, 1, "negative directional indicator, 0 to 100"),
        "rsi": RawSlot(0.0, 100.0, 1, "relative strength index of 14 bars, 0 to 100"),
        "roc": RawSlot(-1.0, 10.0, 6, "close / close 10 bars ago - 1"),
        "price_to_vwap": RawSlot(-1.0, 10.0, 6, "close / vwap - 1"),
        "efficiency_ratio": RawSlot(0.0, _HUGE, 3, "net move of 20 bars / the way travelled"),
        "price_change_60min": RawSlot(-1.0, 10.0, 6, "close / close 60 bars ago - 1"),
        "volume_ratio_20min": RawSlot(0.0, _HUGE, 2, "volume / mean volume of the last 20 bars"),
    }
)


def check_columns(columns: Mapping[str, Iterable[float]]) -> None:
    """Check that each column holds values in its slot's raw unit.

    NaN (warm-up) is allowed, because such bars are not asked about. A normalised ADX or RSI column
    of a few bars may pass, but not one of a whole session: z-scores fall below 0, and raw
    percentages exceed 1 somewhere.

    Raises DataError where a column is not in its raw unit, ConfigError for an unknown name.
    """
    for name, values in columns.items():
        slot = known_slot(name)
        found = [float(value) for value in values if not math.isnan(value)]
        for value in found:
            checked_value("column", name, value)
        if slot.high == 100.0 and len(found) >= 30 and 0.0 < max(found) <= 1.0:
            raise DataError(
                f"raw slot {name!r}: no value above {max(found):g} in {len(found)} bars; expected 0 to "
                "100, not a share: pass raw values"
            )


def known_slot(name: str) -> RawSlot:
    """The slot of a name. Raises ConfigError, with the nearest known name, for an unknown one."""
    if name not in RAW_SLOTS:
        raise ConfigError(f"raw slot {name[:60]!r}: unknown{nearest(name, RAW_SLOTS)}")
    return RAW_SLOTS[name]


def checked_value(where: str, name: str, value: float) -> float:
    """`value` of a known slot as a float. Raises DataError where it is not finite or outside its
    raw range.
    """
    slot, value = RAW_SLOTS[name], float(value)
    if not math.isfinite(value):
        raise DataError(
            f"{where}: raw slot {name!r} is {value}; ask only about bars past the warm-up"
        )
    if not slot.low <= value <= slot.high:
        raise DataError(
            f"{where}: raw slot {name!r} is {value:g}, expected {slot.low:g} to {slot.high:g} "
            f"({slot.about}); pass raw values, never normalised ones"
        )
    return value


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
CONTEXT_NAMES = ("window", "desk")  # see `context_text`


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


_SIGHT = "You see one bar's indicators, nothing\nabout any account or position, and you answer for the market alone."
_SEES = {
    "window": "You see one bar's indicators\nand what came before it, nothing about any account or position, and you "
    "answer for the market alone.",
    "desk": "You see one bar's indicators,\nwhat came before it, the rules that every account shares, and how your "
    "earlier answers turned out. You see no\nposition, and you answer for the market alone.",
}
_PARTS = {
    "window": "{levels}\n{window}\n{higher}\n",
    "desk": "{levels}\n{window}\n{higher}\n{account}\n{record}\n",
}


def context_text(name: str, volume: bool, news: bool, calendar: bool) -> str:
    """The text of `window` or `desk`.

    volume: whether the bars have volume; without it there is no VWAP. news, calendar: whether there
        is such a file.
    """
    rules, values = (RULES, VALUES) if volume else (NO_VWAP, INDICES)
    feeds = ("{news}\n" if news else "") + ("{calendar}\n" if calendar else "")
    return rules.replace(_SIGHT, _SEES[name]) + JSON_FORM + PLACE + values + _PARTS[name] + feeds
