"""Asks about many bars outside training, and says before what that costs at most.

Backends that answer at once run in this thread; the others use the service.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.advisor.host.paid import MICRO, AdviceCache, Prices, Spend, at_most
from jaxtrade.advisor.host.registry import calls_of
from jaxtrade.advisor.host.replies import checked
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Advice, Backend, Failure
from jaxtrade.advisor.questions import QuestionBook
from jaxtrade.advisor.table import WIDTH
from jaxtrade.config.service import ServiceOptions
from jaxtrade.text import Tell

_POLL_S = 0.05
# How long to wait while the breaker stays open. Longer than the breaker's default longest pause and
# than a model takes to load.
_PATIENCE_S = 900.0
_MOST_WAITING = 512  # questions in the service's queue
_AT_ONCE_S = 30.0  # deadline for backends that answer at once
_REPORT_EVERY = 512  # bars between two progress reports
_UNSETTLED = (
    "queued",
    "in_flight",
    "dropped",
    "expired",
)  # counts of questions without a final result


class Asked(NamedTuple):
    """Progress. settled: bars answered or failed, out of `total`. advised: bars with advice.
    statistics: the service's, or empty without a service."""

    total: int
    settled: int
    advised: int
    statistics: Mapping[str, Any]


Progress = Callable[[Asked], None]


