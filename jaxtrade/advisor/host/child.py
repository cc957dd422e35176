"""A process that serves us and nobody else: started, listened to, killed. Imports no JAX.

Its standard output and error are read to their end by one thread, so that it never waits for a full pipe. One line of
them is a JSON object with `port` or `fault`: it is ready, or says why it will never be. The last other line is kept,
for a process that ends without a word.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_LINE = 4096  # bytes of a line that are looked at
_SHOWN = 160  # characters of its last words


class Said(NamedTuple):
    """What a process said: where it listens, or why it does not."""

    port: int = 0
    fault: str = ""


class Child:
    """A started process. Its standard input is open for as long as we live: the end of it tells the process to end."""

    def __init__(self, command: Sequence[str], more: Mapping[str, str]) -> None:
        """more: variables beside our own environment. Raises OSError where it cannot be started."""
        # In a session of its own, Ctrl-C in our terminal is not its affair.
        self._process = subprocess.Popen(list(command), env={**os.environ, **more}, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self._last = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, heard: Callable[[Said], None], patience: float) -> int:
        """Call `heard` once it says something, and return its exit code when it has ended.

        patience: seconds after which it is killed where it has said nothing.
        """
        timer = threading.Timer(patience, self.kill)
        timer.daemon = True
        timer.start()
        told, pipe = False, self._process.stdout
        assert pipe is not None
        while line := pipe.readline(_LINE):
            if not told and (said := _said(line)) is not None:
                told = True
                timer.cancel()
                heard(said)
            elif text := line.decode("utf-8", "replace").strip():
                self._last = text[:_SHOWN]
        code = self._process.wait()
        timer.cancel()
        pipe.close()
        self._hang_up()
        return code

    def ending(self, code: int) -> str:
        """How it ended, in words, with the last line that it printed."""
        last = f"; its last words: {self._last}" if self._last else ""
        if code >= 0:
            return f"exit code {code}{last}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}{last}"

    def kill(self) -> None:
        """End it now; it has nothing to save."""
        self._hang_up()
        self._process.kill()

    def _hang_up(self) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except OSError:
            return  # it has ended already


def _said(line: bytes) -> Said | None:
    """The announcement in a line; None where there is none."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    port, fault = value.get("port"), value.get("fault")
    if type(port) is int and 0 < port < 65536:
        return Said(port)
    return Said(fault=fault) if isinstance(fault, str) and fault else None
