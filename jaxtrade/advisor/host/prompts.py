"""Builds prompts from named raw values of one market bar, a validated symbol, and blocks of text.

A template has a text, the slots and blocks that it shows, and their format. Its version is its name
and a hash of all these, so changing one word gives another version in caches and journals. A prompt
depends on (symbol, time, slots, blocks, template) only. It contains no state of an account, so all
environments share one question per bar. The four templates here show one bar's indicators and no
blocks; `window` and `desk` show what came before it, `desk` also rules and the record.

There are no default values: a default in place of a missing value would put a false number into the
prompt. Values are looked up by name and checked against the range of their raw unit. Names are
those of the market's features. Values are never normalised. `questions.check_columns` detects
normalised columns before the first question, and `make_question` checks each bar.

The template that a configuration names, with the blocks and feeds that it shows.

All its files are read and checked here. Everything that shapes a block is part of the template's
version. A user's own template is a text file whose {fields} are names of slots and blocks. Its
first line may say `answer: json` or `answer: pipe`, and is not part of the prompt. Without it, the
text must hold {answer_format}, which becomes the built-in words that ask for JSON. {{ and }} are a
brace itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host.blocks import (
    BLOCKS,
    PROMPT,
    Feed,
    read_events,
    read_news,
    seconds_of,
    text_of,
)
from jaxtrade.advisor.host.types import Question, nearest, sha256_of
from jaxtrade.config import AdvisorConfig
from jaxtrade.config.service import ContextConfig
from jaxtrade.errors import ConfigError, DataError


class RawSlot(NamedTuple):
    """A raw value at a bar's close: its inclusive range, shown decimals, and a description."""

    low: float
    high: float
    decimals: int
    about: str


RULE_SLOTS = ("adx", "roc", "price_to_vwap", "rsi")  # what `backends.rule_advice` looks at
RAW_SLOTS = {name: RawSlot(*slot) for name, slot in PROMPT["slots"].items()}


def known_slot(name: str) -> RawSlot:
    """Return the slot of a name.

    Raises ConfigError, with the nearest known name, for an unknown one.
    """
    if name not in RAW_SLOTS:
        raise ConfigError(f"raw slot {name[:60]!r}: unknown{nearest(name, RAW_SLOTS)}")
    return RAW_SLOTS[name]


