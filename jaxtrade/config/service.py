"""Configuration of the advice service: short names of servers, its limits, what a question shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from jaxtrade.config.base import (
    FromOne,
    FromZero,
    NotNegative,
    Positive,
    Section,
    Share,
    accept_list,
    declare_bounds,
    parse_whole,
)

# Short names of common servers. A configuration turns them into the ordinary kind, a URL, and its
# options.
#
# ollama:NAME    http://127.0.0.1:11434/v1, with the model NAME
# openai:NAME    https://api.openai.com/v1, with the model NAME and the key in the variable
# OPENAI_API_KEY
# vllm:URL       the URL of `vllm serve` (with or without /v1), with the only model that it serves
#
# A shortcut may stand behind a mock that changes another kind, as mock:delayed:5/ollama:NAME.
# Because
# the configuration resolves it, run folders, caches and journals hold the URL and the options
# alone.

Option = str | int | float | bool


class ResolvedKind(NamedTuple):
    """A kind without shortcuts, and the options that its shortcut stands for."""

    kind: str
    options: Mapping[str, Option]


# Servers with a short name: the base URL, and what `advisor.options` holds besides the model.
SERVERS: Mapping[str, ResolvedKind] = {
    "ollama": ResolvedKind("http://127.0.0.1:11434/v1", {}),
    "openai": ResolvedKind(
        "https://api.openai.com/v1",
        {"key_env": "OPENAI_API_KEY", "tokens_key": "max_completion_tokens"},
    ),
}
VLLM = "vllm"


def resolve_shortcut(kind: str) -> ResolvedKind:
    """Return the kind and the options that a shortcut stands for.

    Any other kind is returned as it is, without options. Raises ValueError for a shortcut without a
    model or a URL.
    """
    own = parts_of(kind)[-1]
    head, _, rest = own.partition(":")
    if head == VLLM:
        url, options = _served_by_vllm(rest), {}
    elif head not in SERVERS:
        return ResolvedKind(kind, {})
    elif rest:
        url, options = SERVERS[head].kind, {**SERVERS[head].options, "model": rest}
    else:
        raise ValueError(
            f"advisor.kind = '{own[:60]}' names no model; expected {head}:NAME (jaxtrade advise "
            f"models {head} lists them)"
        )
    return ResolvedKind(kind.removesuffix(own) + url, options)


def parts_of(kind: str) -> list[str]:
    """List the backends in a kind, outermost first.

    Of `mock:slow:5/rules` they are mock:slow:5, then rules.
    """
    own, _, other = kind.partition("/") if kind.startswith("mock:") else (kind, "", "")
    return [own, *(parts_of(other) if other else ())]


def is_server(kind: str) -> bool:
    """Return whether a kind is the URL of a server."""
    return kind.startswith(("http://", "https://"))


def base_url(server: str) -> ResolvedKind:
    """Return the base URL of a server that is named by URL or by shortcut, and its options.

    The model may be left out. Raises ValueError for `vllm` without a URL.
    """
    head, _, rest = server.partition(":")
    if head in SERVERS and not rest:
        return SERVERS[head]
    return resolve_shortcut(server)


def apply_shortcut(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve the shortcut in the values of the section `advisor`.

    Options that are given come before the shortcut's. Raises ValueError where the shortcut names
    another model than `advisor.options.model`.
    """
    kind, options = values.get("kind"), values.get("options", {})
    if not isinstance(kind, str) or not isinstance(options, Mapping):
        return values  # the checks of the section itself say what is wrong
    plain, stands_for = resolve_shortcut(kind)
    if plain == kind:
        return values
    named, given = stands_for.get("model"), options.get("model")
    if None not in (named, given) and given != named:
        raise ValueError(
            f"advisor.kind = {kind} and advisor.options.model = {given} name two models; give one of them"
        )
    if "key_file" in options:  # a key is read from one place
        stands_for = {name: value for name, value in stands_for.items() if name != "key_env"}
    return {**values, "kind": plain, "options": {**stands_for, **options}}


