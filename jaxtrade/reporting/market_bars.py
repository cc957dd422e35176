"""The bars of the evaluated sessions, read from the run's own market."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxtrade.reporting.bars import Bars
from jaxtrade.reporting.collect import Choice


def read(choice: Choice, data: Path | None = None) -> tuple[Bars, int, tuple[str, ...], np.ndarray]:
    """(bars, seconds of a bar, names of the actions, numbers of the decision bars) of the chosen evaluation.

    data: as in `runs.evaluate.open_run`. Raises as it does.
    """
    from jaxtrade.evaluation.backtest import decision_bars
    from jaxtrade.runs.evaluate import open_run

    setup, _ = open_run(choice.run, data, advisor=False)
    own = setup if choice.symbol is None else setup.symbols[choice.symbol]
    market = own.single
    decisions = decision_bars(market.data, own.splits[choice.split])
    rows = np.union1d(decisions.rows, decisions.rows + 1)
    session = decisions.session[np.searchsorted(decisions.rows, np.minimum(rows, decisions.rows[-1]), "right") - 1]
    mid = market.bars.mid
    prices = [np.asarray(each, np.int64)[rows] for each in (mid.open, mid.high, mid.low, mid.close)]
    bars = Bars(np.asarray(market.bars.time, np.int64)[rows], *prices, session)
    return bars, market.bars.bar_seconds, tuple(own.env.actions), np.searchsorted(rows, decisions.rows)
