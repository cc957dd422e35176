"""How often the days of an evaluation were looked at before, and by how many policies.

The counts come from the trial log. Loads no JAX.

The data's own digest covers features, windows and every day of the file, so two runs that looked at
the same Monday often have different ones. The digest of a day depends on that day's bars alone. It
is made of the day's open, high, low and close, so bars of one minute and of five have the
same digest.

A trial is a policy that was evaluated on these days: one configuration, trained on the same data,
with one seed, up to one update. Evaluated again, it is the same trial, but one more
look. Days are the same if their bars are, whatever features a run made of them (`day_bars`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.evaluation.statistics import (
    IntervalEstimate,
    Overfitting,
    dsr,
    pbo,
    psr,
    trial_variance,
)
from jaxtrade.evaluation.statistics.selection import NULL_DRAWS
from jaxtrade.storage.trials import SplitLook
from jaxtrade.text import join_reasons, several

DIGITS = 16  # hex digits of a digest
NO_BARS = ""  # the digest of a day on which the symbol has no bar
AROUND = 3 * 86400  # seconds: a trade date's bars lie within so much of its midnight UTC

DayBars = Mapping[str, tuple[str, ...]]  # symbol -> digest of each day


class HeldOutDays(NamedTuple):
    """Days that were looked at.

    data: sha256 of the data.
    dates: ISO, ascending.
    bars: the digests of each symbol on these dates (`day_bars`); empty if they were written down by
        a version without digests.
    """

    data: str
    dates: tuple[str, ...]
    bars: DayBars

    def meets(self, other: HeldOutDays) -> bool:
        """Return whether some day of some symbol is in both.

        Days without digests meet if the data are the same.
        """
        if not self.bars or not other.bars:
            return self.data == other.data and not set(self.dates).isdisjoint(other.dates)
        return any(
            not found.isdisjoint(_days_of(other, symbol))
            for symbol in self.bars
            if (found := _days_of(self, symbol))
        )

    def within(self, other: HeldOutDays) -> bool:
        """Return whether the other has all of these days, with the same symbols and bars."""
        place = {day: number for number, day in enumerate(other.dates)}
        if not all(day in place for day in self.dates):
            return False
        if not self.bars or not other.bars:
            return self.data == other.data
        return self.bars.keys() == other.bars.keys() and all(
            digest == other.bars[symbol][place[day]]
            for symbol, digests in self.bars.items()
            for day, digest in zip(self.dates, digests, strict=True)
        )


def _days_of(days: HeldOutDays, symbol: str) -> set[tuple[str, str]]:
    """Return (date, digest) of the days on which the symbol has bars."""
    return {
        (day, digest)
        for day, digest in zip(days.dates, days.bars.get(symbol, ()), strict=False)
        if digest != NO_BARS
    }


def day_bars(market: Any, dates: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the digests of the days of each symbol; `NO_BARS` where it has no bar.

    Args:
        market: a `Market`, `MarketSet` or `Portfolio`.
        dates: ISO trade dates, ascending.
    """
    return {
        member.contract.symbol: _of_symbol(member.bars, member.contract, dates)
        for member in market.members
    }


def _of_symbol(bars: Any, contract: Any, dates: Sequence[str]) -> tuple[str, ...]:
    days = np.array(dates, "datetime64[D]")
    first, last = days[[0, -1]].astype("datetime64[s]").astype(np.int64)
    near = slice(
        *np.searchsorted(bars.time, [first - AROUND, last + AROUND])
    )  # the others' dates are not needed
    found = trade_dates(bars.time[near], contract)
    start, end = np.searchsorted(found, days), np.searchsorted(found, days, side="right")
    price = {name: getattr(bars, name)[near] for name in ("open", "high", "low", "close")}

    def digest(rows: slice) -> str:
        if rows.start == rows.stop:
            return NO_BARS
        figures = (
            price["open"][rows][0],
            price["high"][rows].max(),
            price["low"][rows].min(),
            price["close"][rows][-1],
        )
        text = " ".join([str(contract.tick_size), *(str(int(each)) for each in figures)])
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]

    return tuple(digest(slice(a, b)) for a, b in zip(start.tolist(), end.tolist(), strict=True))


PREFIX = "trials: "  # how the lines in a report begin
ABSENT = "not computable yet: "  # how the line begins that names what a report lacks
NO_LOG = (
    "the trial log cannot be read"  # why the number of trials is unknown; the line above says more
)
MANY, FEW_DRAWS = (
    50,
    40,
)  # above so many trials the null band of PBO has fewer draws, so that it takes a second or two

Trial = tuple[
    str, str, str
]  # sha256 of configuration, data and policy; its seed or index where that is unknown


