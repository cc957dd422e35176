"""The advice service. The training loop submits questions to it and takes answers from it; neither
call waits.

One thread, the desk's, makes all decisions and writes all files. Worker threads send the requests.
The training thread only puts a message into a mailbox and pops answers from a queue, so a slow
disk, a hung server or a dead thread cannot block it.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.desk import Desk, Finished, Outlet, WorkerPool
from jaxtrade.advisor.host.paid import MICRO, AdviceCache, Caps, Ledger
from jaxtrade.advisor.host.policy import TRAINING, Use
from jaxtrade.advisor.host.types import Advice, Backend, ContainedFaults, Question
from jaxtrade.config.service import ServiceOptions

_BUSY_POLL_S, _IDLE_POLL_S = 0.05, 0.25
_BACKLOG = 4  # questions that may wait for the desk, in multiples of its queue's size
_MOST_WAITING = 1024  # messages that may wait for the desk, empty submissions included
_MESSAGES = 256  # messages handled in one turn
_MOST_FAULTS = 10  # contained exceptions of one kind, after which nothing more is asked
_DRAIN_S, _CLOSE_S, _JOIN_S = (
    1.0,
    0.5,
    2.6,
)  # time limits of `stop`: answers in flight, closing the backend, in total

_Batch = tuple[tuple[Question, float], ...]


class AdviceService:
    """Sends submitted questions to `backend` until `stop`, which also runs when the interpreter
    exits.

    `tell` receives one line per problem, from another thread; by default the logger `jaxtrade.advisor`. `use`: what
    the answers are for.

    Raises StorageError where the ledger cannot be read: without it, spending could not be counted
    against the caps.
    """

    def __init__(
        self,
        backend: Backend,
        options: ServiceOptions,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] | None = None,
        use: Use = TRAINING,
    ) -> None:
        self._backend, self._options = backend, options
        self._faults = ContainedFaults(tell or logging.getLogger("jaxtrade.advisor").warning)
        cost = None if options.max_cost is None else int(options.max_cost * MICRO)
        self._ledger = Ledger(
            Path(options.ledger) if options.ledger else None,
            Caps(options.max_calls, options.max_tokens, cost),
        )
        self._mailbox: queue.SimpleQueue[_Batch | Finished | None] = queue.SimpleQueue()
        self._ready: deque[tuple[int, Advice]] = deque()
        self._counting = threading.Lock()  # among threads that submit; the desk never holds it
        self._sent = self._turned_away = self._received = 0
        self._stopping = threading.Event()
        self._pid = os.getpid()
        self._pool = WorkerPool(
            backend.answer, options.workers, options.grace_s, clock, self._mailbox.put
        )
        self._cache = AdviceCache(Path(options.cache) if options.cache else None, self._faults.tell)
        outlet = Outlet(
            lambda bar, advice: self._ready.append((bar, advice)),
            lambda: options.ready_rows - len(self._ready),
            self._faults,
            use,
        )
        self._desk = Desk(backend, options, clock, self._cache, self._ledger, self._pool, outlet)
        self._published: dict[str, Any] = {}
        self._publish()
        self._closing, self._close_fault = threading.Event(), ""
        # Start this thread now: Python cannot start a thread while the interpreter shuts down.
        self._closer = threading.Thread(target=self._close, name="advisor-close", daemon=True)
        self._thread = threading.Thread(target=self._run, name="advisor-desk", daemon=True)
        self._closer.start()
        self._thread.start()
        atexit.register(self.stop)

    # --- for the training thread -------------------------------------------------------------------------------------

    def submit(self, wanted: Iterable[tuple[Question, float]]) -> None:
        """Request answers. `wanted` holds questions with their priorities.

        Call it once per chunk, even with no questions: questions expire after a number of chunks.
        """
        batch = tuple(wanted)
        with self._counting:
            backlog = self._sent - self._received
            # With an empty backlog a batch of any size is accepted; otherwise a large one could
            # never be submitted.
            too_much = backlog and backlog + len(batch) > _BACKLOG * self._options.queue_size
            if self._stopping.is_set() or too_much or self._mailbox.qsize() > _MOST_WAITING:
                self._turned_away += len(batch)
                return
            self._sent += len(batch)
        self._mailbox.put(batch)

    def take(self, most: int) -> list[tuple[int, Advice]]:
        """Return at most `most` new answers as (bar, advice). Each is returned once; the rest stay
        in the queue.
        """
        taken = []
        with suppress(IndexError):  # raised when the queue is empty
            while len(taken) < most:
                taken.append(self._ready.popleft())
        return taken

    def statistics(self) -> dict[str, Any]:
        """Counts as of the desk's last turn, plus what has been submitted since.

        Every submission is counted in exactly one place: deduped, cache_hit, queued, in_flight,
        done, failed, expired, dropped or poisoned.
        """
        found = dict(self._published)
        received = found.pop("received")
        with self._counting:
            extra, away = self._sent - received, self._turned_away
        return found | {
            "submitted": found["submitted"] + extra + away,
            "queued": found["queued"] + extra,
            "unseen": found["unseen"] + extra,
            "dropped": found["dropped"] + away,
            "ready": len(self._ready),
        }

    @property
    def options(self) -> ServiceOptions:
        """The options with which the service was made."""
        return self._options

    def stop(self) -> None:
        """Send no more requests, wait one second for requests in flight, write and close. Takes at
        most 3 s.
        """
        if os.getpid() != self._pid:
            return  # a forked child process has none of the threads
        atexit.unregister(self.stop)
        if not self._stopping.is_set():
            self._stopping.set()
            self._mailbox.put(None)
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self._faults.tell(
                "advisor: its thread hangs (a disk that does not answer?) and is left behind"
            )

    def __enter__(self) -> AdviceService:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the desk's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._cache.open()
            more = False
            while not self._stopping.is_set():
                waits = len(self._desk.queue) or self._desk.in_flight
                more = self._turn(0.0 if more else _BUSY_POLL_S if waits else _IDLE_POLL_S)
            self._desk.gates.stopping = True
            self._wind_down()
        except (
            BaseException
        ) as error:  # SystemExit and similar: report it and send no more requests
            self._contain(error)
        finally:
            self._closing.set()
            self._cache.close()
            self._ledger.close()
            self._publish()

    def _turn(self, timeout: float) -> bool:
        """Handle the waiting messages, then let the desk act. Returns whether there is more to do
        at once.

        An exception here is a bug. It is contained, counted and reported. After `_MOST_FAULTS` of
        one kind, no more requests are sent.
        """
        more = False
        try:
            with suppress(queue.Empty):
                self._handle(self._mailbox.get(timeout=timeout))
                for _ in range(_MESSAGES - 1):
                    self._handle(self._mailbox.get_nowait())
            more = self._desk.turn()
        except Exception as error:
            self._contain(error)
        self._publish()
        return more

    def _handle(self, message: _Batch | Finished | None) -> None:
        if isinstance(message, Finished):
            self._desk.finished(message)
        elif message is not None:
            self._received += len(message)
            self._desk.wanted(message)

    def _contain(self, error: BaseException) -> None:
        name, count = type(error).__name__, self._faults.contain("desk", error)
        if count >= _MOST_FAULTS or not isinstance(error, Exception):
            self._desk.gates.ask_no_more(f"{name} in the advisor's own thread, {count} times")

    def _publish(self) -> None:
        self._published = self._desk.snapshot() | {
            "received": self._received,
            "unreported": self._faults.unreported,
        }

    def _wind_down(self) -> None:
        """Wait for requests in flight, then close the backend, which should end the rest.

        It uses real seconds, not the injected clock, because it waits for real threads.
        """
        self._pool.stop()
        self._turns(_DRAIN_S)
        until = time.monotonic() + _CLOSE_S
        self._closing.set()
        self._turns(_CLOSE_S)
        self._closer.join(max(0.0, until - time.monotonic()))
        if self._close_fault:
            self._faults.trouble(
                f"close {self._close_fault}",
                f"advisor: closing the backend raised {self._close_fault}; contained",
            )
        self._pool.join(max(0.0, until - time.monotonic()))

    def _turns(self, seconds: float) -> None:
        """Run turns until no request is in flight, for at most `seconds`."""
        until = time.monotonic() + seconds
        self._turn(0.0)
        while self._desk.in_flight and (left := until - time.monotonic()) > 0:
            self._turn(left)

    def _close(self) -> None:
        self._closing.wait()
        try:
            self._backend.close()
        except Exception as error:
            self._close_fault = type(
                error
            ).__name__  # the desk's thread counts it: only that thread writes counts
