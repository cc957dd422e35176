"""Configuration of the advice service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jaxtrade.config.base import Section, listed, whole


class ServiceOptions(BaseModel, frozen=True):
    """How questions are queued, asked, limited and cached. None means no limit, or no file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    workers: int = Field(
        default=8, ge=1, le=64, description="threads that ask, each one question at a time"
    )
    deadline_s: float = Field(
        default=30.0, gt=0, description="seconds that one request may take in total"
    )
    grace_s: float = Field(
        default=2.0,
        gt=0,
        description="seconds past its request's deadline after which a stuck worker is replaced",
    )
    queue_size: int = Field(
        default=1024,
        ge=1,
        description="questions that wait at most; the least wanted is dropped first",
    )
    ttl_chunks: int = Field(
        default=64,
        ge=1,
        description="a waiting question expires after this many submissions that do not repeat it",
    )
    ready_rows: int = Field(
        default=4096, ge=1, description="answers that may wait to be taken before asking pauses"
    )
    attempts: int = Field(
        default=3, ge=1, le=10, description="attempts at a question before it has failed"
    )
    retry_share: float = Field(
        default=0.1, ge=0, le=1, description="retries per request, over recent requests"
    )
    retry_base_s: float = Field(default=0.5, gt=0, description="shortest wait before a retry")
    retry_cap_s: float = Field(
        default=20.0,
        gt=0,
        description="longest wait before a retry, unless the server asks for a longer one",
    )
    failed_for_s: float = Field(
        default=60.0, ge=0, description="seconds before a failed question may be asked again"
    )
    poison_after: int = Field(
        default=3,
        ge=1,
        description="equal faults after which a question is not asked again in this run",
    )
    breaker_failures: int = Field(
        default=5, ge=1, description="failures in a row that open the circuit breaker"
    )
    breaker_open_s: float = Field(
        default=30.0,
        gt=0,
        description="seconds of the breaker's first pause; every failed probe doubles it",
    )
    breaker_longest_s: float = Field(
        default=600.0, gt=0, description="seconds of the breaker's longest pause"
    )
    unusable_pause_after: int = Field(
        default=8,
        ge=2,
        description="unusable answers in a row (prose, cut off, wrong "
        "form) after which asking pauses, as long as the breaker would",
    )
    requests_per_minute: int | None = Field(
        default=None, ge=2, description="requests started in any minute at most", examples=["60"]
    )
    tokens_per_minute: int | None = Field(
        default=None, ge=2, description="tokens in any minute at most", examples=["100_000"]
    )
    max_calls: int | None = Field(
        default=None,
        ge=0,
        description="calls in total, including those of earlier runs with the same ledger",
        examples=["10_000"],
    )
    max_tokens: int | None = Field(
        default=None,
        ge=0,
        description="tokens in total, prompts and answers",
        examples=["5_000_000"],
    )
    max_cost: float | None = Field(
        default=None,
        ge=0,
        description="money in total, in the prices' currency",
        examples=[
            "5",
            "advisor.service.price_prompt=0.15",
            "advisor.service.price_completion=0.60",
        ],
    )
    price_prompt: float | None = Field(
        default=None, ge=0, description="price of a million prompt tokens", examples=["0.15"]
    )
    price_completion: float | None = Field(
        default=None, ge=0, description="price of a million answer tokens", examples=["0.60"]
    )
    completion_tokens: int = Field(
        default=256, ge=1, description="tokens that an answer has at most"
    )
    overhead_tokens: int = Field(
        default=1024,
        ge=0,
        description="most tokens that a server adds to the prompt: chat template, answer schema",
    )
    same_model: bool = Field(
        default=False,
        description="if the server reports another model than before: true rejects "
        "the answer and sends no more requests, false only reports it",
    )
    cache: str | None = Field(
        default=None,
        description="sqlite file of answers; runs may share it",
        examples=["answers.sqlite"],
    )
    ledger: str | None = Field(
        default=None,
        description="sqlite file of what was spent; the caps count all of it",
        examples=["spent.sqlite"],
    )
    seed: int = Field(default=0, ge=0, description="seed of the random part of waits")

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