def checked_value(where: str, name: str, value: float) -> float:
    """Convert `value` of a known slot to a float.

    Raises DataError where it is not finite or outside its raw range.
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


@dataclass(frozen=True)
class Template:
    """A prompt template.

    The {fields} of its text are `symbol`, `time`, names in RAW_SLOTS, and names of blocks.

    answer: the format that it asks for, `json` or `pipe`.
    shape: by name of each block, everything that shapes its text beside the market: words, formats,
        keys, hashes of files. It is part of the version.
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
        return tuple(name for name in self.fields if name not in ("symbol", "time", *self.blocks))

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks that the prompt shows."""
        return tuple(name for name in self.fields if name in BLOCKS)

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
        return f"{self.name}:{sha256_of(json.dumps(shape, sort_keys=True))[:16]}"


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
TEMPLATES = {
    "v1": _V1,
    "no_volume": Template("no_volume", NO_VWAP + JSON_FORM + PLACE + INDICES),
    "anonymous": Template("anonymous", RULES + JSON_FORM + "\n" + VALUES),
    "pipe": Template("pipe", _OLD_RULES + PIPE_FORM + PLACE + VALUES, answer="pipe"),
    "bar": _V1,  # its name beside `window` and `desk`; the version is that of v1, so answers are shared
}
CONTEXT_NAMES = ("window", "desk")  # see `choose`


def make_question(
    bar: int,
    symbol: str,
    time: str,
    slots: Mapping[str, float],
    template: Template = TEMPLATES["v1"],
    blocks: Mapping[str, str] = MappingProxyType({}),
) -> Question:
    """Build the question about one bar.

    Args:
        symbol: 1 to 12 capital letters and digits.
        time: full ISO time stamp of the bar's close with its UTC offset.
        slots: raw values by name, at least those that the template shows.
        blocks: the texts of the blocks that it shows, by name.

    Raises:
        ConfigError: a slot name is unknown or missing.
        DataError: a value, symbol or time stamp is invalid.
    """
    if not _SYMBOL.fullmatch(symbol):
        raise DataError(f"symbol {ascii(symbol)[:40]}: expected 1 to 12 capital letters and digits")
    try:
        seconds_of(time)
    except ValueError:
        raise DataError(
            f"time {ascii(time)[:40]}: expected a bar's close as 2024-03-01T10:31:00-05:00"
        ) from None
    for name in slots:
        known_slot(name)
    if missing := [name for name in template.slots if name not in slots]:
        raise ConfigError(
            f"bar {bar}: no raw slot {missing[0]!r}, which prompt {template.name!r} shows; it needs "
            f"{', '.join(template.slots)}"
        )
    values = {name: checked_value(f"bar {bar}", name, value) for name, value in slots.items()}
    shown = {
        name: _format_number(values[name], RAW_SLOTS[name].decimals) for name in template.slots
    }
    texts = {name: blocks[name] for name in template.blocks}
    prompt = template.text.format_map({"symbol": symbol, "time": time, **shown, **texts})
    return Question(bar, symbol, time, MappingProxyType(values), prompt, template.version)


def _format_number(value: float, decimals: int) -> str:
    """Format `value` with at most `decimals` decimals.

    Trailing zeros are dropped except for the first decimal, and a negative zero loses its sign.
    """
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"
    whole, _, part = text.partition(".")
    return f"{whole}.{part.rstrip('0') or '0'}"


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


FORMAT = (
    1  # raise it when code changes the text of a block in a way that no layout and no key shows
)


def shape_of(
    names: Iterable[str], config: AdvisorConfig, files: Mapping[str, str]
) -> dict[str, Any]:
    """Return all that shapes the text of each block beside the market, by name of the block.

    Args:
        files: SHA-256 of its file, by block.
    """
    return {
        name: {
            "format": FORMAT,
            "layout": dict(BLOCKS[name].layout),
            "file": files.get(name, ""),
            "keys": {
                key: getattr(config if "." in key else config.context, key.rpartition(".")[2])
                for key in BLOCKS[name].keys
            },
        }
        for name in names
    }


SUFFIXES = (".txt", ".md")
FORM = "answer_format"
FORMS = {"json": JSON_FORM, "pipe": PIPE_FORM}
FIELDS = ("symbol", "time", *RAW_SLOTS, *BLOCKS, FORM)
KEY = "advisor.template"
MOST = 100_000  # characters
_ANSWER = re.compile(r"answer:\s*(\S*)\s*")


def is_file(template: str) -> bool:
    """Return whether `advisor.template` names a file."""
    return template.endswith(SUFFIXES)


def read_template(path: Path) -> tuple[Template, dict[str, int]]:
    """Read a user's template with the answer's format filled in.

    Also returns the line of each field's first use.

    Raises ConfigError naming file, line, field and the nearest known field; DataError where the
    file cannot be read.
    """
    text = text_of(path, KEY)
    if len(text) > MOST:
        raise ConfigError(
            f"{path}: {len(text):,} characters; a template has at most {MOST:,} ({KEY})"
        )
    lines = text.splitlines(keepends=True)
    stated = _ANSWER.fullmatch(lines[0].strip()) if lines else None
    if stated and stated[1] not in FORMS:
        raise ConfigError(
            f"{path}: line 1: answer: {ascii(stated[1])[1:40]}; expected answer: json or answer: pipe"
        )
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not stated or number > 1:
            for name in _fields(line, f"{path}: line {number}"):
                found.setdefault(name, number)
    if not stated and FORM not in found:
        raise ConfigError(
            f"{path}: says nothing about the form of answers; put {{{FORM}}} where the model is told to "
            "answer in JSON, or begin the file with the line answer: json or answer: pipe"
        )
    if not set(found) - {FORM, "symbol", "time"}:
        raise ConfigError(
            f"{path}: shows nothing of the market; use fields such as {{close}} or {{window}} (jaxtrade "
            "list templates)"
        )
    answer = stated[1] if stated else "json"
    body = "".join(lines[1:] if stated else lines)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:40]
    return Template(name, _fill_answer_format(body, FORMS[answer].rstrip("\n")), answer), found


def _fill_answer_format(body: str, form: str) -> str:
    """Replace {answer_format} in the text by the words for it.

    Other fields and doubled braces stay.
    """
    parts = []
    for literal, name, _, _ in Formatter().parse(body):
        parts.append(_escape(literal))
        if name is not None:
            parts.append(_escape(form) if name == FORM else f"{{{name}}}")
    return "".join(parts)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _fields(line: str, where: str) -> Iterator[str]:
    try:
        parts = list(Formatter().parse(line))
    except ValueError as error:
        raise ConfigError(
            f"{where}: {error}; a field is {{name}}, a brace itself is {{{{ or }}}}"
        ) from None
    for _, name, layout, conversion in parts:
        if name is None:
            continue
        if layout or conversion:
            raise ConfigError(
                f"{where}: field {ascii(name)[:60]} has a format of its own; write {{NAME}} alone, its "
                "decimals are fixed; for a brace of the text, as in JSON, write {{{{ or }}}}"
            )
        if name not in FIELDS:
            raise ConfigError(f"{where}: field {ascii(name)[:60]}: unknown{nearest(name, FIELDS)}")
        yield name


_UNASKED = ("off", "none", "table")  # kinds without questions
FEEDS = {"news": "advisor.context.news", "calendar": "advisor.context.calendar"}


class Chosen(NamedTuple):
    """A template, and the feeds of its context by name."""

    template: Template
    feeds: Mapping[str, Feed] = {}


def choose(config: AdvisorConfig, volume: bool = True) -> Chosen:
    """Choose the template `advisor.template` with its feeds.

    Raises ConfigError for an unknown template, an unknown field of a user's template, or a feed or
    key of the context without effect on the template; DataError for a file that cannot be read or
    is wrong.

    Args:
        volume: whether the market's bars have volume.
    """
    name, context = config.template, config.context
    given = _list_feeds(context).keys()
    if is_file(name):
        plain, lines = read_template(Path(name))
        for feed in sorted(set(FEEDS) & set(lines) - given):
            raise ConfigError(
                f"{name}: line {lines[feed]}: {{{feed}}} needs a file; set {FEEDS[feed]}=FILE, or "
                "take the field out"
            )
    elif name in CONTEXT_NAMES:
        # Without volume there is no VWAP.
        rules, values = (RULES, VALUES) if volume else (NO_VWAP, INDICES)
        feeds = "".join(f"{{{feed}}}\n" for feed in FEEDS if feed in given)
        text = (
            rules.replace(_SIGHT, _SEES[name]) + JSON_FORM + PLACE + values + _PARTS[name] + feeds
        )
        plain = Template(name if volume else f"{name}_no_volume", text)
    elif name in TEMPLATES:
        plain = TEMPLATES[name]
    else:
        raise ConfigError(
            f"prompt template {name!r}: unknown{nearest(name, (*TEMPLATES, *CONTEXT_NAMES))}"
        )
    if unused := sorted(given - set(plain.fields)):
        raise ConfigError(
            f"{FEEDS[unused[0]]} = {getattr(context, unused[0])}: the template {name} does not show it; "
            f"set advisor.template=window or desk, or a file of your own with {{{unused[0]}}}"
        )
    _check_effect(plain, config)
    if not plain.blocks:
        return Chosen(plain)
    found = read_feeds(context)
    files = {feed: each.sha256 for feed, each in found.items()}
    return Chosen(replace(plain, shape=shape_of(plain.blocks, config, files)), found)


def read_feeds(context: ContextConfig) -> dict[str, Feed]:
    """Read the feeds that a context names, by name. Raises DataError for one that is wrong."""
    readers = {"news": read_news, "calendar": read_events}
    return {feed: readers[feed](Path(path)) for feed, path in _list_feeds(context).items()}


def _list_feeds(context: ContextConfig) -> dict[str, str]:
    """Map each feed that a context names to its file."""
    named = {feed: getattr(context, feed) for feed in FEEDS}
    return {feed: path for feed, path in named.items() if path is not None}


def _check_effect(template: Template, config: AdvisorConfig) -> None:
    """Raise ConfigError for a set key of `advisor.context` that has no effect.

    It changes nothing that the template shows.
    """
    shown = {key for block in template.blocks for key in BLOCKS[block].keys}
    for key, known in ContextConfig.model_fields.items():
        value = getattr(config.context, key)
        if value != known.default and key not in FEEDS and key not in shown:
            needs = " and ".join(
                f"{{{name}}}" for name, block in BLOCKS.items() if key in block.keys
            )
            raise ConfigError(
                f"advisor.context.{key} = {value}: the template {config.template} shows nothing that it "
                f"changes, which is {needs}; choose a template that does (advisor.template=window or "
                "desk, with the file if it is of a feed), or leave the key out"
            )


def files_of(config: AdvisorConfig) -> dict[str, str]:
    """Map each key to the path of the file that the template or the context names."""
    found = {FEEDS[feed]: path for feed, path in _list_feeds(config.context).items()}
    return found | ({KEY: config.template} if is_file(config.template) else {})


def check_context(config: AdvisorConfig) -> None:
    """Check template and feeds where questions will be built, before the market is read.

    Raises as `choose`.
    """
    if config.kind.partition(":")[0] not in _UNASKED:
        choose(config)


def digest_values(config: AdvisorConfig) -> dict[str, Any]:
    """Return `advisor.template` and `advisor.context` as a run's digest holds them.

    Files are held by content, not by place.

    A context that is all default is left out, as in runs of earlier versions. Raises DataError,
    ConfigError as `choose`.
    """
    found: dict[str, Any] = {"template": config.template}
    if is_file(config.template):
        text = text_of(Path(config.template), KEY)
        found["template"] = f"file:{sha256_of(text)}"
    if config.context != ContextConfig():
        files = {feed: each.sha256 for feed, each in read_feeds(config.context).items()}
        found["context"] = config.context.model_dump(mode="json") | files
    return found
