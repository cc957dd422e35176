"""The test days of a walk-forward in the trial log: entered before anybody sees a figure, told
beside the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.evaluation.openings import with_policy, with_trials
from jaxtrade.evaluation.walk_days import WalkDays
from jaxtrade.runs.openings import count_days, opening_of
from jaxtrade.runs.setup import Setup
from jaxtrade.text import Tell


class WalkCount(NamedTuple):
    """What the reader of a walk-forward must know about earlier looks at its days.

    lines: for the printed result. document: the keys `labels` and `trials` of `walkforward.json`.
    """

    lines: tuple[str, ...]
    document: dict[str, Any]


def count_walk(setup: Setup, path: Path, days: WalkDays, tell: Tell) -> WalkCount:
    """Enter the test days of all folds together in the trial log, as one opening with a trial for
    each seed.

    The seed's policies of all folds are one trial: its profit is known on every tested day, and a
    day that several folds test (cpcv) has its mean over them. The same opening is entered once,
    however often the run is resumed.
    tell: receives a warning if the log cannot be written; the result then has a label that says so.
    """
    net, _ = days.by_date(days.net)
    dates = np.unique(days.date).astype("datetime64[D]").astype(str).tolist()
    nets = {
        str(seed): tuple(round(value, 3) for value in own.tolist())
        for seed, own in zip(days.seeds.tolist(), net, strict=True)
    }
    opening = opening_of(setup, path, "test", "walkforward", dates)._replace(net=nets)
    counted = count_days(path, opening, tell, once=True)
    history = with_trials(counted.history, counted.matrix)
    each = {seed: with_policy(history, np.array(own), counted.matrix) for seed, own in nets.items()}
    shown = next(iter(each.values())) if len(each) == 1 else history
    labels = () if counted.label is None else (counted.label,)
    by_seed = {
        seed: {name: value for name, value in own.to_json().items() if name in ("psr", "dsr")}
        for seed, own in each.items()
    }
    return WalkCount(
        (*(f"NOTE: {label}" for label in labels), *shown.lines()),
        {"labels": list(labels), "trials": shown.to_json() | {"by_seed": by_seed}},
    )
