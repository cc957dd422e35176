"""What stands between a question and the endpoint: pauses, circuit breaker, concurrency, rates and caps.

One line is told per trouble. All state belongs to the one thread that calls.
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
from jaxtrade.advisor.host.verdict import judge, one_line
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError

_MOST_MODELS = 8  # names that are counted


class Booking(NamedTuple):
    """A request that was let through. reserved: what it may cost at most; rated: tokens taken from the rate, which
    servers estimate by prompt and answer alone; probe: the breaker's."""

    started: float
    reserved: Spend
    rated: int
    probe: bool


class Gates:
    """`name`: of the backend, for messages."""

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
        self.cache_only = ""  # why nothing is asked any more

    # --- before a request --------------------------------------------------------------------------------------------

    def are_open(self, now: float, in_flight: int) -> bool:
        """Whether one more request may start, its size apart."""
        return (not self.cache_only and in_flight < self.concurrency.limit and now >= self._pause_until
                and self.breaker.wait(now) <= 0)

    def book(self, prompt: str, first: bool, now: float, in_flight: int) -> Booking | None:
        """Let a request through, the gates being open, and book the most that it can cost; None: its size does not fit
        now. first: it is no retry."""
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
            if not in_flight:  # else what is under way may come cheaper than it was booked
                self.ask_no_more(f"{reason}; one more request does not fit")
            return None
        if self._requests:
            self._requests.take(1, now)
        if self._tokens:
            self._tokens.take(rated, now)
        if first:
            self._retries.requested()
        return Booking(now, reserved, rated, self.breaker.begin())

    def may_retry(self, answer: Answer, attempts: int) -> bool:
        """Whether a failed question may be asked again, which then is within the budget of retries."""
        if not answer.retryable or attempts >= self._options.attempts:
            return False
        if self._retries.retry():
            return True
        self._counts.retries_denied += 1
        return False

    # --- after a request ---------------------------------------------------------------------------------------------

    def account(self, booking: Booking, answer: Answer) -> None:
        """Correct what was booked by the answer's usage. Without usage the whole of it counts as spent, unless the
        server said that it did not answer."""
        self._counts.prompt_tokens += answer.prompt_tokens
        self._counts.completion_tokens += answer.completion_tokens
        used = answer.prompt_tokens + answer.completion_tokens
        if used:
            actual = Spend(1, used, self._prices.cost(answer.prompt_tokens, answer.completion_tokens))
        elif judge(answer).unbilled:
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
        """The answer; a refusal where `same_model` is wanted and the server says that it ran another one."""
        models, model = self._counts.models, one_line(answer.model, 80)
        if not self._options.same_model or not model or not models or model in models:
            return answer
        return answer._replace(advice=None, failure=Failure.REFUSED, retryable=False, model="", detail=(
            f"it ran {next(iter(models))} and says that it now runs {model}; advisor.service.same_model is set"))

    def learn(self, booking: Booking, answer: Answer, now: float) -> None:
        """What an answer tells of the endpoint."""
        verdict = judge(answer)
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
        elif change and self.breaker.openings == 1:  # the statistics have the later ones
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
        """Ask nothing more: the endpoint will not answer in this run."""
        if self.breaker.refuse(one_line(why), now):
            self._tell(f"{one_line(why)}; nothing more is asked in this run, which goes on with the advice it has")

    def ask_no_more(self, why: str) -> None:
        """Ask nothing more: it may not be paid for."""
        if not self.cache_only:
            self.cache_only = why
            self._tell(f"{why}; from here on answers come from the cache alone")

    @property
    def mode(self) -> str:
        """Whether questions are asked, and if not, why."""
        if self.breaker.refused:
            return f"refused: {self.breaker.refused}"
        return f"cache only: {self.cache_only}" if self.cache_only else f"asking, breaker {self.breaker.state}"

    @property
    def cost(self) -> float | None:
        """Of this run's reported tokens, in the prices' currency; None without prices."""
        if not self._prices.known:
            return None
        return self._prices.cost(self._counts.prompt_tokens, self._counts.completion_tokens) / MICRO


def asked_wait(answer: Answer) -> float:
    """Seconds that the server asked for; 0 where it asked for none, or for nonsense."""
    wait = answer.retry_after
    return wait if wait is not None and math.isfinite(wait) and wait > 0 else 0.0
