"""Bars that are stamped exactly at the end of their session: closing prints and closing quotes."""

from __future__ import annotations

import numpy as np


def closing_bars(begin: np.ndarray, end: np.ndarray, time_: np.ndarray, at: np.ndarray) -> np.ndarray:
    """bool[T]: bars stamped at the very end of a session (extended hours included) that also has a bar at its very
    beginning.

    Some vendors write the closing quote or print as one more bar. Such bars do not show that the stamps are shifted:
    shifted stamps move the first bar of the session too, so that no bar stands at its beginning.

    begin, end: UTC seconds between which each session may have bars, int64[N]. time_: UTC seconds of the open stamps.
    at: index of each bar's session, -1 for none.
    """
    last = (at >= 0) & (time_ == end[at])
    begun = np.zeros(len(begin), bool)
    begun[at[(at >= 0) & (time_ == begin[at])]] = True
    last[last] = begun[at[last]]
    return last
