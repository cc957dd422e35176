"""Statistics that compare real and synthetic bars.

`python -m tests.data.synthetic_statistics` writes the table of docs/data.md. A test compares the
committed table with what this module computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np
from scipy import stats

from jaxtrade.config import DataConfig
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read.bars import Bars, load_bundled
from jaxtrade.data.synthetic import bars_of_kind

OPENING, NOON, CLOSING, NIGHT = (570, 600), (710, 740), (930, 960), (60, 120)  # exchange minutes
JUMP = 8.0  # standard deviations


class _View:
    """The series that the statistics read. Returns are log returns between bars without a gap
    between them.
    """

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.sessions = len(np.unique(bars.trade_dates))
        self.range = (bars.high - bars.low).astype(float)
        together = np.diff(bars.time) == bars.bar_seconds
        moves = np.diff(np.log(bars.close.astype(float)))
        self.returns = moves[together]
        self.runs = np.split(
            moves, np.flatnonzero(~together)
        )  # all but the first begin with the move over a gap

    def over_noon(self, values: np.ndarray, minutes: tuple[int, int]) -> float:
        """Mean of the values of bars that open in minutes [from, to), over that at noon; NaN if
        there are none."""
        means, at = [], self.bars.minutes
        for first, end in (minutes, NOON):
            chosen = values[(at >= first) & (at < end)]
            means.append(float(chosen.mean()) if len(chosen) else float("nan"))
        return means[0] / means[1]


def _autocorrelation(view: _View, lag: int, magnitude: bool) -> float:
    """Autocorrelation of returns, or of their absolute values, at `lag` bars. A pair never spans a
    gap in the bars.
    """
    runs = [run[1:] if i else run for i, run in enumerate(view.runs)]
    values = [np.abs(run) if magnitude else run for run in runs if len(run) > lag]
    if not values:
        return float("nan")
    before, after = (
        np.concatenate([run[part] for run in values])
        for part in (slice(None, -lag), slice(lag, None))
    )
    return float(np.corrcoef(before, after)[0, 1])


def _of_volume(figure: Callable[[_View, np.ndarray], float]) -> Callable[[_View], float]:
    return lambda view: figure(view, view.bars.volume) if view.bars.volume.any() else float("nan")


FIGURES: dict[str, Callable[[_View], float]] = {
    "sessions": lambda view: view.sessions,
    "bars per session": lambda view: len(view.bars) / view.sessions,
    "standard deviation of returns, basis points": lambda view: 1e4 * float(view.returns.std()),
    "kurtosis of returns (normal: 3)": lambda view: float(
        stats.kurtosis(view.returns, fisher=False)
    ),
    "share of zero returns": lambda view: float((view.returns == 0).mean()),
    f"returns past {JUMP:.0f} standard deviations, per session": lambda view: float(
        (np.abs(view.returns) > JUMP * view.returns.std()).sum() / view.sessions
    ),
    "autocorrelation of returns, lag 1": lambda view: _autocorrelation(view, 1, False),
    "autocorrelation of absolute returns, lag 1": lambda view: _autocorrelation(view, 1, True),
    "autocorrelation of absolute returns, lag 10": lambda view: _autocorrelation(view, 10, True),
    "autocorrelation of absolute returns, lag 60": lambda view: _autocorrelation(view, 60, True),
    "mean range over mean absolute close - open": lambda view: float(
        view.range.mean() / np.abs(view.bars.close - view.bars.open).mean()
    ),
    "range, 09:30-10:00 over 11:50-12:20": lambda view: view.over_noon(view.range, OPENING),
    "range, 15:30-16:00 over 11:50-12:20": lambda view: view.over_noon(view.range, CLOSING),
    "range, 01:00-02:00 over 11:50-12:20": lambda view: view.over_noon(view.range, NIGHT),
    "volume, 09:30-10:00 over 11:50-12:20": _of_volume(
        lambda view, volume: view.over_noon(volume, OPENING)
    ),
    "volume, 01:00-02:00 over 11:50-12:20": _of_volume(
        lambda view, volume: view.over_noon(volume, NIGHT)
    ),
    "variation of volume (standard deviation / mean)": _of_volume(
        lambda _, volume: float(volume.std() / volume.mean())
    ),
    "correlation of volume and range": _of_volume(
        lambda view, volume: float(np.corrcoef(volume, view.range)[0, 1])
    ),
}


def compared() -> dict[str, Bars]:
    """The bars to compare, by name of the table's column."""
    es, nq, euro = (get_contract(symbol) for symbol in ("ES", "NQ", "EURUSD"))
    start, end = "2014-01-01", "2014-12-31"
    return {
        "real ES, 2013-10-07..11": load_bundled(es),
        "real ES, 2020-01-06": load_bundled(es, expiry="202003"),
        "`nq_like` ES": bars_of_kind(es, DataConfig()),
        "`nq_like` NQ": bars_of_kind(nq, DataConfig()),
        "`phase_randomised` ES": bars_of_kind(es, DataConfig(synthetic="phase_randomised")),
        "real EURUSD, hours of 2014": load_bundled(euro, start=start, end=end),
        "`phase_randomised` EURUSD": bars_of_kind(
            euro,
            DataConfig(synthetic="phase_randomised", synthetic_sessions=5000, start=start, end=end),
        ),
    }


def statistics(bars: Bars) -> dict[str, float]:
    """Every statistic of `FIGURES`; NaN if the bars do not allow it (no volume, or hours instead of
    minutes).
    """
    view = _View(bars)
    return {name: figure(view) for name, figure in FIGURES.items()}


def _cell(value: float) -> str:
    if np.isnan(value):
        return "n/a"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.2f}"


def table(columns: Mapping[str, Bars]) -> str:
    """The statistics as a Markdown table, one row each."""
    figures = [statistics(bars) for bars in columns.values()]
    rows = [["", *columns], ["---", *["---:"] * len(columns)]]
    rows += [[name, *[_cell(values[name]) for values in figures]] for name in FIGURES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(compared()))