@dataclass(frozen=True)
class SplitHistory:
    """What the trial log says about the test days of an evaluation.

    opened: how often they were opened, this time included.
    trials: how many distinct policies were evaluated on them. Both are None where the log cannot
        tell, and `fault` says why; `fault` is None otherwise.
    counted: whether this look was written to the log.
    log: the log's file.
    first, last: UTC times of the first and the latest look in it.
    whole: how many of the trials were evaluated on every one of the days.
    pbo: the probability of backtest overfitting over these.
    psr, dsr: probabilistic and deflated Sharpe ratio of the evaluated policy. The three are None
        where they were not asked for.
    """

    opened: int | None
    trials: int | None
    fault: str | None
    counted: bool
    log: str
    first: str | None = None
    last: str | None = None
    whole: int | None = None
    pbo: Overfitting | None = None
    psr: IntervalEstimate | None = None
    dsr: IntervalEstimate | None = None

    @property
    def lacking(self) -> dict[str, str]:
        """The statistics that were asked for and cannot be given -> why."""
        asked = {"PSR": self.psr, "DSR": self.dsr, "PBO": self.pbo}
        return {name: each.why for name, each in asked.items() if each and each.why}

    def lines(self) -> list[str]:
        """Return up to three lines for the report.

        They are the count, the policy's Sharpe ratio against luck, and the trials'. What is
        undefined has no line: `history_lines` says why.
        """
        if self.fault:
            found = [f"how often this test set was looked at is n/a: {self.fault}"]
        else:
            found = [
                f"this test set was looked at {several(self.opened or 0, 'time')} ("
                f"{several(self.trials or 0, 'distinct trial')}), this time included"
            ]
        above = {
            "above 0 (PSR)": self.psr,
            "above the best of so many trials without skill (DSR)": self.dsr,
        }
        known = [
            f"{what}: {format_probability(*each)}"
            for what, each in above.items()
            if each and not each.why
        ]
        if known:
            found.append(f"probability that the true Sharpe ratio is {'; '.join(known)}")
        if self.pbo and self.pbo.value is not None:
            found.append(
                "probability that the trial that is best on some days is below the median on others (PBO): "
                f"{self.pbo.value:.2f} (without skill 5 to 95 % of cases give {self.pbo.null_low:.2f} .. "
                f"{self.pbo.null_high:.2f})"
            )
        return [f"{PREFIX}{line}" for line in found]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; of each statistic its fields, or None."""
        names = [each.name for each in fields(self)]
        return {
            name: value._asdict() if hasattr(value, "_asdict") else value
            for name, value in ((name, getattr(self, name)) for name in names)
        }


def format_probability(
    value: float | None, low: float | None, high: float | None, why: str | None
) -> str:
    """Format a probability with its interval, or `n/a` and why."""
    if value is None:
        return f"n/a ({why})"
    return f"{value:.2f}" + ("" if low is None or high is None else f" ({low:.2f} .. {high:.2f})")


def with_trials(history: SplitHistory, matrix: np.ndarray) -> SplitHistory:
    """Add PBO to the history. matrix: float64[D, N] of `trial_matrix`."""
    if history.trials is None:
        return replace(history, pbo=Overfitting(why=NO_LOG))
    whole = matrix.shape[1]
    found = Overfitting(why="no trial has all of these days")
    if whole:
        found = pbo(matrix, draws=NULL_DRAWS if whole <= MANY else FEW_DRAWS)
    return replace(history, whole=whole, pbo=found)


def with_policy(history: SplitHistory, net: np.ndarray, matrix: np.ndarray) -> SplitHistory:
    """Add PSR and DSR of a policy to the history.

    The variance of the trials' Sharpe ratios is that of the trials in `matrix`; their number is
    that of all trials.

    Args:
        net: float64[D] dollars of each day.
        matrix: as in `with_trials`.
    """
    if history.trials is None:
        return replace(history, psr=psr(net), dsr=IntervalEstimate(why=NO_LOG))
    variance = trial_variance(matrix) if matrix.shape[1] else None
    return replace(history, psr=psr(net), dsr=dsr(net, history.trials, variance))


def drop_policy(history: SplitHistory | None) -> SplitHistory | None:
    """Return the history without what is about one policy, for a table of several."""
    return history and replace(history, psr=None, dsr=None)


def latest(histories: Iterable[SplitHistory | None]) -> SplitHistory | None:
    """Return the history with the most looks, of policies evaluated one after the other."""
    return max(
        filter(None, histories),
        key=lambda each: each.opened or 0,
        default=None,
    )


def history_lines(
    history: SplitHistory | None, lacking: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines of a history, and one line that names all metrics that cannot be computed yet.

    lacking: name -> why, of further such metrics.
    """
    names = {**(lacking or {}), **(history.lacking if history else {})}
    absent = [f"{ABSENT}{join_reasons(names)}"] if names else []
    return [*(history.lines() if history else []), *absent]


def history_json(history: SplitHistory | None) -> dict[str, Any]:
    """Return the entry of a document; none without a history."""
    return {"trials": history.to_json()} if history else {}


def days_of(look: SplitLook) -> HeldOutDays:
    """Return the days that a look showed."""
    return HeldOutDays(look.data, look.dates, look.bars)


def list_looks(looks: Sequence[SplitLook], days: HeldOutDays) -> list[SplitLook]:
    """List the looks at any of the days, on the same bars (`HeldOutDays.meets`)."""
    return [
        each
        for each in looks
        if (
            days.meets(days_of(each))
            if each.dates
            else each.data == days.data
            and any(each.first <= day <= each.last for day in days.dates)
        )
    ]


def trials_of(looks: Sequence[SplitLook]) -> list[Trial]:
    """List the distinct trials, in the order in which they came."""
    return list(dict.fromkeys(_trial(each, name) for each in looks for name in each.net))


def _trial(look: SplitLook, name: str) -> Trial:
    return look.config, look.data, look.policies.get(name, name)


def trial_matrix(looks: Sequence[SplitLook], days: HeldOutDays) -> tuple[list[Trial], np.ndarray]:
    """Return the trials evaluated on every one of the days, and their dollars (float64[D, N]).

    Of a trial that was evaluated several times the latest result counts. Trials that lack a day or
    a symbol are left out: their number is that of `trials_of` less that of these.
    """
    found: dict[Trial, list[float]] = {}
    for each in looks:
        if each.net and days.within(days_of(each)):
            place = {day: number for number, day in enumerate(each.dates)}
            for name, net in each.net.items():
                found[_trial(each, name)] = [net[place[day]] for day in days.dates]
    matrix = np.array(list(found.values()), np.float64).reshape(len(found), len(days.dates)).T
    return list(found), matrix
