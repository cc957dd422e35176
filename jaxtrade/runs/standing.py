"""The days on which an evaluation of a run rests, for the reader of its report."""

from __future__ import annotations

import numpy as np

from jaxtrade.data.market_set import MarketSet
from jaxtrade.evaluation.metrics import days_note
from jaxtrade.runs.setup import Setup


def day_count(setup: Setup, split: str) -> int:
    """Trade dates of a split; a date that several symbols have counts once."""
    sessions = setup.splits[split]
    if not isinstance(setup.market, MarketSet):
        return int(sessions.count)
    return len(np.unique(setup.market.trade_dates[np.asarray(sessions.ids)[: int(sessions.count)]]))


def days_label(setup: Setup, split: str) -> str:
    """The label that says how many independent days an evaluation on this split rests on
    (`days_note`).
    """
    keeps_best = setup.config.control.keep == "best"
    chosen = day_count(setup, "validation") if keeps_best else None
    return days_note(
        day_count(setup, split),
        day_count(setup, "train"),
        chosen,
        len(setup.market.members),
        same=keeps_best and split == "validation",
    )
