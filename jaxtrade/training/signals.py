"""SIGINT and SIGTERM: the handler records the signal, and the run ends at its next chunk border."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Signals:
    """A signal handler. received: the signal that asked the run to stop, or None."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __call__(self, number: int, frame: Any) -> None:
        del frame
        if self.received == signal.SIGINT == number:  # a second Ctrl-C does not wait for the border
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        # `print` is not safe in a signal handler: it may interrupt another write to the same buffer.
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        os.write(2, f"{self.received.name}: stopping at the end of this chunk{again}\n".encode())


@contextmanager
def catch_signals() -> Iterator[Signals]:
    # SIGINT and SIGTERM go to `signals` inside the context. The former handlers are restored after it.
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield signals
        return
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
