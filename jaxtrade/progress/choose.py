"""Which screen a command gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from jaxtrade.progress.screen import Plain, Screen, Warnings, can_show_panel


def open_screen(
    title: str,
    quiet: bool = False,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Screen:
    """The screen of a command: a panel where the terminal can show one, else plain lines.

    Args:
        title: of the panel, such as "jaxtrade train". quiet: show nothing but warnings. stream:
            default: standard error, so that standard output holds the result alone.
    """
    chosen = sys.stderr if stream is None else stream
    if quiet:
        return Warnings(lambda line: print(line, file=chosen, flush=True))
    if can_show_panel(chosen, environ):
        from jaxtrade.progress.panel import PhasePanel  # rich takes a moment to load

        return PhasePanel(title, chosen)
    return Plain(chosen)
