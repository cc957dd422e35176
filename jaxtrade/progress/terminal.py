"""The terminal under the panel: whether it can show one, a stream that may close, and how to leave
it usable.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any, TextIO

from jaxtrade import interrupt

LEAST_COLUMNS, LEAST_ROWS = 60, 16  # smaller terminals get plain lines
DUMB = ("dumb", "unknown")
_shown_on: list[int] = []  # file descriptors of the terminals that show a panel now


def can_show_panel(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a panel can be drawn on a stream: a terminal of at least 60 columns and 16 rows,
    UTF-8, not dumb.

    NO_COLOR (any value but the empty one) asks for plain lines.
    """
    if environ.get("NO_COLOR") or environ.get("TERM", "").lower() in DUMB or not stream.isatty():
        return False
    if "utf" not in (stream.encoding or "").lower():
        return False
    columns, rows = size(stream, environ)
    return columns >= LEAST_COLUMNS and rows >= LEAST_ROWS


def size(stream: TextIO, environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(columns, rows) of a terminal. COLUMNS and LINES override it; 80 x 24 if it does not know its
    size.
    """
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # no descriptor, or not a terminal
        found = shutil.get_terminal_size()
    given = [environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, rows = (
        int(text) if text.isdigit() else known for text, known in zip(given, found, strict=True)
    )
    return columns or 80, rows or 24


class LastingStream:
    """A text stream that loses what is written after its reader has gone, instead of ending the
    run.

    A terminal that closes, or a pipe whose reader ends, must not stop hours of training.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.gone = stream, False

    def write(self, text: str) -> int:
        """Write, unless the reader has gone. Returns the number of characters of `text`."""
        if not self.gone:
            try:
                self._stream.write(text)
            except (OSError, ValueError):  # ValueError: the file has been closed
                self.gone = True
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader has gone."""
        if not self.gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self.gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def panel_opened(descriptor: int) -> None:
    """Note that a terminal shows a panel. Ctrl-C then restores it, also where it ends the process
    at once.
    """
    interrupt.before_line(restore)
    _shown_on.append(descriptor)


def panel_closed(descriptor: int) -> None:
    """Note that a terminal's panel has ended."""
    if descriptor in _shown_on:
        _shown_on.remove(descriptor)


def restore() -> None:
    """Leave the terminal usable for the next line: below the panel, plain colours, cursor on.

    For code that ends the process at once (`os._exit`). It takes no lock, imports nothing and may
    be called from a signal handler or another thread, any number of times. It does nothing without
    a panel.
    """
    for descriptor in tuple(_shown_on):
        panel_closed(descriptor)
        try:
            os.write(descriptor, b"\x1b[0m\x1b[?25h\n")
        except OSError:  # the terminal has gone: there is nothing to restore
            continue
