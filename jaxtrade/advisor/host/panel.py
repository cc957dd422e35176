"""A panel's source of rows: every member is asked about the same bars, and answers when it can."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxtrade.advisor.host.sources import AdviceRow, AdviceSource, Wants
from jaxtrade.advisor.host.statistics import EDGES, Histogram


class PanelSource:
    """The rows of A members over T bars. A row of member i about bar b is given out as row i T + b
    of the table.

    members: their sources. names: what reports call them. bars: T. recorded: rows of the table that
        an earlier process
    of the run has got; a member is not asked again about their bars.
    """

    def __init__(
        self,
        members: Sequence[AdviceSource],
        names: Sequence[str],
        bars: int,
        recorded: Iterable[int] = (),
    ) -> None:
        self._members, self._names, self._bars = tuple(members), tuple(names), bars
        self._answered: tuple[set[int], ...] = tuple(set() for _ in self._members)
        for row in recorded:
            number, bar = divmod(row, bars)
            self._answered[number].add(bar)

    def take(self, update: int, deltas: int, most: int) -> list[AdviceRow]:
        """At most `most` rows. Each member gets an equal share of them; what one leaves, the next
        may use.
        """
        found: list[AdviceRow] = []
        number = len(self._members)
        # The order changes with every delta, so that no member's rows always come last.
        for turn, i in enumerate((deltas + step) % number for step in range(number)):
            share = math.ceil((most - len(found)) / (number - turn))
            rows = self._members[i].take(update, deltas, share)
            self._answered[i].update(row.bar for row in rows)
            found += [row._replace(bar=row.bar + i * self._bars) for row in rows]
        return found

    def want(self, wants: Wants) -> None:
        """Request rows from every member that has not answered: a bar is wanted until all of them
        have.
        """
        for member, answered in zip(self._members, self._answered, strict=True):
            member.want([(bar, weight) for bar, weight in wants if bar not in answered])

    def in_flight(self) -> list[tuple[int, float]]:
        """Bars that some member has not answered yet, with their weights."""
        return list(
            {bar: weight for member in self._members for bar, weight in member.in_flight()}.items()
        )

    def statistics(self) -> dict[str, Any]:
        """The members' statistics put together, and each one's own under `members`."""
        each = [member.statistics() for member in self._members]
        named = [{"kind": name, **found} for name, found in zip(self._names, each, strict=True)]
        return {**joined(each), "members": named}

    def stop(self) -> None:
        for member in self._members:
            member.stop()


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of several services as one: counts are added, histograms too, and words that
    differ are listed.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if name in part]
        if name == "latency":
            found[name] = _latency(values)
        elif all(isinstance(value, Mapping) for value in values):
            found[name] = dict(sum((Counter(value) for value in values), Counter()))
        elif all(isinstance(value, str) for value in values):
            found[name] = "; ".join(dict.fromkeys(values))
        elif any(value is None for value in values):
            found[name] = None  # a cost that one member does not know is unknown
        elif any(isinstance(value, bool) for value in values):
            found[name] = any(values)
        else:
            found[name] = sum(values)
    return found


def _latency(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The histogram of all members' durations, in the form of `Statistics.snapshot`."""
    counts = [sum(column) for column in zip(*(value["counts"] for value in values), strict=True)]
    whole = Histogram(
        EDGES,
        counts,
        sum(value["total_s"] for value in values),
        max(value["longest_s"] for value in values),
    )
    return {
        "edges_s": list(EDGES),
        "counts": counts,
        "total_s": whole.total,
        "p50_s": whole.quantile(0.5),
        "p99_s": whole.quantile(0.99),
        "longest_s": whole.longest,
    }
