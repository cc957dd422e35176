"""SIGINT and SIGTERM: the handler records the signal, and the run ends at its next chunk border.

Of a command, Ctrl-C waits only a moment for the border (`interrupt.GRACE_S`), and a second one does not wait. In other
programs the first Ctrl-C waits for the border, and the second one raises KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxtrade import interrupt


class Signals:
    """A signal handler. received: the signal that asked the run to stop, or None."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._borders = True

    @contextmanager
    def no_border(self) -> Iterator[None]:
        """Ctrl-C inside this block raises KeyboardInterrupt: there is nothing new to save, so nothing to wait for."""
        self._borders = False
        try:
            yield
        finally:
            self._borders = True

    def __call__(self, number: int, frame: Any) -> None:
        del frame
        if number == signal.SIGINT:
            if not interrupt.first():
                return  # the command is ending already
            second = self.received == signal.SIGINT  # never in a command
            if second or not self._borders:
                raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if not interrupt.installed():
            # `print` is not safe in a signal handler: it may interrupt another write to the same buffer.
            again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
            os.write(2, f"{self.received.name}: stopping at the end of this chunk{again}\n".encode())

    def stops(self, finished: bool) -> bool:
        """Whether the run is to stop at this border. finished: nothing is left to train. A run that has trained to its
        end goes on to its evaluation, unless Ctrl-C ends the command."""
        return self.received is not None and (
            not finished or (self.received == signal.SIGINT and interrupt.installed()))


@contextmanager
def catch_signals() -> Iterator[Signals]:
    # SIGINT and SIGTERM go to `signals` inside the context. The former handlers are restored after it.
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield signals
        return
    # A shell makes the commands that it starts in the background ignore SIGINT; that is left as it is.
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
