"""How often the days of an evaluation were looked at before, and by how many policies, from the trial log.

A trial is a policy that was evaluated on these days: one configuration and one seed. Evaluated again, it is the same
trial, but the days were opened once more. Loads no JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.storage.trials import SplitOpening
from jaxtrade.text import several

PREFIX = "trials: "  # how the lines in a report begin

Trial = tuple[str, str]  # sha256 of the configuration, and seed or index of the policy


@dataclass(frozen=True)
class SplitHistory:
    """What the trial log says about the test days of an evaluation.

    opened: how often they were opened, this time included. trials: how many distinct policies were evaluated on them.
    Both are None where the log cannot tell, and `fault` says why; `fault` is None otherwise. counted: whether this
    opening was written to the log. log: the log's file. first, last: UTC times of the first and the latest opening in
    it.
    """

    opened: int | None
    trials: int | None
    fault: str | None
    counted: bool
    log: str
    first: str | None = None
    last: str | None = None

    def lines(self) -> list[str]:
        """One line for the report."""
        if self.opened is None or self.trials is None:
            return [f"{PREFIX}how often this test set was opened is n/a: {self.fault}"]
        trials = several(self.trials, "distinct trial")
        return [f"{PREFIX}this test set was opened {several(self.opened, 'time')} ({trials}), this time included"]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"opened": self.opened, "trials": self.trials, "fault": self.fault, "counted": self.counted,
                "log": self.log, "first": self.first, "last": self.last}


def latest(histories: Iterable[SplitHistory | None]) -> SplitHistory | None:
    """The history that saw the most openings, of policies that were evaluated one after the other."""
    return max((each for each in histories if each is not None), key=lambda each: each.opened or 0, default=None)


def history_lines(history: SplitHistory | None) -> list[str]:
    """The lines of a history; none without one."""
    return [] if history is None else history.lines()


def history_json(history: SplitHistory | None) -> dict[str, Any]:
    """The entry of a document; none without a history."""
    return {} if history is None else {"trials": history.to_json()}


def openings_of(openings: Sequence[SplitOpening], data: str, dates: Sequence[str]) -> list[SplitOpening]:
    """The openings of the same data in which any of the days was looked at. data: sha256. dates: ISO, ascending."""
    days = set(dates)

    def overlaps(each: SplitOpening) -> bool:
        if each.dates:
            return not days.isdisjoint(each.dates)
        return any(each.first <= day <= each.last for day in dates)

    return [each for each in openings if each.data == data and overlaps(each)]


def trials_of(openings: Sequence[SplitOpening]) -> list[Trial]:
    """The distinct trials, in the order in which they came."""
    return list(dict.fromkeys((each.config, policy) for each in openings for policy in each.net))


def trial_matrix(openings: Sequence[SplitOpening], dates: Sequence[str]) -> tuple[list[Trial], np.ndarray]:
    """The trials that were evaluated on every one of the days, and float64[D, N] dollars of each day and trial.

    Of a trial that was evaluated several times the latest result counts. Trials that lack a day are left out: their
    number is that of `trials_of` less that of these.
    """
    found: dict[Trial, list[float]] = {}
    for each in openings:
        place = {day: number for number, day in enumerate(each.dates)}
        if each.net and all(day in place for day in dates):
            for policy, net in each.net.items():
                found[(each.config, policy)] = [net[place[day]] for day in dates]
    matrix = np.array(list(found.values()), np.float64).reshape(len(found), len(dates)).T
    return list(found), matrix
