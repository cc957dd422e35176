"""The template that a configuration names, with the blocks and feeds that it shows.

All its files are read and checked here. Everything that shapes a block is part of the template's
version. A user's own template is a text file whose {fields} are names of slots and blocks. Its first
line may say `answer: json` or `answer: pipe`, and is not part of the prompt. Without it, the text
must hold {answer_format}, which becomes the built-in words that ask for JSON. {{ and }} are a brace
itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host import blocks, feeds
from jaxtrade.advisor.host.feeds import Events, News, read_events, read_news, text_of
from jaxtrade.advisor.host.prompts import (
    CONTEXT_NAMES,
    JSON_FORM,
    PIPE_FORM,
    RAW_SLOTS,
    Template,
    context_text,
    find_template,
)
from jaxtrade.advisor.host.types import nearest
from jaxtrade.config import AdvisorConfig
from jaxtrade.config.service import ContextConfig
from jaxtrade.errors import ConfigError

FORMAT = (
    1  # raise it when code changes the text of a block in a way that no layout and no key shows
)


class Block(NamedTuple):
    """A block. about: what it shows. layout: its words and formats. keys: names of the keys of
    `advisor.context`, or of `advisor` (`advisor.NAME`), that shape it."""

    about: str
    layout: Mapping[str, str]
    keys: tuple[str, ...] = ()


BLOCKS: Mapping[str, Block] = MappingProxyType(
    {
        "window": Block(
            "the last bars as a table: prices in the quote unit, volume in contracts or lots",
            blocks.WINDOW,
            ("bars",),
        ),
        "higher": Block(
            "completed longer bars, same units, counted from whole hours UTC",
            blocks.HIGHER,
            ("higher", "higher_bars"),
        ),
        "levels": Block(
            "open, high and low of the session, opening range, prior day, in the quote unit; minutes to the "
            "session's close",
            blocks.LEVELS,
            ("opening_minutes",),
        ),
        "account": Block(
            "rules that every account shares and costs, in money and ticks; minutes until positions are "
            "closed",
            blocks.ACCOUNT,
        ),
        "record": Block(
            "the advisor's own scored answers about earlier bars, and its hit rate by confidence",
            blocks.RECORD,
            ("record", "advisor.horizon", "advisor.bins"),
        ),
        "news": Block(
            "quoted news items known before the close (advisor.context.news)",
            {**feeds.NEWS, **feeds.QUOTES},
            ("news_items", "news_hours", "news_chars", "news_delay_s"),
        ),
        "calendar": Block(
            "quoted events around the close (advisor.context.calendar)",
            {**feeds.EVENTS, **feeds.QUOTES},
            ("calendar_ahead_hours", "calendar_back_hours", "calendar_importance", "news_delay_s"),
        ),
    }
)


def shape_of(
    names: Iterable[str], config: AdvisorConfig, files: Mapping[str, str]
) -> dict[str, Any]:
    """By name of each block, all that shapes its text beside the market. files: SHA-256 of its
    file, by block.
    """
    return {
        name: {
            "format": FORMAT,
            "layout": dict(BLOCKS[name].layout),
            "file": files.get(name, ""),
            "keys": {key: _value(key, config) for key in BLOCKS[name].keys},
        }
        for name in names
    }


def _value(key: str, config: AdvisorConfig) -> Any:
    head, _, name = key.rpartition(".")
    return getattr(config if head else config.context, name)


SUFFIXES = (".txt", ".md")
FORM = "answer_format"
FORMS = {"json": JSON_FORM, "pipe": PIPE_FORM}
FIELDS = ("symbol", "time", *RAW_SLOTS, *BLOCKS, FORM)
KEY = "advisor.template"
MOST = 100_000  # characters
_ANSWER = re.compile(r"answer:\s*(\S*)\s*")


class UserTemplate(NamedTuple):
    """A template file: its name, its text with the answer's format filled in, the format, and the
    line of each field's first use."""

    name: str
    text: str
    answer: str
    lines: dict[str, int]


def is_file(template: str) -> bool:
    """Whether `advisor.template` names a file."""
    return template.endswith(SUFFIXES)


def read_template(path: Path) -> UserTemplate:
    """Read a user's template.

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
    if stated is not None and stated[1] not in FORMS:
        raise ConfigError(
            f"{path}: line 1: answer: {ascii(stated[1])[1:40]}; expected answer: json or answer: pipe"
        )
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if stated is None or number > 1:
            for name in _fields(line, f"{path}: line {number}"):
                found.setdefault(name, number)
    if stated is None and FORM not in found:
        raise ConfigError(
            f"{path}: says nothing about the form of answers; put {{{FORM}}} where the model is told to "
            "answer in JSON, or begin the file with the line answer: json or answer: pipe"
        )
    if not set(found) - {FORM, "symbol", "time"}:
        raise ConfigError(
            f"{path}: shows nothing of the market; use fields such as {{close}} or {{window}} (jaxtrade "
            "list templates)"
        )
    answer = "json" if stated is None else stated[1]
    body = "".join(lines[0 if stated is None else 1 :])
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:40]
    return UserTemplate(name, _filled(body, FORMS[answer].rstrip("\n")), answer, found)


def _filled(body: str, form: str) -> str:
    """The text with {answer_format} replaced by the words for it. Other fields and doubled braces
    stay.
    """
    parts = []
    for literal, name, _, _ in Formatter().parse(body):
        parts.append(_escaped(literal))
        if name is not None:
            parts.append(_escaped(form) if name == FORM else f"{{{name}}}")
    return "".join(parts)


def _escaped(text: str) -> str:
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


def digest_of(path: Path) -> str:
    """SHA-256 (hex) of a template's text."""
    return hashlib.sha256(text_of(path, KEY).encode()).hexdigest()


