"""The gates that a request must pass: pauses, circuit breaker, concurrency, rates and caps.

Each problem is reported in one line. All state belongs to the one thread that calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from jaxtrade.advisor.host.breaker import Breaker
from jaxtrade.advisor.host.ledger import MICRO, Ledger, Prices, Spend, at_most
from jaxtrade.advisor.host.limits import Concurrency, PerMinute, RetryBudget
from jaxtrade.advisor.host.statistics import Statistics
from jaxtrade.advisor.host.types import Answer, Failure
from jaxtrade.advisor.host.verdict import one_line, verdict_of
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError

_MOST_MODELS = 8  # model names that are counted


class Booking(NamedTuple):
    """A request that passed the gates.

    started: clock time. reserved: the most that it can cost. rated: tokens taken from the rate limit; servers estimate
    those from prompt and answer alone, without overhead. probe: whether it is the breaker's probe.
    """

    started: float
    reserved: Spend
    rated: int
    probe: bool


class Gates:
    """The gates of one service. name: the backend's, for messages."""

    def __init__(self, options: ServiceOptions, ledger: Ledger, counts: Statistics, name: str,
                 tell: Callable[[str], None], now: float) -> None:
        self._options, self._ledger, self._counts = options, ledger, counts
        self._tell = lambda line: tell(f"advisor {one_line(name)}: {line}")
        self.breaker = Breaker(options.breaker_failures, first=options.breaker_open_s,
                               longest=options.breaker_longest_s)
        self.concurrency = Concurrency(options.workers)
        self._retries = RetryBudget(options.retry_share)
        self._requests = PerMinute(options.requests_per_minute, now) if options.requests_per_minute else None
        self._tokens = PerMinute(options.tokens_per_minute, now) if options.tokens_per_minute else None
        self._prices = Prices(options.price_prompt, options.price_completion)
        self._pause_until = -math.inf
        self.cache_only = ""  # why no more requests are sent, or ""

    # --- before a request --------------------------------------------------------------------------------------------

    def are_open(self, now: float, in_flight: int) -> bool:
        """Whether one more request may start, apart from its size."""
        return (not self.cache_only and in_flight < self.concurrency.limit and now >= self._pause_until
                and self.breaker.wait(now) <= 0)

    def book(self, prompt: str, first: bool, now: float, in_flight: int) -> Booking | None:
        """Let a request through and reserve the most that it can cost. Call it only when `are_open` is true.

        first: whether this is the first attempt, not a retry. Returns None where the request's size does not fit now.
        """
        options = self._options
        reserved = at_most(prompt, options.overhead_tokens, options.completion_tokens, self._prices)
        rated = reserved.tokens - options.overhead_tokens
        if ((self._requests and self._requests.wait(1, now) > 0)
                or (self._tokens and self._tokens.wait(rated, now) > 0)):
            return None
        try:
            reason = self._ledger.reserve(reserved)
        except StorageError as error:
            self.ask_no_more(str(error))
            return None
        if reason:
            if not in_flight:  # otherwise requests in flight may cost less than reserved and free some of the cap
                self.ask_no_more(f"{reason}; one more request does not fit")
            return None
        # Take from the rate limits only now, when nothing else can stop the request.
        if self._requests:
            self._requests.take(1, now)
        if self._tokens:
            self._tokens.take(rated, now)
        if first:
            self._retries.requested()
        return Booking(now, reserved, rated, self.breaker.begin())

    def may_retry(self, answer: Answer, attempts: int) -> bool:
        """Whether a failed question may be sent again. If so, the retry is taken from the retry budget."""
        if not answer.retryable or attempts >= self._options.attempts:
            return False
        if self._retries.retry():
            return True
        self._counts.retries_denied += 1
        return False

    # --- after a request ---------------------------------------------------------------------------------------------

    def account(self, booking: Booking, answer: Answer) -> None:
        """Replace a reservation by the answer's reported usage.

        Without reported usage the whole reservation counts as spent, unless the server's status says that it did not
        answer.
        """
        self._counts.prompt_tokens += answer.prompt_tokens
        self._counts.completion_tokens += answer.completion_tokens
        used = answer.prompt_tokens + answer.completion_tokens
        if used:
            actual = Spend(1, used, self._prices.cost(answer.prompt_tokens, answer.completion_tokens))
        elif verdict_of(answer).unbilled:
            actual = Spend(1)
        else:
            actual, used = booking.reserved, booking.rated
            self._counts.usage_unknown += 1
        if self._tokens:
            self._tokens.give_back(booking.rated - used)
        try:
            self._ledger.settle(booking.reserved, actual)
        except StorageError as error:
            self.ask_no_more(str(error))

    def of_one_model(self, answer: Answer) -> Answer:
        """The answer, or a refusal where `same_model` is set and the server reports another model than before."""
        models, model = self._counts.models, one_line(answer.model, 80)
        if not self._options.same_model or not model or not models or model in models:
            return answer
        return answer._replace(advice=None, failure=Failure.REFUSED, retryable=False, model="", detail=(
            f"it ran {next(iter(models))} and says that it now runs {model}; advisor.service.same_model is set"))

    def learn(self, booking: Booking, answer: Answer, now: float) -> None:
        """Update concurrency, breaker and counts with what an answer says about the endpoint."""
        verdict = verdict_of(answer)
        self._note_model(answer.model)
        if answer.failure is not None:
            self._counts.failures[answer.failure.value] += 1
        if answer.status:
            self._counts.http[answer.status] += 1
        if verdict.overload:
            self.concurrency.overloaded(booking.started, now)
            self._pause_until = max(self._pause_until, now + min(asked_wait(answer), self._options.breaker_longest_s))
        elif verdict.healthy:
            self.concurrency.succeeded()
        change = self.breaker.end(verdict.healthy, booking.probe, now)
        if answer.failure is Failure.REFUSED:
            self.refuse(f"it refuses ({answer.detail or answer.status})", now)
        elif change and self.breaker.openings == 1:  # later openings appear in the statistics only
            self._tell_change(change, answer)

    def _note_model(self, model: str) -> None:
        models, model = self._counts.models, one_line(model, 80)
        if model and model not in models and len(models) == 1:
            self._tell(f"the server ran {next(iter(models))} and says that it now runs {model}; the cache does not "
                       "tell their answers apart")
        if model and (model in models or len(models) < _MOST_MODELS):
            models[model] += 1

    def _tell_change(self, change: str, answer: Answer) -> None:
        if change == "opened" and answer.failure is not None:
            self._tell(f"too many requests fail, the last one by {answer.failure.value} "
                       f"({one_line(answer.detail) or answer.status}); next try in "
                       f"{self._options.breaker_open_s:g} s, the run goes on without new advice")
        elif change == "closed":
            self._tell("answers again")

    def refuse(self, why: str, now: float) -> None:
        """Send no more requests: the endpoint will not answer in this run."""
        if self.breaker.refuse(one_line(why), now):
            self._tell(f"{one_line(why)}; nothing more is asked in this run, which goes on with the advice it has")

    def ask_no_more(self, why: str) -> None:
        """Send no more requests: a cap is reached, or spending cannot be counted. The cache still answers."""
        if not self.cache_only:
            self.cache_only = why
            self._tell(f"{why}; from here on answers come from the cache alone")

    @property
    def mode(self) -> str:
        """Whether requests are sent, and if not, why."""
        if self.breaker.refused:
            return f"refused: {self.breaker.refused}"
        return f"cache only: {self.cache_only}" if self.cache_only else f"asking, breaker {self.breaker.state}"

    @property
    def cost(self) -> float | None:
        """Cost of the tokens reported in this run, in the currency of the prices; None without prices."""
        if not self._prices.known:
            return None
        return self._prices.cost(self._counts.prompt_tokens, self._counts.completion_tokens) / MICRO


def asked_wait(answer: Answer) -> float:
    """Seconds that the server asks to wait; 0 where it asks for none or for a value that makes no sense."""
    wait = answer.retry_after
    return wait if wait is not None and math.isfinite(wait) and wait > 0 else 0.0
