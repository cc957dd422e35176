"""The gates that a request must pass: pauses, circuit breaker, unusable answers, concurrency, rates
and caps.

Each problem is reported in one line. All state belongs to the one thread that calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from jaxtrade.advisor.host.breaker import Breaker
from jaxtrade.advisor.host.ledger import MICRO, Ledger, Prices, Spend, at_most
from jaxtrade.advisor.host.limits import Concurrency, PerMinute, RetryBudget
from jaxtrade.advisor.host.samples import calls_of
from jaxtrade.advisor.host.statistics import Statistics
from jaxtrade.advisor.host.types import Answer, Backend, Failure
from jaxtrade.advisor.host.unusable import UnusableWatch
from jaxtrade.advisor.host.verdict import one_line, verdict_of
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError

PAUSED = "asking, but "  # how `Gates.mode` begins while asking pauses; the cause follows
_MOST_MODELS = 8  # model names that are counted
_MOST_FORM = 300  # characters of a line about the request's form


class Booking(NamedTuple):
    """A question that passed the gates, with the requests that it takes.

    started: clock time. reserved: the most that it can cost. rated: tokens taken from the rate
        limit; servers estimate
    those from prompt and answer alone, without overhead. probe: whether it is the breaker's probe.
    trial: whether it is the probe of `UnusableWatch`. calls: requests at most.
    """

    started: float
    reserved: Spend
    rated: int
    probe: bool
    trial: bool
    calls: int

    @property
    def share(self) -> Booking:
        """What one of its requests may take."""
        reserved = Spend(*(value // self.calls for value in self.reserved))
        return self._replace(reserved=reserved, rated=self.rated // self.calls, calls=1)


class Use(NamedTuple):
    """What a service's answers are for.

    goes_on: the work goes on without them, as training does. Otherwise it waits and shows
        `Gates.mode` itself, so that
    pauses get no lines. doubted: the same run has asked before and got unusable answers alone.
    """

    goes_on: bool = True
    doubted: bool = False


TRAINING = Use()


class Gates:
    """The gates of one service. stopping: set at the end of the run; that asking pauses is then no
    news.
    """

    def __init__(
        self,
        options: ServiceOptions,
        ledger: Ledger,
        counts: Statistics,
        backend: Backend,
        tell: Callable[[str], None],
        now: float,
        use: Use = TRAINING,
    ) -> None:
        self._options, self._ledger, self._counts = options, ledger, counts
        self._calls = calls_of(backend)
        self._tell = lambda line: tell(f"advisor {one_line(backend.name)}: {line}")
        self.unusable = UnusableWatch(options, counts, backend.identity(), use.doubted)
        self.stopping = False
        self._goes_on = use.goes_on
        self._outage = ""  # why the breaker has last opened
        self._outage_told = False
        self._fallback = self._fallback_told = (
            ""  # a change of the request's form; until an answer to it has come
        )
        self.breaker = Breaker(
            options.breaker_failures,
            first=options.breaker_open_s,
            longest=options.breaker_longest_s,
        )
        self.concurrency = Concurrency(options.workers)
        self._retries = RetryBudget(options.retry_share)
        self._requests = (
            PerMinute(options.requests_per_minute, now) if options.requests_per_minute else None
        )
        self._tokens = (
            PerMinute(options.tokens_per_minute, now) if options.tokens_per_minute else None
        )
        self._prices = Prices(options.price_prompt, options.price_completion)
        self._pause_until = -math.inf
        self.cache_only = ""  # why no more requests are sent, or ""

    # --- before a request --------------------------------------------------------------------------------------------

    def are_open(self, now: float, in_flight: int) -> bool:
        """Whether one more request may start, apart from its size."""
        # Until an answer shows whether the server accepts a new form, one request at a time tries
        # it.
        most = 1 if self._fallback else self.concurrency.limit
        return (
            not self.cache_only
            and in_flight < most
            and now >= self._pause_until
            and self.breaker.wait(now) <= 0
            and self.unusable.lets(now, in_flight)
        )

    def book(self, prompt: str, first: bool, now: float, in_flight: int) -> Booking | None:
        """Let a question through and reserve the most that it can cost. Call it only when
        `are_open` is true.

        first: whether this is the first attempt, not a retry. Returns None where the request's size
            does not fit now.
        """
        options, calls = self._options, self._calls
        one = at_most(prompt, options.overhead_tokens, options.completion_tokens, self._prices)
        reserved = Spend(*(calls * value for value in one))
        rated = reserved.tokens - calls * options.overhead_tokens
        if (self._requests and self._requests.wait(calls, now) > 0) or (
            self._tokens and self._tokens.wait(rated, now) > 0
        ):
            return None
        try:
            reason = self._ledger.reserve(reserved)
        except StorageError as error:
            self.ask_no_more(str(error))
            return None
        if reason:
            if (
                not in_flight
            ):  # otherwise requests in flight may cost less than reserved and free some of the cap
                self.ask_no_more(f"{reason}; one more request does not fit")
            return None
        # Take from the rate limits only now, when nothing else can stop the request.
        if self._requests:
            self._requests.take(calls, now)
        if self._tokens:
            self._tokens.take(rated, now)
        if first:
            self._retries.requested()
        self._counts.asked += calls
        return Booking(now, reserved, rated, self.breaker.begin(), self.unusable.begin(), calls)

    def may_retry(self, answer: Answer, attempts: int) -> bool:
        """Whether a failed question may be sent again. If so, the retry is taken from the retry
        budget.
        """
        if not answer.retryable or attempts >= self._options.attempts:
            return False
        if self._retries.retry():
            return True
        self._counts.retries_denied += 1
        return False

    # --- after a request ---------------------------------------------------------------------------------------------

    def account(self, booking: Booking, answer: Answer) -> None:
        """Replace a reservation by the answer's reported usage.

        Without reported usage the whole reservation counts as spent, unless the server's status
        says that it did not answer. Requests that were not made are given back.
        """
        parts, share = (answer.parts, booking.share) if answer.parts else ((answer,), booking)
        paid = [self._paid(share, part) for part in parts]
        unmade = (booking.calls - len(parts)) if answer.parts else 0
        self._counts.asked -= unmade
        if self._requests:
            self._requests.give_back(unmade)
        if self._tokens:
            self._tokens.give_back(booking.rated - sum(used for _, used in paid))
        try:
            self._ledger.settle(
                booking.reserved, Spend(*map(sum, zip(*(spend for spend, _ in paid), strict=True)))
            )
        except StorageError as error:
            self.ask_no_more(str(error))

    def _paid(self, most: Booking, answer: Answer) -> tuple[Spend, int]:
        """What the answer of one request has cost, and its tokens for the rate limit."""
        self._counts.prompt_tokens += answer.prompt_tokens
        self._counts.completion_tokens += answer.completion_tokens
        used = answer.prompt_tokens + answer.completion_tokens
        if used:
            return Spend(
                1, used, self._prices.cost(answer.prompt_tokens, answer.completion_tokens)
            ), used
        if verdict_of(answer).unbilled:
            return Spend(1), 0
        self._counts.usage_unknown += 1
        return most.reserved, most.rated

    def of_one_model(self, answer: Answer) -> Answer:
        """The answer, or a refusal where `same_model` is set and the server reports another model
        than before.
        """
        names = [name for part in answer.parts or (answer,) if (name := one_line(part.model, 80))]
        known = [*self._counts.models] or names[:1]
        another = next((name for name in names if name not in known), None)
        if not self._options.same_model or another is None:
            return answer
        return answer._replace(
            advice=None,
            failure=Failure.REFUSED,
            retryable=False,
            model="",
            parts=(),
            detail=(
                f"it ran {known[0]} and says that it now runs {another}; advisor.service.same_model is set"
            ),
        )

    def learn(self, booking: Booking, answer: Answer, now: float) -> None:
        """Update concurrency, breakers and counts with what an answer says about the endpoint."""
        self._note_form(answer)
        probe = booking.probe
        for part in answer.parts or (answer,):
            self._learn_one(booking.started, probe, part, now)
            probe = False
        line = self.unusable.end(answer, booking.trial, now)
        if line:
            self._tell_pause(line, self.unusable.state != "closed")
        if answer.failure is Failure.REFUSED:
            self.refuse(f"it refuses ({answer.detail or answer.status})", now)

    def _learn_one(self, started: float, probe: bool, answer: Answer, now: float) -> None:
        """Learn from the answer of one request."""
        verdict = verdict_of(answer)
        self._note_model(answer.model)
        if answer.failure is Failure.STOPPED:
            self._counts.stopped += 1
        elif answer.failure is not None:
            self._counts.failures[answer.failure.value] += 1
        if answer.status:
            self._counts.http[answer.status] += 1
        if verdict.overload:
            self.concurrency.overloaded(started, now)
            self._pause_until = max(
                self._pause_until, now + min(asked_wait(answer), self._options.breaker_longest_s)
            )
        elif verdict.healthy:
            self.concurrency.succeeded()
        opened = self.breaker.end(verdict.healthy, probe, now) == "opened"
        if line := self.unusable.count(answer):
            self._tell(line)
        self._note_outage(opened, answer)

    def _note_model(self, model: str) -> None:
        models, model = self._counts.models, one_line(model, 80)
        if model and model not in models and len(models) == 1:
            self._tell(
                f"the server ran {next(iter(models))} and says that it now runs {model}; the cache does not "
                "tell their answers apart"
            )
        if model and (model in models or len(models) < _MOST_MODELS):
            models[model] += 1

    def _note_outage(self, opened: bool, answer: Answer) -> None:
        """Report the first outage: one line when the breaker opens, one when a usable answer has
        come since.
        """
        if opened and answer.failure not in (None, Failure.REFUSED):
            self._outage = (
                f"too many requests fail, the last one by {answer.failure.value} "
                f"({one_line(answer.detail) or answer.status})"
            )
            if self.breaker.openings == 1:  # later outages appear in the statistics only
                self._outage_told = self._tell_pause(self._outage, True)
        elif self._outage_told and answer.advice is not None and self.breaker.state == "closed":
            self._outage_told = False
            self._tell("answers again")

    def _tell_pause(self, line: str, begins: bool) -> bool:
        """Report that asking pauses, or goes on. Returns whether it was reported."""
        if not self._goes_on or self.stopping:
            return False
        self._tell(
            line
            + (
                f"; next try in {self._options.breaker_open_s:g} s, the run goes on without new advice"
                if begins
                else ""
            )
        )
        return True

    def _note_form(self, answer: Answer) -> None:
        """Report a change of the request's form once an answer has come to a request of the new
        form.
        """
        if answer.failure is Failure.UNSUPPORTED:
            if answer.detail != self._fallback_told:
                self._fallback = answer.detail
        elif self._fallback and answer.failure is not Failure.STOPPED:
            self._fallback, self._fallback_told = "", self._fallback
            self._tell(one_line(self._fallback_told, _MOST_FORM))

    def refuse(self, why: str, now: float) -> None:
        """Send no more requests: the endpoint will not answer in this run."""
        if self.breaker.refuse(one_line(why), now):
            self._tell(
                f"{one_line(why)}; nothing more is asked in this run, which goes on with the advice it has"
            )

    def ask_no_more(self, why: str) -> None:
        """Send no more requests: a cap is reached, or spending cannot be counted. The cache still
        answers.
        """
        if not self.cache_only:
            self.cache_only = why
            self._tell(f"{why}; from here on answers come from the cache alone")

    @property
    def mode(self) -> str:
        """Whether requests are sent, and if not, why."""
        if self.breaker.refused:
            return f"refused: {self.breaker.refused}"
        if self.cache_only:
            return f"cache only: {self.cache_only}"
        if self.breaker.state != "closed":
            return f"{PAUSED}{self._outage or f'breaker {self.breaker.state}'}"
        return f"{PAUSED}{self.unusable.mode}" if self.unusable.mode else "asking, breaker closed"

    @property
    def cost(self) -> float | None:
        """Cost of the tokens reported in this run, in the currency of the prices; None without
        prices.
        """
        if not self._prices.known:
            return None
        return self._prices.cost(self._counts.prompt_tokens, self._counts.completion_tokens) / MICRO


def asked_wait(answer: Answer) -> float:
    """Seconds that the server asks to wait; 0 where it asks for none or for a value that makes no
    sense.
    """
    wait = answer.retry_after
    return wait if wait is not None and math.isfinite(wait) and wait > 0 else 0.0
