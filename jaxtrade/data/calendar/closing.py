"""Bars that are stamped exactly at the end of their session: closing prints and closing quotes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtrade.data.calendar.schedule import Schedule


def closing_bars(schedule: Schedule, time_: np.ndarray, at: np.ndarray) -> np.ndarray:
    """bool[T]: bars stamped at the very end of a session (extended hours included) that also has a bar at its very
    beginning.

    Some vendors write the closing quote or print as one more bar. Such bars do not show that the stamps are shifted:
    shifted stamps move the first bar of the session too, so that no bar stands at its beginning.

    time_: UTC seconds of the open stamps. at: index of each bar's session, -1 for none.
    """
    before, after = schedule.extended
    last = (at >= 0) & (time_ == schedule.close[at] + after)
    begun = np.zeros(len(schedule.dates), bool)
    begun[at[(at >= 0) & (time_ == schedule.open[at] - before)]] = True
    last[last] = begun[at[last]]
    return last