def _served_by_vllm(url: str) -> str:
    """Return the base URL of a vLLM server, which answers below /v1.

    Raises ValueError for anything but a URL.
    """
    if not is_server(url):
        raise ValueError(
            f"advisor.kind = '{VLLM}:{url[:60]}' holds no URL; expected {VLLM}:URL, as {VLLM}:http://127.0.0.1:8000"
        )
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/v1")


class ServiceOptions(Section, frozen=True):
    """How questions are queued, asked, limited and cached. None means no limit, or no file."""

    workers: int = declare_bounds(8, 1, 64)
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
    attempts: int = declare_bounds(3, 1, 10)
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
    unusable_pause_after: int = declare_bounds(8, 2)
    """unusable answers in a row (prose, cut off, wrong form) after which asking pauses, as long as
    the breaker would
    """
    requests_per_minute: int | None = declare_bounds(None, 2)
    """requests started in any minute at most"""
    tokens_per_minute: int | None = declare_bounds(None, 2)
    """tokens in any minute at most"""
    max_calls: FromZero | None = None
    """calls in total, including those of earlier runs with the same ledger"""
    max_tokens: FromZero | None = None
    """tokens in total, prompts and answers"""
    max_cost: NotNegative | None = None
    """money in total, in the prices' currency"""
    price_prompt: NotNegative | None = None
    """price of a million prompt tokens"""
    price_completion: NotNegative | None = None
    """price of a million answer tokens"""
    completion_tokens: FromOne = 256
    """tokens that an answer has at most"""
    overhead_tokens: FromZero = 1024
    """most tokens that a server adds to the prompt: chat template, answer schema"""
    same_model: bool = False
    """if the server reports another model than before: true rejects the answer and sends no more
    requests, false only reports it
    """
    cache: str | None = None
    """sqlite file of answers; runs may share it"""
    ledger: str | None = None
    """sqlite file of what was spent; the caps count all of it"""
    seed: FromZero = 0
    """seed of the random part of waits"""

    @property
    def has_cap(self) -> bool:
        """Whether calls, tokens or cost are."""
        return (self.max_calls, self.max_tokens, self.max_cost) != (None, None, None)

    @property
    def has_price(self) -> bool:
        """Whether a price is given."""
        return (self.price_prompt, self.price_completion) != (None, None)

    @model_validator(mode="after")
    def _check_price(self) -> ServiceOptions:
        if self.max_cost is not None and None in (self.price_prompt, self.price_completion):
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
    """What the templates `window` and `desk`, and your own, show beside the bar itself.

    Other templates read none of it.
    """

    bars: int = declare_bounds(20, 1, 240)
    """last bars that the window shows"""
    higher: Annotated[tuple[Minutes, ...], Field(strict=False), accept_list(parse_whole)] = (
        5,
        15,
        60,
    )
    """minutes of the longer bars; only those that the bars divide are shown"""
    higher_bars: int = declare_bounds(4, 1, 60)
    """completed longer bars of each length"""
    opening_minutes: int = declare_bounds(30, 1, 240)
    """length of the opening range"""
    record: int = declare_bounds(8, 0, 50)
    """last answers that the advisor's record shows, with what followed; its hit rates count all of
    them
    """
    news: str | None = None
    """JSONL file of news: time, source, text and, if it concerns one market, symbol"""
    news_items: int = declare_bounds(5, 1, 50)
    """latest news items that a question shows"""
    news_hours: float = Field(default=24.0, gt=0, le=720)
    """hours before the bar's close in which news are looked for"""
    news_chars: int = declare_bounds(280, 20, 2000)
    """characters of a news text that are shown"""
    news_delay_s: float = declare_bounds(0.0, 0, 86_400)
    """seconds after its stamp from which a news item, or the value of an event, counts as known"""
    calendar: str | None = None
    """CSV file of scheduled events: time, name, importance and, if known, actual"""
    calendar_ahead_hours: float = declare_bounds(24.0, 0, 720)
    """hours after the bar's close in which scheduled events are shown, by time and name only"""
    calendar_back_hours: float = declare_bounds(4.0, 0, 720)
    """hours before the bar's close in which past events are shown, with their value if the file has
    it
    """
    calendar_importance: Literal["low", "medium", "high"] = "medium"
    """least importance of the events that are shown"""
