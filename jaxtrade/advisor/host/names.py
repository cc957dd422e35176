"""Suggestions for error messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known name, or all known names where none is
    close.
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"
