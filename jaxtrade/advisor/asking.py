"""Asking about many bars outside training: in this thread what answers at once, through the service the rest."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Advice, Backend, Failure
from jaxtrade.advisor.host.verdict import checked
from jaxtrade.advisor.questions import QuestionBook
from jaxtrade.advisor.snapshot import WIDTH

_POLL_S = 0.05
_PATIENCE_S = 900.0  # with the breaker open; longer than its longest pause by default, and than models take to load
_MOST_WAITING = 512  # questions in the service's queue
_AT_ONCE_S = 30.0  # deadline of what answers at once
_REPORT_EVERY = 512  # bars
_UNSETTLED = ("queued", "in_flight", "dropped", "expired")  # places of a question that was not asked to the end


class Asked(NamedTuple):
    """How far asking is. settled: bars answered or failed, of `total`; statistics: the service's, or empty."""

    total: int
    settled: int
    advised: int
    statistics: Mapping[str, Any]


Progress = Callable[[Asked], None]
Tell = Callable[[str], None]


def ask_all(backend: Backend, book: QuestionBook, bars: Iterable[int], tell: Tell | None = None,
            progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ask about bars one after the other in this thread, for backends that answer at once (mocks, rules, recorded).

    Returns:
        bars int32[n] ascending and rows float32[n, 6] by `table.COLUMNS`, of those with advice. A failure is absence;
        `tell` gets one line that counts them by kind.
    """
    advice, failures = ask_each(backend, book, bars, progress)
    if failures and tell is not None:
        tell(f"advisor {backend.name}: no advice about {sum(failures.values())} bars "
             f"({', '.join(f'{count} {kind}' for kind, count in sorted(failures.items()))})")
    return arrays_of(advice)


def ask_each(backend: Backend, book: QuestionBook, bars: Iterable[int],
             progress: Progress | None = None) -> tuple[dict[int, Advice], Counter[str]]:
    """As `ask_all`: advice by bar, and the failures by kind."""
    advice, failures, wanted = dict[int, Advice](), Counter[str](), [int(bar) for bar in bars]
    for done, bar in enumerate(wanted, 1):
        answer = checked(backend.answer(book.question(bar), time.monotonic() + _AT_ONCE_S))
        if answer.advice is not None:
            advice[bar] = answer.advice
        elif answer.failure is not None:
            failures[answer.failure.value] += 1
        if progress is not None and (done % _REPORT_EVERY == 0 or done == len(wanted)):
            progress(Asked(len(wanted), done, len(advice), {}))
    return advice, failures


def ask_service(service: AdviceService, book: QuestionBook, bars: Iterable[int], wait_s: float | None = None,
                progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Ask about bars through a service that nobody else submits to, and wait for what comes of it.

    It ends when every question is answered, has failed or has expired; after `wait_s` seconds; when the circuit breaker
    stays open for 15 minutes; or when the cache has said what it knows and nothing more is asked, because it may not be
    paid for, the endpoint refuses, or it never answered and is not there (one that is only slow may be loading its
    model). Questions go in as the queue has room, so that each waits for few submissions and none expires.
    KeyboardInterrupt passes through; what had come is then in the cache alone.

    Returns:
        bars and rows as `ask_all`, and the service's statistics.
    """
    wanted = [int(bar) for bar in bars]
    mine, left, advice = set(wanted), deque(wanted), dict[int, Advice]()
    room = min(service.options.queue_size, _MOST_WAITING)
    began = moved = time.monotonic()
    known = service.statistics()
    while True:
        answered = service.take(service.options.ready_rows)
        advice |= {bar: found for bar, found in answered if bar in mine}
        known, now = service.statistics(), time.monotonic()
        moved = now if answered or known["breaker"] == "closed" else moved
        if progress is not None:
            settled = len(wanted) - len(left) - sum(known[place] for place in _UNSETTLED)
            progress(Asked(len(wanted), max(0, settled), len(advice), known))
        if (wait_s is not None and now - began >= wait_s) or _is_over(known, bool(left), now - moved):
            break
        # Where nothing is asked any more the queue does not empty: what the cache has seen makes room for the rest.
        waiting = known["queued"] if _asks(known) else known["unseen"]
        if left and waiting <= room // 2:
            batch = [left.popleft() for _ in range(min(len(left), room - waiting))]
            priority = 0.0 if _asks(known) else float(len(wanted) - len(left))
            service.submit((book.question(bar), priority) for bar in batch)
        else:
            time.sleep(_POLL_S)
    advice |= {bar: found for bar, found in service.take(service.options.ready_rows) if bar in mine}
    return *arrays_of(advice), dict(known)


def _asks(statistics: Mapping[str, Any]) -> bool:
    """Whether the service still asks, and its endpoint is not known to be away from the start."""
    silent = statistics["breaker"] != "closed" and not statistics["done"]
    away = silent and Failure.TIMEOUT.value not in statistics["failures"]
    return str(statistics["mode"]).startswith("asking") and not away


def _is_over(statistics: Mapping[str, Any], left: bool, quiet_s: float) -> bool:
    """Whether nothing more will come. left: there are questions that are not submitted yet."""
    if statistics["in_flight"]:
        return False
    waits = statistics["queued"] if _asks(statistics) else statistics["unseen"]
    return quiet_s > _PATIENCE_S or (not left and not waits)


def arrays_of(advice: Mapping[int, Advice]) -> tuple[np.ndarray, np.ndarray]:
    """Advice by bar as (bars int32[n] ascending, rows float32[n, 6])."""
    bars = np.array(sorted(advice), np.int32)
    rows = np.array([tuple(advice[int(bar)]) for bar in bars], np.float32).reshape(-1, WIDTH)
    return bars, rows
