"""Texts of the blocks that a prompt may show: earlier bars, the session's levels, rules and record.

Prices and volumes are raw. Nothing here knows a position, an open profit or a balance: these differ
between environments, and a question is shared by all of them.

Feeds that a question may show: news and a calendar of events, quoted.

News are a JSONL file of time-stamped texts, of which a question shows those that were known before
its close. Each line is an object with `time` (ISO with offset), `source`, `text`, and `symbol` if
it concerns one market only. A calendar is a CSV file with the columns time, name, importance and,
optionally, actual. A schedule is known ahead, so events to come are shown by their scheduled time
and name. The value that an event brought (`actual`) is shown only once its time, and the delay of
the feed, have passed.

Text that others wrote can neither end its quotation nor pose as a part of the prompt. A quoted item
is one line: a JSON object in ASCII whose strings hold none of `UNSAFE`. The fence around the items
contains `<` and `>`, which are in `UNSAFE`. So no item can hold a fence, a line break, a quotation
mark that ends its string, or the markup of a chat template. A model may still believe or obey what
it reads: quoting does not prevent that, and nothing here claims it.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator

from jaxtrade.advisor.host.types import nearest, sha256_of
from jaxtrade.config import validate
from jaxtrade.config.base import Section
from jaxtrade.config.service import ContextConfig
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import local

PROMPT: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("prompt.yaml").read_text(encoding="utf-8")
)


class Block(NamedTuple):
    """A block.

    about: what it shows.
    layout: its words and formats.
    keys: names of the keys of `advisor.context`, or of `advisor` (`advisor.NAME`), that shape it.
    """

    about: str
    layout: Mapping[str, str]
    keys: Sequence[str] = ()


BLOCKS = {name: Block(**block) for name, block in PROMPT["blocks"].items()}
WINDOW, HIGHER, LEVELS, ACCOUNT, RECORD, NEWS, EVENTS = (block.layout for block in BLOCKS.values())
QUOTES = PROMPT["quotes"]
NONE = WINDOW["none"]  # in place of a part that does not exist


class PriceBar(NamedTuple):
    """A bar.

    time: wall time of its close. Prices in the quote unit.
    volume: None where bars have none.
    """

    time: str
    open: float
    high: float
    low: float
    close: float
    volume: float | None


def length_of(seconds: int) -> str:
    """Format the length of a bar in words: 1 minute, 5 minutes, 15 seconds."""
    count, noun = (seconds // 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"{count} {noun}" + ("" if count == 1 else "s")


def window_block(rows: Sequence[PriceBar], seconds: int, decimals: int) -> str:
    """Format the last bars as a table."""
    head = WINDOW["head"].format(count=len(rows), length=length_of(seconds))
    return f"{head}{WINDOW['volume'] if rows[-1].volume is not None else ''}:\n{_table(rows, decimals)}"


def higher_block(tables: Mapping[int, Sequence[PriceBar]], decimals: int) -> str:
    """Format a table for each length in minutes."""
    parts = []
    for minutes, rows in tables.items():
        length = length_of(60 * minutes)
        head = HIGHER["head" if rows else "missing"].format(length=length, none=NONE)
        parts.append(f"{head}:\n{_table(rows, decimals)}" if rows else head)
    nothing = HIGHER["missing"].format(length="longer time frames", none=NONE)
    return "\n".join(parts or [nothing])


def levels_block(
    session: Mapping[str, float] | None,
    since: str,
    opening: Mapping[str, float] | None,
    minutes: int,
    prior: Mapping[str, float] | None,
    left: int | None,
    decimals: int,
) -> str:
    """Format the session's levels, the opening range and the prior day.

    These are prices by name, or None for a part that does not exist.

    Args:
        since: wall time of the session's opening.
        minutes: of the opening range.
        left: minutes to the close.
    """
    return "\n".join(
        [
            LEVELS["session"].format(since=since, levels=_levels(session, decimals)),
            LEVELS["opening"].format(minutes=minutes, levels=_levels(opening, decimals)),
            LEVELS["prior"].format(levels=_levels(prior, decimals)),
            _format_time_left(LEVELS, left),
        ]
    )


def _format_time_left(layout: Mapping[str, str], minutes: int | None) -> str:
    """Format how long until something, in the words of a block.

    Args:
        minutes: None where that is not known.
    """
    left = NONE if minutes is None else layout["minutes"].format(minutes=minutes)
    return layout["left"].format(left=left)


def _levels(prices: Mapping[str, float] | None, decimals: int) -> str:
    if prices is None:
        return NONE
    return ", ".join(
        LEVELS["name"].format(name=name, price=f"{price:.{decimals}f}")
        for name, price in prices.items()
    )


def _table(rows: Sequence[PriceBar], decimals: int) -> str:
    volume = rows[-1].volume is not None
    lines = [WINDOW["columns"] + (WINDOW["volume_column"] if volume else "")]
    for row in rows:
        cells = [row.time, *(f"{price:.{decimals}f}" for price in row[1:5])]
        lines.append(
            ",".join(cells + ([f"{row.volume:{WINDOW['volume_format']}}"] if volume else []))
        )
    return "\n".join(lines)


class AccountRules(NamedTuple):
    """What is the same for every environment.

    Money in dollars, unless `currency` (of the tick value) says otherwise.

    drawdown, daily, target: None where the account has no such rule; daily is the daily loss limit.
    trailing: as in the account presets.
    commission: of a round turn.
    slippage: ticks of a round turn.
    total: whole ticks of a round turn.
    size: of a tick.
    value: of a tick of one contract.
    two_sided: whether fills pay a spread.
    """

    balance: float
    drawdown: float | None
    trailing: str
    daily: float | None
    target: float | None
    commission: float
    slippage: int
    total: int
    size: str
    value: float
    currency: str
    two_sided: bool


def account_block(rules: AccountRules, left: int | None) -> str:
    """Format the rules and costs.

    Args:
        left: minutes until positions are closed; None where that is not known.
    """
    trailing = "" if rules.drawdown is None else ACCOUNT[rules.trailing]
    shown = rules._asdict() | {
        "drawdown": _limit(rules.drawdown) + trailing,
        "daily": _limit(rules.daily),
        "target": _limit(rules.target),
        "money": rules.slippage * rules.value,
    }
    limits, costs, tick = (ACCOUNT[name].format(**shown) for name in ("rules", "costs", "tick"))
    spread = ACCOUNT["spread"] if rules.two_sided else ""
    return "\n".join([limits, costs + spread, tick, _format_time_left(ACCOUNT, left)])


def _limit(limit: float | None) -> str:
    return ACCOUNT["none"] if limit is None else ACCOUNT["limit"].format(limit=limit)


class ScoredAnswer(NamedTuple):
    """One earlier answer.

    time: wall time of its bar's close.
    direction, followed: -1, 0 or +1.
    """

    time: str
    direction: int
    confidence: float
    followed: int


def record_block(
    rates: Sequence[tuple[int, int]], last: Sequence[ScoredAnswer], horizon: int
) -> str:
    """Format the record.

    Args:
        rates: (hits, scored answers) of equal ranges of confidence, from low to high.
        last: the answers shown, oldest first.
    """
    if not last and not any(count for _, count in rates):
        return RECORD["none"]
    bins = len(rates)
    shown = "; ".join(
        RECORD["rate" if count else "empty"].format(
            low=i / bins, high=(i + 1) / bins, hits=hits, count=count, none=NONE
        )
        for i, (hits, count) in enumerate(rates)
    )
    lines = [RECORD["head"].format(horizon=horizon), RECORD["rates"].format(rates=shown)]
    if last:
        lines.append(RECORD["last"].format(count=len(last)) + ":")
    for each in last:
        said, came = RECORD[f"said{each.direction}"], RECORD[f"came{each.followed}"]
        lines.append(
            RECORD["row"].format(
                time=each.time, direction=said, confidence=each.confidence, followed=came
            )
        )
    return "\n".join(lines)


UNSAFE = "<>{}[]|`\\"  # of markup, chat templates, code fences and escapes
_TAG = re.compile(r"<[^<>]{0,200}>")
_BLANK = str.maketrans(dict.fromkeys(UNSAFE, " "))


def plain(text: str, most: int) -> str:
    """Clean `text` to one line of at most `most` characters without control characters and markup.

    Compatibility forms are resolved first (NFKC), so that a full-width `<` counts as one. Tags in
    angle brackets are dropped. Control, format and unassigned characters, line ends and `UNSAFE`
    become blanks; blanks are merged. Only the first 20 times `most` characters are looked at.
    """
    text = unicodedata.normalize("NFKC", text[: 20 * most])
    text = "".join(
        " " if unicodedata.category(char)[0] in "CZ" else char for char in _TAG.sub(" ", text)
    )
    text = " ".join(text.translate(_BLANK).split())
    return text if len(text) <= most else text[: most - len(QUOTES["cut"])].rstrip() + QUOTES["cut"]


def quote_items(name: str, items: Iterable[Mapping[str, str]]) -> str:
    """Quote items in a fence named `name`, each one line of JSON.

    Their strings must come from `plain`.

    Raises ValueError where a string holds one of `UNSAFE`: it was not passed through `plain`.
    """
    lines = [json.dumps(dict(item), ensure_ascii=True) for item in items]
    if any(set(value) & set(UNSAFE) for item in items for value in item.values()):
        raise ValueError("a quoted text holds markup; pass it through `plain` first")
    return "\n".join(
        [
            QUOTES["rule"],
            QUOTES["open"].format(name=name),
            *lines,
            QUOTES["close"].format(name=name),
        ]
    )


_STAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


def seconds_of(stamp: object) -> float:
    """Convert a stamp such as 2013-10-07T09:31:00-04:00 to UTC seconds.

    Raises ValueError for no such stamp.
    """
    try:
        if isinstance(stamp, str) and _STAMP.fullmatch(stamp):
            return datetime.datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        pass  # a day or an hour that there is not
    raise ValueError("expected a stamp with its UTC offset, as 2013-10-07T09:20:00-04:00")


def _readable(text: str) -> str:
    if not plain(text, _MOST_SOURCE):
        raise ValueError("expected text with at least one readable word, or take the line out")
    return text


Stamp = Annotated[float, BeforeValidator(seconds_of)]  # UTC seconds
Words = Annotated[str, AfterValidator(_readable)]
RecordT = TypeVar("RecordT", bound=Section)


def record_of(model: type[RecordT], found: object, where: str) -> RecordT:
    """Validate a record of a file. Raises DataError naming the place and each fault."""
    if not isinstance(found, Mapping):
        names = ", ".join(repr(name) for name in model.model_fields)
        raise DataError(f"{where}: {type(found).__name__}, expected an object with {names}")
    try:
        return validate(model, found, where)
    except ConfigError as error:
        raise DataError(str(error)) from None


def text_of(path: Path, key: str) -> str:
    """Read the UTF-8 text of a feed's file. Raises DataError.

    Args:
        key: the configuration key that names it.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8 ({key})"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; check {key}") from None


