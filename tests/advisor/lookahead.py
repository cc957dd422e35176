"""Finds what a question shows of its bar's future, by asking it again in worlds that differ only
after the bar's close.

The tests of honest templates and those of planted leaks use the same function, `leaks`.
"""

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from jaxtrade.advisor.host.prompts import Template
from jaxtrade.advisor.host.types import Advice
from jaxtrade.data.read.bars import Bars
from tests.advisor.made import made_bars, made_book

SAID = Advice(0.0, 1.0, -1.0, 0.7, 0.2, 5)


class World(NamedTuple):
    """What a question may be made of. news: (UTC seconds, text). events: (UTC seconds, name,
    actual).
    """

    bars: Bars
    news: tuple[tuple[int, str], ...]
    events: tuple[tuple[int, str, str], ...]


def world_at(bar):
    """The made market, with news and events on both sides of a bar's close: one second before, at
    it, one after.
    """
    close = close_of(made_bars(), bar)
    return World(
        made_bars(),
        ((close - 3600, "early"), (close - 1, "before"), (close, "at"), (close + 1, "after")),
        (
            (close - 600, "Past figures", "0.1"),
            (close, "Now figures", "0.2"),
            (close + 1, "Next figures", "0.3"),
        ),
    )


def close_of(bars, bar):
    return int(bars.time[bar]) + bars.bar_seconds


def others(world, bar):
    """Worlds that differ from `world` only in what is not known at the close of a bar."""
    close = close_of(world.bars, bar)
    for name, ticks in (("a rise", 40), ("a fall", -40)):
        later = np.where(np.arange(len(world.bars)) > bar, ticks, 0).astype(np.int32)
        moved = {
            each: getattr(world.bars, each) + later for each in ("open", "high", "low", "close")
        }
        yield (
            f"{name} after the close",
            world._replace(
                bars=replace(world.bars, volume=world.bars.volume + np.abs(later), **moved)
            ),
        )
    yield (
        "bars that end soon after the close",
        world._replace(bars=world.bars.rows(slice(0, bar + 3))),
    )
    known = tuple(item for item in world.news if item[0] < close)
    yield "no news from the close on", world._replace(news=known)
    yield (
        "other news from the close on",
        world._replace(
            news=(*known, *((when, "other") for when, _ in world.news if when >= close))
        ),
    )
    yield (
        "other values of events from the close on",
        world._replace(
            events=tuple(
                (when, name, value if when < close else "9.9") for when, name, value in world.events
            )
        ),
    )


def leaks(folder, world, bar, *overrides):
    """How the question about a bar shows its future: the names of the worlds in which it is another
    one.
    """
    question = question_in(folder, world, bar, *overrides)
    return [
        name
        for name, other in others(world, bar)
        if question_in(folder, other, bar, *overrides) != question
    ]


def question_in(folder, world, bar, *overrides):
    """The question about a bar in a world, after every earlier bar, and the bar itself, were
    answered.
    """
    return book_in(folder, world, bar, *overrides).question(bar)


def book_in(folder, world, bar, *overrides):
    feeds = (
        feed_files(folder, world) if any("advisor.template=" in each for each in overrides) else []
    )
    # One split: which sessions a test split holds back depends on how many there are, not on what
    # they hold.
    book = made_book("split.test_sessions=0", *overrides, *feeds, bars=world.bars)
    for earlier in np.flatnonzero(book.askable[: bar + 1]):
        book.note_answer(int(earlier), SAID)
    # The version holds the hash of each file, which does differ: only what the model reads is
    # compared.
    return book._replace(
        template=Fixed(
            book.template.name, book.template.text, book.template.answer, book.template.shape
        )
    )


class Fixed(Template):
    """A template whose version is its name."""

    version = "fixed"


def feed_files(folder, world):
    """The overrides that give a world's news and events."""
    news, events = folder / "news.jsonl", folder / "events.csv"
    news.write_text(
        "".join(
            json.dumps({"time": iso(when), "source": "wire", "text": text}) + "\n"
            for when, text in world.news
        )
    )
    with events.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("time", "name", "importance", "actual"),
                *((iso(when), name, "high", actual) for when, name, actual in world.events),
            ]
        )
    return [f"advisor.context.news={news}", f"advisor.context.calendar={events}"]


def iso(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat()
