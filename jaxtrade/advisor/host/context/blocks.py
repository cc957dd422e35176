"""The blocks of text that a template may show, with everything that shapes them: the template's
version covers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host.context import bar_tables, desk_texts, events, news, quoting
from jaxtrade.config import AdvisorConfig

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
            bar_tables.WINDOW,
            ("bars",),
        ),
        "higher": Block(
            "completed longer bars, same units, counted from whole hours UTC",
            bar_tables.HIGHER,
            ("higher", "higher_bars"),
        ),
        "levels": Block(
            "open, high and low of the session, opening range, prior day, in the quote unit; minutes to the "
            "session's close",
            bar_tables.LEVELS,
            ("opening_minutes",),
        ),
        "account": Block(
            "rules that every account shares and costs, in money and ticks; minutes until positions are "
            "closed",
            desk_texts.ACCOUNT,
        ),
        "record": Block(
            "the advisor's own scored answers about earlier bars, and its hit rate by confidence",
            desk_texts.RECORD,
            ("record", "advisor.horizon", "advisor.bins"),
        ),
        "news": Block(
            "quoted news items known before the close (advisor.context.news)",
            {**news.LAYOUT, **quoting.LAYOUT},
            ("news_items", "news_hours", "news_chars", "news_delay_s"),
        ),
        "calendar": Block(
            "quoted events around the close (advisor.context.calendar)",
            {**events.LAYOUT, **quoting.LAYOUT},
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