def ask_all(
    backend: Backend,
    book: QuestionBook,
    bars: Iterable[int],
    tell: Tell | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ask about bars one by one in this thread. For backends that answer at once (mocks, rules,
    recorded answers).

    Returns:
        bars int32[n] ascending and rows float32[n, 6] by `table.COLUMNS`, for the bars with advice.
        Bars whose answer is a failure are left out. `tell` receives one line that counts the
        failures by kind.
    """
    advice, failures = ask_each(backend, book, bars, progress)
    if failures and tell is not None:
        tell(
            f"advisor {backend.name}: no advice about {sum(failures.values())} bars "
            f"({', '.join(f'{count} {kind}' for kind, count in sorted(failures.items()))})"
        )
    return arrays_of(advice)


def ask_each(
    backend: Backend, book: QuestionBook, bars: Iterable[int], progress: Progress | None = None
) -> tuple[dict[int, Advice], Counter[str]]:
    """Like `ask_all`, but returns the advice by bar and the number of failures by kind."""
    advice, failures, wanted = dict[int, Advice](), Counter[str](), [int(bar) for bar in bars]
    for done, bar in enumerate(wanted, 1):
        answer = checked(backend.answer(book.question(bar), time.monotonic() + _AT_ONCE_S))
        if answer.advice is not None:
            advice[bar] = answer.advice
            book.heard(bar, answer.advice)
        elif answer.failure is not None:
            failures[answer.failure.value] += 1
        if progress is not None and (done % _REPORT_EVERY == 0 or done == len(wanted)):
            progress(Asked(len(wanted), done, len(advice), {}))
    return advice, failures


def ask_service(
    service: AdviceService,
    book: QuestionBook,
    bars: Iterable[int],
    wait_s: float | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Ask about bars through a service and wait for the results. Nothing else may submit to this
    service.

    It ends when one of these is true:
    - every question is answered, has failed or has expired;
    - `wait_s` seconds have passed;
    - the circuit breaker, or the pause after unusable answers, has stayed open for 15 minutes;
    - the cache has been searched and no requests are sent any more. The reason may be a cap, an endpoint that refuses,
      or an endpoint that never gave a usable answer. An endpoint that timed out may still be
      loading its model, so it counts as present.

    Questions are submitted as the queue has room, so that none waits long enough to expire.
    KeyboardInterrupt passes through; the answers so far are then in the cache only.

    Returns:
        bars and rows as `ask_all`, and the service's statistics.
    """
    wanted = [int(bar) for bar in bars]
    asked, left, advice = set(wanted), deque(wanted), dict[int, Advice]()
    room = min(service.options.queue_size, _MOST_WAITING)
    began = moved = time.monotonic()
    known = service.statistics()
    while True:
        answered = service.take(service.options.ready_rows)
        advice |= {bar: found for bar, found in answered if bar in asked}
        for bar, found in answered:
            book.heard(bar, found)
        known, now = service.statistics(), time.monotonic()
        # Where requests pause, there are none apart from probes.
        pauses = known["breaker"] != "closed" or known["unusable_state"] != "closed"
        moved = now if answered or not pauses else moved
        if progress is not None:
            settled = len(wanted) - len(left) - sum(known[place] for place in _UNSETTLED)
            progress(Asked(len(wanted), max(0, settled), len(advice), known))
        if (wait_s is not None and now - began >= wait_s) or _is_over(
            known, bool(left), now - moved
        ):
            break
        # When no requests are sent any more, the queue does not empty. Questions that the cache has
        # already seen then make room for the rest.
        waiting = known["queued"] if _asks(known) else known["unseen"]
        if left and waiting <= room // 2:
            batch = [left.popleft() for _ in range(min(len(left), room - waiting))]
            priority = 0.0 if _asks(known) else float(len(wanted) - len(left))
            service.submit((book.question(bar), priority) for bar in batch)
        else:
            time.sleep(_POLL_S)
    advice |= {
        bar: found for bar, found in service.take(service.options.ready_rows) if bar in asked
    }
    return *arrays_of(advice), dict(known)


def _asks(statistics: Mapping[str, Any]) -> bool:
    """Whether the service still sends requests to an endpoint that gives, or may give, usable
    answers.
    """
    absent = (
        statistics["breaker"] != "closed" and Failure.TIMEOUT.value not in statistics["failures"]
    )
    useless = statistics["unusable_state"] != "closed"
    away = (absent or useless) and not statistics["done"]
    return str(statistics["mode"]).startswith("asking") and not away


def _is_over(statistics: Mapping[str, Any], left: bool, quiet_s: float) -> bool:
    """Whether no more results will come. left: some questions are not submitted yet. quiet_s:
    seconds without progress.
    """
    if statistics["in_flight"]:
        return False
    waits = statistics["queued"] if _asks(statistics) else statistics["unseen"]
    return quiet_s > _PATIENCE_S or (not left and not waits)


def arrays_of(advice: Mapping[int, Advice]) -> tuple[np.ndarray, np.ndarray]:
    """Advice by bar as (bars int32[n] ascending, rows float32[n, 6])."""
    bars = np.array(sorted(advice), np.int32)
    rows = np.array([tuple(advice[int(bar)]) for bar in bars], np.float32).reshape(-1, WIDTH)
    return bars, rows


_MOST_BARS = 4000  # bars whose prompts an offer measures; the rest of a larger market is like them


class AskPlan(NamedTuple):
    """What the command will ask.

    bars: number of bars to ask about. hits: those whose answer is in the cache. hopeless: those
        that the cache knows to
    fail. most: the largest cost of the others, if each is asked once.
    """

    bars: int
    hits: int
    hopeless: int
    most: Spend


def make_plan(
    backend: Backend, book: QuestionBook, bars: np.ndarray, options: ServiceOptions, tell: Tell
) -> AskPlan:
    """The largest cost of asking about the bars, given the cache. Creates no cache file.

    bars: int[n]. tell: prints one line about a cache that cannot be read.
    """
    path = (
        Path(options.cache) if options.cache is not None and Path(options.cache).exists() else None
    )
    cache = AdviceCache(path, tell)
    cache.open()
    identity, prices = backend.identity(), Prices(options.price_prompt, options.price_completion)
    hits, hopeless, calls = 0, 0, calls_of(backend)
    most = [0, 0, 0]
    try:
        for bar in bars:
            question = book.preview(bar)
            known = cache.get(cache.key(identity, question))
            hits += known is not None and known.advice is not None
            if known is not None and (
                known.advice is not None or known.attempts >= options.poison_after
            ):
                hopeless += known.advice is None
                continue
            spend = at_most(
                question.prompt, options.overhead_tokens, options.completion_tokens, prices
            )
            most = [total + calls * more for total, more in zip(most, spend, strict=True)]
    finally:
        cache.close()
    return AskPlan(len(bars), hits, hopeless, Spend(*most))


def cost_text(most: Spend, options: ServiceOptions) -> str:
    """The cost of a plan in words."""
    priced = options.price_prompt is not None or options.price_completion is not None
    return f"cost at most {most.cost / MICRO:.2f}" if priced else "cost unknown (no prices set)"


def offer(
    backend: Backend,
    book: QuestionBook,
    training: np.ndarray,
    options: ServiceOptions,
    ask: str,
    then: str,
    tell: Tell,
) -> None:
    """Offer to ask about all bars before training: tell its largest cost and the commands.

    Args:
        training: bool[T], the bars that training may ask about.
        ask: the command that asks beforehand. then: the command that trains with its answers.
    """
    bars = np.flatnonzero(book.askable)
    step = -(-len(bars) // _MOST_BARS)
    plan = make_plan(backend, book, bars[::step], options, tell)
    scale = len(bars) / plan.bars
    most = Spend(*(round(scale * part) for part in plan.most))
    about = "about " if step > 1 else ""
    tell(
        f"note: this advisor answers while the run trains, so the first updates lack its advice. The training "
        f"split has {int(training.sum()):,} bars to ask about, all splits have {len(bars):,}. To ask about all of "
        f"these beforehand takes at most {about}{most.calls:,} calls and {most.tokens:,} tokens, "
        f"{cost_text(most, options)}:"
    )
    tell(f"      {ask}")
    tell(f"      {then}")
