"""Configuration of what a question shows beside the bar itself: earlier bars, the advisor's record,
news, events.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Section, listed, whole

Minutes = Annotated[int, Field(ge=2, le=240)]


class ContextConfig(Section, frozen=True):
    """What the templates `window` and `desk`, and templates of your own, show beside the bar
    itself. Other templates read none of it."""

    bars: int = Field(default=20, ge=1, le=240, description="last bars that the window shows")
    higher: Annotated[tuple[Minutes, ...], Field(strict=False), listed(whole)] = Field(
        default=(5, 15, 60),
        description="minutes of the longer bars; only those that the bars divide are shown",
    )
    higher_bars: int = Field(
        default=4, ge=1, le=60, description="completed longer bars of each length"
    )
    opening_minutes: int = Field(
        default=30, ge=1, le=240, description="length of the opening range"
    )
    record: int = Field(
        default=8,
        ge=0,
        le=50,
        description="last answers that the advisor's record shows, with what "
        "followed; its hit rates count all of them",
    )
    news: str | None = Field(
        default=None,
        description="JSONL file of news: time, source, text and, if it concerns one market, symbol",
        examples=["news.jsonl", "advisor.template=window"],
    )
    news_items: int = Field(
        default=5, ge=1, le=50, description="latest news items that a question shows"
    )
    news_hours: float = Field(
        default=24.0,
        gt=0,
        le=720,
        description="hours before the bar's close in which news are looked for",
    )
    news_chars: int = Field(
        default=280, ge=20, le=2000, description="characters of a news text that are shown"
    )
    news_delay_s: float = Field(
        default=0.0,
        ge=0,
        le=86_400,
        description="seconds after its stamp from which a news "
        "item, or the value of an event, counts as known",
    )
    calendar: str | None = Field(
        default=None,
        description="CSV file of scheduled events: time, name, importance and, if known, actual",
        examples=["events.csv", "advisor.template=window"],
    )
    calendar_ahead_hours: float = Field(
        default=24.0,
        ge=0,
        le=720,
        description="hours after the bar's close in which "
        "scheduled events are shown, by time and name only",
    )
    calendar_back_hours: float = Field(
        default=4.0,
        ge=0,
        le=720,
        description="hours before the bar's close in which "
        "past events are shown, with their value if the file has it",
    )
    calendar_importance: Literal["low", "medium", "high"] = Field(
        default="medium", description="least importance of the events that are shown"
    )
