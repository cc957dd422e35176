"""What a request must pass: limits, circuit breakers, caps; and what an answer changes in them.

Each problem is reported in one line. All state belongs to the one thread that calls. Nothing here
does I/O, apart from the ledger's file. Times come from one monotonic clock, in seconds.

A server that answers every request with prose is healthy, and every answer is paid for. The circuit
breaker of the endpoint therefore never opens. A second one does: the first unusable answer is
reported with a remedy, and `advisor.service.unusable_pause_after` (N) of them in a row pause
asking. One probe at a time then tests the server, after pauses that double. A usable answer ends
the pause.

The bound on requests: until the last answer was usable, those in flight and those in the row
together are at most N. A server that never gives a usable answer therefore gets N requests, and the
probes. One that stops giving usable answers gets N more, or those in flight at that moment if they
are more. A request whose worker hangs is given up and counts no longer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtrade.advisor.host.backends import calls_of
from jaxtrade.advisor.host.ledger import MICRO, Ledger, Spend, at_most, cost_of, spend_of
from jaxtrade.advisor.host.replies import (
    WHAT,
    is_unusable,
    one_line,
    reason_of,
    reasons_text,
    remedy,
    verdict_of,
)
from jaxtrade.advisor.host.types import Answer, Backend, Failure, ServiceCounts
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError

_MINUTE = 60.0
_MOST_SHOWN = 80  # characters of an answer in a message
_STEP = 10  # successes after which one more request may be in flight
_MOST_RETRIES = 10.0
_SMOOTH = 0.1  # share of a minute's allowance that may be used in one burst


class PerMinute:
    """A token bucket that lets at most `limit` (2 or more) through in any 60 seconds.

    A single take above the limit is the exception.

    The burst counts against the minute's allowance: `burst` at once, and the other `limit - burst`
    spread over the minute.
    """

    def __init__(self, limit: float, now: float) -> None:
        self._burst = max(1.0, _SMOOTH * limit)
        self._rate = (limit - self._burst) / _MINUTE
        self._level, self._at = self._burst, now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` may be taken.

        An amount above the burst may be taken when the bucket is full. The level then goes below
        zero, and later takes wait longer.
        """
        level = min(self._burst, self._level + (now - self._at) * self._rate)
        return max(0.0, (min(amount, self._burst) - level) / self._rate)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` at the time `now` (seconds)."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now

    def give_back(self, amount: float) -> None:
        """Return an amount that was taken but not used."""
        self._level = min(self._burst, self._level + amount)


class Concurrency:
    """The limit on requests in flight: additive increase, multiplicative decrease.

    This is AIMD (Chiu and Jain 1989). It rises by one per `_STEP` successes and halves at a sign of
    overload. It stays between 1 and `most`.

    It rises by one per `_STEP` successes and halves at a sign of overload. It stays between 1 and
    `most`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._successes = 0
        self._cut_at = float("-inf")
        self.limit = most

    def count_success(self) -> None:
        """Count a success, which may raise the limit."""
        self._successes += 1
        if self._successes >= _STEP:
            self._successes = 0
            self.limit = min(self._most, self.limit + 1)

    def note_overload(self, started: float, now: float) -> None:
        """Note that a request sent at `started` met overload.

        Requests sent up to the last cut are ignored: they do not show whether that cut was enough.
        """
        if started > self._cut_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._cut_at = now


class RetryBudget:
    """A retry budget, so that an outage cannot multiply the load.

    Each new question adds `share` retries, up to `_MOST_RETRIES`. The budget starts with three.
    """

    def __init__(self, share: float = 0.1) -> None:
        self._share = share
        self._level = 3.0 if share > 0 else 0.0

    def count_request(self) -> None:
        """Note that a question was sent for the first time."""
        self._level = min(_MOST_RETRIES, self._level + self._share)

    def retry(self) -> bool:
        """Take one retry from the budget. Returns False where none is left."""
        if self._level < 1.0 - 1e-9:
            return False
        self._level -= 1.0
        return True


@dataclass(eq=False)
class Breaker:
    """A circuit breaker for one endpoint.

    It opens after `consecutive` failures in a row, or when at least `share` of the last 20
    requests failed. While it is open no request starts for `first` seconds. Then one request, the
    probe, decides: success closes the breaker, failure doubles the pause up to `longest`. A refusal
    (credentials, model, quota) opens it for good.
    """

    consecutive: int = 5
    share: float = 0.5
    first: float = 30.0
    longest: float = 600.0

    def __post_init__(self) -> None:
        self._recent: deque[bool] = deque(maxlen=20)
        self.in_a_row = 0  # failures since the last success, while it is closed
        self._pause = self.first
        self._is_open, self._opened = False, 0.0  # since when
        self._until = 0.0
        self._probing = False
        self._open_before = 0.0  # seconds of earlier openings
        self.refused = ""  # why it is open for good, or ""
        self.openings = 0

    @property
    def state(self) -> str:
        """The state, for reports: closed, open, half open or open for good.

        At half open one attempt is being made.
        """
        if self.refused:
            return "open for good"
        return "half open" if self._probing else "open" if self._is_open else "closed"

    def open_seconds(self, now: float) -> float:
        """Return the seconds that it has been open in total."""
        return self._open_before + (now - self._opened if self._is_open else 0.0)

    def wait(self, now: float) -> float:
        """Return the seconds until a request may start.

        It is inf while a probe is in flight, and after a refusal.
        """
        if self.refused or self._probing:
            return math.inf
        return max(0.0, self._until - now) if self._is_open else 0.0

    def begin(self) -> bool:
        """Note that a request starts, and return whether this request is the probe.

        Call it only when `wait` is 0.
        """
        self._probing = self._is_open
        return self._probing

    def end(self, ok: bool | None, probe: bool, now: float) -> str:
        """Note that a request has ended. Returns "opened", "closed" or "" (no change).

        Requests that started before the breaker opened and end while it is open change nothing.

        Args:
            ok: whether the endpoint is healthy; None where the result says nothing about it.
        """
        if self._is_open and not probe:
            return ""
        if probe:
            return self._end_probe(ok, now)
        if ok is None:
            return ""
        self.in_a_row = 0 if ok else self.in_a_row + 1
        self._recent.append(ok)
        full = len(self._recent) == self._recent.maxlen
        if self.in_a_row >= self.consecutive or (
            full and self._recent.count(False) >= self.share * len(self._recent)
        ):
            self._open(now, self.first)
            return "opened"
        return ""

    def _end_probe(self, ok: bool | None, now: float) -> str:
        self._probing = False
        # A good answer does not take back a refusal that came while the probe was in flight.
        if self.refused:
            return ""
        if ok and self._is_open:
            self._open_before += now - self._opened
            self._is_open = False
            self.in_a_row = 0
            self._recent.clear()
            return "closed"
        if ok is False:
            self._until = now + (pause := min(2 * self._pause, self.longest))
            self._pause = pause
        return ""

    def _open(self, now: float, pause: float) -> None:
        self._is_open, self._opened, self._until, self._pause = True, now, now + pause, pause
        self.openings += 1

    def refuse(self, reason: str, now: float) -> bool:
        """Open the breaker for good. Returns False where it already was."""
        if self.refused:
            return False
        self.refused = reason
        if not self._is_open:
            self._open(now, math.inf)
        return True


PAUSED = "asking, but "  # how `Gates.mode` begins while asking pauses; the cause follows
_MOST_MODELS = 8  # model names that are counted
_MOST_FORM = 300  # characters of a line about the request's form


class Booking(NamedTuple):
    """A question that passed the gates, with the requests that it takes.

    started: clock time.
    reserved: the most that it can cost.
    rated: tokens taken from the rate limit; servers estimate those from prompt and answer alone,
        without overhead.
    probe: whether it is the breaker's probe.
    trial: whether it is the probe after unusable answers.
    calls: requests at most.
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


class ServiceUse(NamedTuple):
    """What a service's answers are for.

    goes_on: the work goes on without them, as training does. Otherwise it waits and shows
        `Gates.mode` itself, so that pauses get no lines.
    doubted: the same run has asked before and got unusable answers alone.
    """

    goes_on: bool = True
    doubted: bool = False


TRAINING = ServiceUse()


class Gates:
    """The gates of one service.

    stopping: set at the end of the run; that asking pauses is then no news.
    """

    def __init__(
        self,
        options: ServiceOptions,
        ledger: Ledger,
        counts: ServiceCounts,
        backend: Backend,
        log: Callable[[str], None],
        now: float,
        use: ServiceUse,
    ) -> None:
        self._options, self._ledger, self._counts = options, ledger, counts
        self._calls = calls_of(backend)
        self._log = lambda line: log(f"advisor {one_line(backend.name)}: {line}")
        self._identity = backend.identity()
        self.unusable = Breaker(
            1 if use.doubted else options.unusable_pause_after,
            share=math.inf,
            first=options.breaker_open_s,
            longest=options.breaker_longest_s,
        )
        self._usable = False  # whether the last answer was usable
        self._unusable_logged, self._unusable_pause_logged = use.doubted, False
        self.stopping = False
        self._goes_on = use.goes_on
        # How a line ends that says that asking pauses.
        self._pauses = (
            f"; next try in {options.breaker_open_s:g} s, the run goes on without new advice"
        )
        self._outage = ""  # why the breaker has last opened
        self._outage_logged = False
        self._fallback = self._fallback_logged = (
            ""  # a change of the request's form; until an answer to it has come
        )
        self.breaker = Breaker(
            options.breaker_failures,
            first=options.breaker_open_s,
            longest=options.breaker_longest_s,
        )
        self.concurrency = Concurrency(options.workers)
        self._retries = RetryBudget(options.retry_share)
        limits = enumerate((options.requests_per_minute, options.tokens_per_minute))
        self._rates = [(of, PerMinute(limit, now)) for of, limit in limits if limit]
        self._pause_until = -math.inf
        self.cache_only = ""  # why no more requests are sent, or ""

    # --- before a request --------------------------------------------------------------------------------------------

    def are_open(self, now: float, in_flight: int) -> bool:
        """Return whether one more request may start, apart from its size."""
        # Until an answer shows whether the server accepts a new form, one request at a time tries
        # it.
        most = 1 if self._fallback else self.concurrency.limit
        watch = self.unusable
        doubted = watch.state == "closed" and not self._usable
        return (
            not self.cache_only
            and in_flight < most
            and now >= self._pause_until
            and self.breaker.wait(now) <= 0
            and watch.wait(now) <= 0
            and not (doubted and watch.in_a_row + in_flight >= watch.consecutive)
        )

    def book(self, prompt: str, first: bool, now: float, in_flight: int) -> Booking | None:
        """Let a question through and reserve the most that it can cost.

        Call it only when `are_open` is true. Returns None where the request's size
        does not fit now.

        Args:
            first: whether this is the first attempt, not a retry.
        """
        options, calls = self._options, self._calls
        one = at_most(prompt, options)
        reserved = Spend(*(calls * value for value in one))
        rated = reserved.tokens - calls * options.overhead_tokens
        amounts = (calls, rated)
        if any(rate.wait(amounts[of], now) > 0 for of, rate in self._rates):
            return None
        try:
            reason = self._ledger.reserve(reserved)
        except StorageError as error:
            self.ask_no_more(str(error))
            return None
        if reason:
            # Requests in flight may cost less than reserved and free some of the cap.
            if not in_flight:
                self.ask_no_more(f"{reason}; one more request does not fit")
            return None
        # Take from the rate limits only now, when nothing else can stop the request.
        for of, rate in self._rates:
            rate.take(amounts[of], now)
        if first:
            self._retries.count_request()
        self._counts.asked += calls
        return Booking(now, reserved, rated, self.breaker.begin(), self.unusable.begin(), calls)

    def may_retry(self, answer: Answer, attempts: int) -> bool:
        """Return whether a failed question may be sent again.

        If so, the retry is taken from the retry budget.
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
        spent, rated = list[Spend](), 0
        for part in parts:
            self._counts.prompt_tokens += part.prompt_tokens
            self._counts.completion_tokens += part.completion_tokens
            spent.append(spend := spend_of(part, share.reserved, self._options))
            unknown = spend is share.reserved
            self._counts.usage_unknown += unknown
            rated += share.rated if unknown else spend.tokens
        unmade = (booking.calls - len(parts)) if answer.parts else 0
        self._counts.asked -= unmade
        unused = (unmade, booking.rated - rated)
        for of, rate in self._rates:
            rate.give_back(unused[of])
        try:
            self._ledger.book_cost(booking.reserved, Spend(*map(sum, zip(*spent, strict=True))))
        except StorageError as error:
            self.ask_no_more(str(error))

    def of_one_model(self, answer: Answer) -> Answer:
        """Return the answer, or a refusal if the server reports another model than before.

        The refusal needs `same_model`.
        """
        names = [name for part in answer.parts or (answer,) if (name := one_line(part.model, 80))]
        known = [*self._counts.models] or names[:1]
        another = next((name for name in names if name not in known), "")
        if not self._options.same_model or not another:
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
        self._note_usable(answer, booking.trial, now)
        if answer.failure is Failure.REFUSED:
            self.refuse(f"it refuses ({answer.detail or answer.status})", now)

    def _learn_one(self, started: float, probe: bool, answer: Answer, now: float) -> None:
        """Learn from the answer of one request."""
        verdict = verdict_of(answer)
        self._note_model(answer.model)
        if answer.failure is Failure.STOPPED:
            self._counts.stopped += 1
        elif answer.failure:
            self._counts.failures[answer.failure.value] += 1
        if answer.status:
            self._counts.http[answer.status] += 1
        if verdict.overload:
            self.concurrency.note_overload(started, now)
            self._pause_until = max(
                self._pause_until, now + min(answer.retry_after, self._options.breaker_longest_s)
            )
        elif verdict.healthy:
            self.concurrency.count_success()
        opened = self.breaker.end(verdict.healthy, probe, now) == "opened"
        if is_unusable(answer):
            self._count_unusable(answer)
        self._note_outage(opened, answer)

    def _count_unusable(self, answer: Answer) -> None:
        """Count the answer of one request that cannot be used, and report the first one."""
        reason = reason_of(answer)
        self._counts.unusable[reason] += 1
        if self._unusable_logged:
            return
        self._unusable_logged = True
        sample = one_line(answer.raw.strip(), _MOST_SHOWN)
        self._log(
            f"an answer cannot be used: {WHAT[reason]} ({one_line(answer.detail, _MOST_SHOWN)})"
            + (f': "{sample}"' if sample else "")
            + f"; {remedy(reason, self._identity, self._options.completion_tokens)}. Further ones "
            "are only counted"
        )

    def _note_usable(self, answer: Answer, probe: bool, now: float) -> None:
        """Note whether the answer to a question is usable.

        Reports the first pause and its end.
        """
        usable, watch = bool(answer.advice), self.unusable
        useless = is_unusable(answer)
        if usable or useless:
            self._usable = usable
        if usable:
            watch.consecutive = self._options.unusable_pause_after
        change = watch.end(usable or (False if useless else None), probe, now)
        if change == "opened" and watch.openings == 1:  # later ones appear in the statistics only
            self._unusable_pause_logged = True
            line = f"{watch.consecutive} answers in a row cannot be used ({reasons_text(self._counts.unusable)})"
            self._log_pause(f"{line}, so asking pauses{self._pauses}")
        elif change == "closed" and self._unusable_pause_logged:
            self._unusable_pause_logged = False
            self._log_pause("an answer can be used again; asking goes on")

    def _note_model(self, model: str) -> None:
        models, model = self._counts.models, one_line(model, 80)
        if model and model not in models and len(models) == 1:
            self._log(
                f"the server ran {next(iter(models))} and says that it now runs {model}; the cache does not "
                "tell their answers apart"
            )
        if model and (model in models or len(models) < _MOST_MODELS):
            models[model] += 1

    def _note_outage(self, opened: bool, answer: Answer) -> None:
        """Report the first outage.

        It gets one line when the breaker opens, one when a usable answer has come since.
        """
        if opened and answer.failure and answer.failure is not Failure.REFUSED:
            self._outage = (
                f"too many requests fail, the last one by {answer.failure.value} "
                f"({one_line(answer.detail) or answer.status})"
            )
            if self.breaker.openings == 1:  # later outages appear in the statistics only
                self._outage_logged = self._log_pause(f"{self._outage}{self._pauses}")
        elif self._outage_logged and answer.advice and self.breaker.state == "closed":
            self._outage_logged = False
            self._log("answers again")

    def _log_pause(self, line: str) -> bool:
        """Report that asking pauses, or goes on, and return whether it was reported."""
        told = self._goes_on and not self.stopping
        if told:
            self._log(line)
        return told

    def _note_form(self, answer: Answer) -> None:
        """Report a change of the request's form once a request of the new form was answered."""
        if answer.failure is Failure.UNSUPPORTED:
            if answer.detail != self._fallback_logged:
                self._fallback = answer.detail
        elif self._fallback and answer.failure is not Failure.STOPPED:
            self._fallback, self._fallback_logged = "", self._fallback
            self._log(one_line(self._fallback_logged, _MOST_FORM))

    def refuse(self, why: str, now: float) -> None:
        """Send no more requests: the endpoint will not answer in this run."""
        if self.breaker.refuse(one_line(why), now):
            self._log(
                f"{one_line(why)}; nothing more is asked in this run, which goes on with the advice it has"
            )

    def ask_no_more(self, why: str) -> None:
        """Send no more requests: a cap is reached, or spending cannot be counted.

        The cache still answers.
        """
        if not self.cache_only:
            self.cache_only = why
            self._log(f"{why}; from here on answers come from the cache alone")

    @property
    def mode(self) -> str:
        """Whether requests are sent, and if not, why."""
        if self.breaker.refused:
            return f"refused: {self.breaker.refused}"
        if self.cache_only:
            return f"cache only: {self.cache_only}"
        if self.breaker.state != "closed":
            return f"{PAUSED}{self._outage or f'breaker {self.breaker.state}'}"
        if self.unusable.state != "closed":
            return f"{PAUSED}paused after unusable answers: {reasons_text(self._counts.unusable)}"
        return "asking, breaker closed"

    @property
    def cost(self) -> float | None:
        """Cost of the tokens reported in this run.

        It is in the currency of the prices; None without prices.
        """
        options, counts = self._options, self._counts
        if None in (options.price_prompt, options.price_completion):
            return None
        return cost_of(options, counts.prompt_tokens, counts.completion_tokens) / MICRO