_UNASKED = ("off", "none", "table")  # kinds without questions
FEEDS = {"news": "advisor.context.news", "calendar": "advisor.context.calendar"}


class Chosen(NamedTuple):
    """A template, and the feeds that it shows; None where it shows none."""

    template: Template
    news: News | None = None
    events: Events | None = None


def choose(config: AdvisorConfig, volume: bool = True) -> Chosen:
    """The template `advisor.template` with its feeds. volume: whether the market's bars have
    volume.

    Raises ConfigError for an unknown template, an unknown field of a user's template, or a feed or
    key of the context without effect on the template; DataError for a file that cannot be read or
    is wrong.
    """
    name, context = config.template, config.context
    given = {feed for feed in FEEDS if getattr(context, feed) is not None}
    if is_file(name):
        own = read_template(Path(name))
        for feed in sorted(set(FEEDS) & set(own.lines) - given):
            raise ConfigError(
                f"{name}: line {own.lines[feed]}: {{{feed}}} needs a file; set {FEEDS[feed]}=FILE, or "
                "take the field out"
            )
        parts = (own.name, own.text, own.answer)
    elif name in CONTEXT_NAMES:
        text = context_text(name, volume, "news" in given, "calendar" in given)
        parts = (name if volume else f"{name}_no_volume", text, "json")
    else:
        template = find_template(name)
        parts = (template.name, template.text, template.answer)
    plain = Template(*parts)
    if unused := sorted(given - set(plain.fields)):
        raise ConfigError(
            f"{FEEDS[unused[0]]} = {getattr(context, unused[0])}: the template {name} does not show it; "
            f"set advisor.template=window or desk, or a file of your own with {{{unused[0]}}}"
        )
    _check_effect(plain, config)
    if not blocks_of(plain):
        return Chosen(plain)
    news = read_news(Path(context.news)) if context.news is not None else None
    events = read_events(Path(context.calendar)) if context.calendar is not None else None
    files = {
        feed: found.sha256
        for feed, found in (("news", news), ("calendar", events))
        if found is not None
    }
    return Chosen(Template(*parts, shape_of(blocks_of(plain), config, files)), news, events)


def _check_effect(template: Template, config: AdvisorConfig) -> None:
    """Raises ConfigError for a key of `advisor.context` that is set and changes nothing that the
    template shows.
    """
    shown = {key for block in blocks_of(template) for key in BLOCKS[block].keys}
    for key, field in ContextConfig.model_fields.items():
        value = getattr(config.context, key)
        if value != field.default and key not in FEEDS and key not in shown:
            needs = " and ".join(
                f"{{{name}}}" for name, block in BLOCKS.items() if key in block.keys
            )
            raise ConfigError(
                f"advisor.context.{key} = {value}: the template {config.template} shows nothing that it "
                f"changes, which is {needs}; choose a template that does (advisor.template=window or "
                "desk, with the file if it is of a feed), or leave the key out"
            )


def blocks_of(template: Template) -> tuple[str, ...]:
    """The names of blocks among the fields of a template that has no shape yet."""
    return tuple(name for name in template.fields if name in BLOCKS)


def files_of(config: AdvisorConfig) -> dict[str, str]:
    """Key -> path of every file that the template and the context name."""
    found = {
        key: path
        for feed, key in FEEDS.items()
        if (path := getattr(config.context, feed)) is not None
    }
    return found | ({KEY: config.template} if is_file(config.template) else {})


def check_context(config: AdvisorConfig) -> None:
    """Check template and feeds where questions will be built, before the market is read. Raises as
    `choose`.
    """
    if config.kind.partition(":")[0] not in _UNASKED:
        choose(config)


def digest_values(config: AdvisorConfig) -> dict[str, Any]:
    """`advisor.template` and `advisor.context` as a run's digest holds them: files by content, not
    by place.

    A context that is all default is left out, as in runs of earlier versions. Raises DataError,
    ConfigError as
    `choose`.
    """
    found: dict[str, Any] = {"template": config.template}
    if is_file(config.template):
        found["template"] = f"file:{digest_of(Path(config.template))}"
    if config.context != ContextConfig():
        context = config.context.model_dump(mode="json")
        if config.context.news is not None:
            context["news"] = read_news(Path(config.context.news)).sha256
        if config.context.calendar is not None:
            context["calendar"] = read_events(Path(config.context.calendar)).sha256
        found["context"] = context
    return found
