"""The advisor's own record: what it said about earlier bars, and what followed, as known at a bar's
close.

At bar b it holds answers about bars t with t + horizon <= b, in the same split, that existed when
the text about b was first asked for. A text is then kept, so the question about b stays the same
for as long as the record lives. Which answers exist depends on the order of asking, so a question
with a record does too, and so does its cache key.
"""

from __future__ import annotations

import threading

import numpy as np

from jaxtrade.advisor.host.context.desk_texts import RECORD, Scored, record_block
from jaxtrade.advisor.host.context.stamps import local
from jaxtrade.advisor.host.types import Advice

_WIDEST = 10**6 - 1  # answers per range in the longest text


class Record:
    """The record over T bars. Threads may feed and read it at once. It keeps one text, of about 1
    KB, per bar asked.

    Args:
        followed: int8[T], what followed each bar (`labels.followed_of`). Entry t is read only once
            t + horizon has closed. parts: int8[T], the split of each bar; answers count in their
            own split only. closes: int64[T], UTC seconds. bins: ranges of confidence. shown: last
            answers that a text lists. zone: of the times.
    """

    def __init__(
        self,
        followed: np.ndarray,
        parts: np.ndarray,
        closes: np.ndarray,
        horizon: int,
        bins: int,
        shown: int,
        zone: str,
    ) -> None:
        self._followed, self._parts, self._closes, self._zone = followed, parts, closes, zone
        self._horizon, self._bins, self._shown = horizon, bins, shown
        self._known = np.zeros(len(closes), bool)
        self._said = np.zeros(len(closes), np.int8)
        self._confidence = np.zeros(len(closes), np.float32)  # as journals and tables hold it
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()

    def empty(self) -> Record:
        """A record over the same bars without answers."""
        return Record(
            self._followed,
            self._parts,
            self._closes,
            self._horizon,
            self._bins,
            self._shown,
            self._zone,
        )

    def heard(self, bar: int, advice: Advice) -> None:
        """Note the first answer about a bar. Later ones about the same bar change nothing."""
        with self._lock:
            if not self._known[bar]:
                self._said[bar] = _direction(advice)
                self._confidence[bar] = advice.confidence
                self._known[bar] = True

    def text(self, bar: int) -> str:
        """The block `record` at a bar's close: the same text whenever it is asked for again."""
        with self._lock:
            if bar not in self._texts:
                self._texts[bar] = self._made(self.scorable(bar))
            return self._texts[bar]

    def scorable(self, bar: int) -> np.ndarray:
        """int64[n], ascending: the answered bars of the bar's split whose horizon had ended at its
        close.
        """
        end = max(0, bar + 1 - self._horizon)
        return np.flatnonzero(self._known[:end] & (self._parts[:end] == self._parts[bar]))

    def longest(self) -> str:
        """A text at least as long as any that `text` may return: for plans of costs, before there
        are answers.
        """
        last = [Scored("00-00 00:00", -1, 1.0, 0)] * self._shown
        return record_block([(_WIDEST, _WIDEST)] * self._bins, last, self._horizon)

    def _made(self, bars: np.ndarray) -> str:
        said, followed = self._said[bars], self._followed[bars]
        scored, hits = (said != 0) & (followed != 0), (said != 0) & (said == followed)
        places = np.minimum((self._confidence[bars] * self._bins).astype(np.int64), self._bins - 1)
        rates = [
            (int(hits[places == each].sum()), int(scored[places == each].sum()))
            for each in range(self._bins)
        ]
        last = bars[len(bars) - min(len(bars), self._shown) :]
        return record_block(rates, [self._scored(int(bar)) for bar in last], self._horizon)

    def _scored(self, bar: int) -> Scored:
        return Scored(
            local(int(self._closes[bar]), self._zone, RECORD["stamp"]),
            int(self._said[bar]),
            float(self._confidence[bar]),
            int(self._followed[bar]),
        )


def _direction(advice: Advice) -> int:
    """-1, 0 or +1, as advice is scored: the direction whose logit is above both others."""
    if advice.buy > max(advice.hold, advice.sell):
        return 1
    return -1 if advice.sell > max(advice.hold, advice.buy) else 0