NEWS_KEY = "advisor.context.news"
_MOST_SOURCE = 40  # characters of a source that are shown
_HOUR = 3600.0


class NewsItem(Section, frozen=True):
    """One item.

    symbol: the market that it concerns; None for all.
    """

    time: Stamp
    source: Words
    text: Words
    symbol: str | None = None


class Feed(NamedTuple):
    """The items of a feed by time, and the SHA-256 (hex) of the file."""

    items: Sequence[Any]
    sha256: str


_TIME = attrgetter("time")


def read_news(path: Path) -> Feed:
    """Read a feed. Raises DataError naming file, line and field of the first fault."""
    text = text_of(path, NEWS_KEY)
    items = [
        _item(line, f"{path}: line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not items:
        raise DataError(f"{path}: holds no news; expected one JSON object per line ({NEWS_KEY})")
    return Feed(sorted(items, key=_TIME), sha256_of(text))


def _item(line: str, where: str) -> NewsItem:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where}: not JSON; expected {_EXAMPLE}") from None
    return record_of(NewsItem, found, where)


_EXAMPLE = '{"time": "2013-10-07T09:20:00-04:00", "source": "wire", "text": "..."}'


def known_before(news: Feed, close: float, delay: float) -> int:
    """Count the items, by time, that were known strictly before `close`.

    These are those with time + delay < close.
    """
    return bisect_left(news.items, close - delay, key=_TIME)


def news_block(news: Feed, symbol: str, close: float, zone: str, config: ContextConfig) -> str:
    """Format the news of a market at a bar's close (UTC seconds).

    It quotes the latest items of the look-back, oldest first. Times are wall times of `zone`.
    """
    first = bisect_left(news.items, close - config.news_hours * _HOUR, key=_TIME)
    known = news.items[first : known_before(news, close, config.news_delay_s)]
    shown = [item for item in known if item.symbol in (None, symbol)][-config.news_items :]
    if not shown:
        return NEWS["none"].format(none=NONE)
    return f"{NEWS['head']} " + quote_items(
        NEWS["name"],
        [
            {
                "time": local(item.time, zone, NEWS["stamp"]),
                "source": plain(item.source, _MOST_SOURCE),
                "text": plain(item.text, config.news_chars),
            }
            for item in shown
        ],
    )


CALENDAR_KEY = "advisor.context.calendar"
IMPORTANCE = ("low", "medium", "high")  # from the least
_NEEDED, _ALL = ("time", "name", "importance"), ("time", "name", "importance", "actual")
_MOST_NAME, _MOST_VALUE = 80, 40  # characters that are shown


class ScheduledEvent(Section, frozen=True):
    """A scheduled event.

    actual: the value that it brought; None if the file has none.
    """

    time: Stamp
    name: Words
    importance: Literal["low", "medium", "high"]
    actual: str | None = None


def read_events(path: Path) -> Feed:
    """Read a calendar. Raises DataError naming file, line and column of the first fault."""
    text = text_of(path, CALENDAR_KEY)
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        reader.fieldnames = head = [name.strip() for name in reader.fieldnames or ()]
        for name in head:
            if name not in _ALL:
                raise DataError(
                    f"{path}: line 1: column {ascii(name)[:40]}: unknown{nearest(name, _ALL)} ({CALENDAR_KEY})"
                )
        if not set(_NEEDED) <= set(head) or len(set(head)) < len(head):
            raise DataError(
                f"{path}: line 1: columns {','.join(head) or 'none'}; expected each of {','.join(_NEEDED)} "
                f"once, and actual if the values are known ({CALENDAR_KEY})"
            )
        found = [_event(row, f"{path}: line {reader.line_num}") for row in reader]
    except csv.Error as error:
        raise DataError(
            f"{path}: line {reader.reader.line_num}: no CSV ({error}); put cells that hold a comma in "
            "quotes"
        ) from None
    if not found:
        raise DataError(
            f"{path}: holds no events; expected rows below {','.join(_NEEDED)} ({CALENDAR_KEY})"
        )
    return Feed(sorted(found, key=_TIME), sha256_of(text))


def _event(row: Mapping[str, Any], where: str) -> ScheduledEvent:
    if None in (*row, *row.values()):  # a key for cells too many, a value for each that lacks
        raise DataError(
            f"{where}: has not as many cells as the first line; put cells that hold a comma in quotes"
        )
    found = {name: cell if name == "name" else cell.strip() for name, cell in row.items()}
    return record_of(
        ScheduledEvent,
        {name: cell for name, cell in found.items() if cell or name != "actual"},
        where,
    )


def value_at(event: ScheduledEvent, close: float, delay: float) -> str | None:
    """Return the event's value if it was known strictly before `close` (UTC seconds).

    It is None if it was not, or is missing.
    """
    return event.actual if event.time + delay < close else None


def events_block(events: Feed, close: float, zone: str, config: ContextConfig) -> str:
    """Format the events around a bar's close (UTC seconds), oldest first, quoted."""
    first = bisect_left(events.items, close - config.calendar_back_hours * _HOUR, key=_TIME)
    last = bisect_right(events.items, close + config.calendar_ahead_hours * _HOUR, key=_TIME)
    least = IMPORTANCE.index(config.calendar_importance)
    shown = [
        _format_event(event, close, zone, config.news_delay_s)
        for event in events.items[first:last]
        if IMPORTANCE.index(event.importance) >= least
    ]
    if not shown:
        return EVENTS["none"].format(none=NONE)
    return f"{EVENTS['head']} " + quote_items(EVENTS["name"], shown)


def _format_event(event: ScheduledEvent, close: float, zone: str, delay: float) -> dict[str, str]:
    value = value_at(event, close, delay)
    return {
        "time": local(event.time, zone, EVENTS["stamp"]),
        "name": plain(event.name, _MOST_NAME),
        **({} if value is None else {"value": plain(value, _MOST_VALUE)}),
    }
