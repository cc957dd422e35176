"""Bars that are stamped exactly at the end of their session: closing prints and closing quotes."""

from __future__ import annotations

import numpy as np

PRINT = 4  # a print takes at most this part of the closure that it begins: a quarter of an hour of a daily hour


def closing_bars(
    begin: np.ndarray, end: np.ndarray, time_: np.ndarray, at: np.ndarray, bar_seconds: int
) -> np.ndarray:
    """bool[T]: bars stamped at the very end of a session (extended hours included) that also has a
    bar at its very beginning, if they are short beside the closure that follows.

    Some vendors write the closing quote or print as one more bar. Such bars do not show that the
    stamps are shifted: shifted stamps move the first bar of the session too, so that no bar stands
    at its beginning. A bar of an hour that fills a daily closure is no print.

    begin, end: UTC seconds between which each session may have bars, int64[N]. time_: UTC seconds
        of the open stamps.
    at: index of each bar's session, -1 for none.
    """
    last = (at >= 0) & (time_ == end[at])
    begun = np.zeros(len(begin), bool)
    begun[at[(at >= 0) & (time_ == begin[at])]] = True
    closure = begin[1:] - end[:-1]
    closure = np.append(
        closure, np.median(closure) if len(closure) else np.inf
    )  # after the last session: a usual one
    short = PRINT * bar_seconds <= closure
    last[last] = (begun & short)[at[last]]
    return last
