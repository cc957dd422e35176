"""Where the askable bars lie within their sessions: what a placebo needs to give each bar another
session's answer.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.advisor.questions import QuestionBook
from jaxtrade.types import SessionTable


def session_places(book: QuestionBook, sessions: SessionTable) -> list[list[tuple[int, int]]]:
    """The askable bars of each session, in time order, as (bar, seconds since the session's first
    decision bar).

    Places are times and not counts of bars, so a bar that is missing does not move the later ones.
    A session without an askable bar gives an empty list.
    """
    found = []
    for first, last in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True):
        bars = first + np.flatnonzero(book.askable[first : last + 1])
        found.append([(int(bar), int(book.closes[bar] - book.closes[first])) for bar in bars])
    return found
