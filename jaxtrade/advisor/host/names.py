"""The end of a message about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or where none is near all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"
