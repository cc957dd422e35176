"""Configuration of the advice service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from jaxtrade.config.base import (
    FromOne,
    FromZero,
    NotNegative,
    Positive,
    Section,
    Share,
    listed,
    whole,
)


class ServiceOptions(Section, frozen=True):
    """How questions are queued, asked, limited and cached. None means no limit, or no file."""

    workers: int = Field(default=8, ge=1, le=64)
    """threads that ask, each one question at a time"""
    deadline_s: Positive = 30.0
    """seconds that one request may take in total"""
    grace_s: Positive = 2.0
    """seconds past its request's deadline after which a stuck worker is replaced"""
    queue_size: FromOne = 1024
    """questions that wait at most; the least wanted is dropped first"""
    ttl_chunks: FromOne = 64
    """a waiting question expires after this many submissions that do not repeat it"""
    ready_rows: FromOne = 4096
    """answers that may wait to be taken before asking pauses"""
    attempts: int = Field(default=3, ge=1, le=10)
    """attempts at a question before it has failed"""
    retry_share: Share = 0.1
    """retries per request, over recent requests"""
    retry_base_s: Positive = 0.5
    """shortest wait before a retry"""
    retry_cap_s: Positive = 20.0
    """longest wait before a retry, unless the server asks for a longer one"""
    failed_for_s: NotNegative = 60.0
    """seconds before a failed question may be asked again"""
    poison_after: FromOne = 3
    """equal faults after which a question is not asked again in this run"""
    breaker_failures: FromOne = 5
    """failures in a row that open the circuit breaker"""
    breaker_open_s: Positive = 30.0
    """seconds of the breaker's first pause; every failed probe doubles it"""
    breaker_longest_s: Positive = 600.0
    """seconds of the breaker's longest pause"""
    unusable_pause_after: int = Field(default=8, ge=2)
    """unusable answers in a row (prose, cut off, wrong form) after which asking pauses, as long as
    the breaker would
    """
    requests_per_minute: int | None = Field(default=None, ge=2, examples=["60"])
    """requests started in any minute at most"""
    tokens_per_minute: int | None = Field(default=None, ge=2, examples=["100_000"])
    """tokens in any minute at most"""
    max_calls: int | None = Field(default=None, ge=0, examples=["10_000"])
    """calls in total, including those of earlier runs with the same ledger"""
    max_tokens: int | None = Field(default=None, ge=0, examples=["5_000_000"])
    """tokens in total, prompts and answers"""
    max_cost: float | None = Field(
        default=None,
        ge=0,
        examples=[
            "5",
            "advisor.service.price_prompt=0.15",
            "advisor.service.price_completion=0.60",
        ],
    )
    """money in total, in the prices' currency"""
    price_prompt: float | None = Field(default=None, ge=0, examples=["0.15"])
    """price of a million prompt tokens"""
    price_completion: float | None = Field(default=None, ge=0, examples=["0.60"])
    """price of a million answer tokens"""
    completion_tokens: FromOne = 256
    """tokens that an answer has at most"""
    overhead_tokens: FromZero = 1024
    """most tokens that a server adds to the prompt: chat template, answer schema"""
    same_model: bool = False
    """if the server reports another model than before: true rejects the answer and sends no more
    requests, false only reports it
    """
    cache: str | None = Field(default=None, examples=["answers.sqlite"])
    """sqlite file of answers; runs may share it"""
    ledger: str | None = Field(default=None, examples=["spent.sqlite"])
    """sqlite file of what was spent; the caps count all of it"""
    seed: FromZero = 0
    """seed of the random part of waits"""

    @model_validator(mode="after")
    def _priced(self) -> ServiceOptions:
        if self.max_cost is not None and (
            self.price_prompt is None or self.price_completion is None
        ):
            raise ValueError(
                "advisor.service.max_cost needs price_prompt and price_completion "
                "(per million tokens): without prices nothing can be counted against it"
            )
        if self.retry_cap_s < self.retry_base_s:
            raise ValueError(
                f"advisor.service.retry_cap_s = {self.retry_cap_s} is below retry_base_s = "
                f"{self.retry_base_s}"
            )
        if self.breaker_longest_s < self.breaker_open_s:
            raise ValueError(
                f"advisor.service.breaker_longest_s = {self.breaker_longest_s} is below "
                f"breaker_open_s = {self.breaker_open_s}"
            )
        return self


# --- Configuration of what a question shows beside the bar itself: earlier bars, the advisor's record,
# news, events.


Minutes = Annotated[int, Field(ge=2, le=240)]


class ContextConfig(Section, frozen=True):
    """What the templates `window` and `desk`, and templates of your own, show beside the bar
    itself. Other templates read none of it."""

    bars: int = Field(default=20, ge=1, le=240)
    """last bars that the window shows"""
    higher: Annotated[tuple[Minutes, ...], Field(strict=False), listed(whole)] = (5, 15, 60)
    """minutes of the longer bars; only those that the bars divide are shown"""
    higher_bars: int = Field(default=4, ge=1, le=60)
    """completed longer bars of each length"""
    opening_minutes: int = Field(default=30, ge=1, le=240)
    """length of the opening range"""
    record: int = Field(default=8, ge=0, le=50)
    """last answers that the advisor's record shows, with what followed; its hit rates count all of
    them
    """
    news: str | None = Field(default=None, examples=["news.jsonl", "advisor.template=window"])
    """JSONL file of news: time, source, text and, if it concerns one market, symbol"""
    news_items: int = Field(default=5, ge=1, le=50)
    """latest news items that a question shows"""
    news_hours: float = Field(default=24.0, gt=0, le=720)
    """hours before the bar's close in which news are looked for"""
    news_chars: int = Field(default=280, ge=20, le=2000)
    """characters of a news text that are shown"""
    news_delay_s: float = Field(default=0.0, ge=0, le=86_400)
    """seconds after its stamp from which a news item, or the value of an event, counts as known"""
    calendar: str | None = Field(default=None, examples=["events.csv", "advisor.template=window"])
    """CSV file of scheduled events: time, name, importance and, if known, actual"""
    calendar_ahead_hours: float = Field(default=24.0, ge=0, le=720)
    """hours after the bar's close in which scheduled events are shown, by time and name only"""
    calendar_back_hours: float = Field(default=4.0, ge=0, le=720)
    """hours before the bar's close in which past events are shown, with their value if the file has
    it
    """
    calendar_importance: Literal["low", "medium", "high"] = "medium"
    """least importance of the events that are shown"""
