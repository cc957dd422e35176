"""A pseudo-terminal that keeps what a command writes to it, and the screen that follows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from typing import NamedTuple

from rich.text import Text

COLUMNS, ROWS = 100, 60
MIDDLE = 60  # per cent of the training
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")
PERCENT = re.compile(r"\btraining\b.* (\d+) %")


class Recording(NamedTuple):
    """What a terminal received: (seconds since the start, bytes) of each read, and the command's
    exit code.
    """

    reads: list[tuple[float, bytes]]
    code: int


def record(
    argv,
    columns=COLUMNS,
    rows=ROWS,
    folder=None,
    environ=None,
):
    """Run a command in a pseudo-terminal. environ: changes to the environment. Raises OSError if it
    cannot start.
    """
    shown, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    begun, reads = time.monotonic(), []
    process = subprocess.Popen(
        argv,
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=folder,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
    )
    os.close(end)
    while data := _read(shown):
        reads.append((time.monotonic() - begun, data))
    os.close(shown)
    return Recording(reads, process.wait())


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the last process has closed the terminal
        return b""


class Screenful:
    """The lines of a terminal, each with its colour codes.

    It knows the sequences that rich and jaxtrade write: colours, "line up", "clear line", carriage
    return, line feed. It never wraps, and it scrolls without an end. Raises ValueError for any
    other sequence.
    """

    def __init__(self):
        self.lines, self.row = [""], 0
        self._rest = b""
        self._fresh = True  # the next text replaces the line

    def feed(self, data):
        """Take in bytes. A character or sequence that is cut off waits for the next bytes."""
        data = self._rest + data
        whole = (
            max(
                data.rfind(b"\n"),
                data.rfind(b"m"),
                data.rfind(b"K"),
                data.rfind(b"A"),
                data.rfind(b"\r"),
            )
            + 1
        )
        text, self._rest = data[:whole].decode(), data[whole:]
        for token in TOKEN.finditer(text):
            self._take(token)

    def close(self):
        """Take in what still waits."""
        rest, self._rest = self._rest, b""
        for token in TOKEN.finditer(rest.decode(errors="replace")):
            self._take(token)

    def _take(self, token):
        match token[2]:
            case "A":
                self.row = max(0, self.row - int(token[1] or 1))
            case "K":
                self.lines[self.row] = ""
            case "m" | None if token[0] == "\r":
                self._fresh = True
            case None if token[0] == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            case "m" | None:
                self.lines[self.row] = token[0] if self._fresh else self.lines[self.row] + token[0]
                self._fresh = False
            case "h" | "l":
                return
            case _:
                raise ValueError(f"a sequence that this recorder does not know: {token[0]!r}")

    def plain(self):
        """The lines without colours."""
        return [Text.from_ansi(line).plain for line in self.lines]


def frames(recording):
    """The screen in the middle of the training, and at the end. Without a training both are the
    last one.
    """
    middle, screen, nearest = None, Screenful(), 101.0
    for _, data in recording.reads:
        screen.feed(data)
        found = [int(match[1]) for line in screen.plain() if (match := PERCENT.search(line))]
        if found and abs(found[-1] - MIDDLE) < nearest:
            middle, nearest = Screenful(), abs(found[-1] - MIDDLE)
            middle.lines = list(screen.lines)
    screen.close()
    return [screen if middle is None else middle, screen]
