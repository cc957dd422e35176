"""Equity and drawdown as a plot.

This module loads matplotlib, so it is imported where a plot is drawn.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxtrade.evaluation.plots import style
from jaxtrade.evaluation.plots.style import LOOKS
from jaxtrade.formatting import date_span


class ResultFigure(Figure):
    """A figure that a notebook shows by itself: it needs neither pyplot nor a backend."""

    def _repr_png_(self) -> bytes:
        """Render the figure as PNG."""
        out = io.BytesIO()
        self.savefig(out, format="png", metadata={"Software": "jaxtrade"})
        return out.getvalue()


def draw_equity(equity: pd.DataFrame, title: str) -> ResultFigure:
    """Draw the equity of the strategy pass above, its drawdown below.

    The x axis counts bars, so closed hours take no space.

    equity: as `trades.equity_frame` returns it.
    """
    figure = ResultFigure(figsize=(9, 5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    money = equity["strategy_equity"].to_numpy(np.float64)
    fall = money - np.maximum.accumulate(money)
    upper.plot(money, **LOOKS["result"])
    lower.fill_between(np.arange(len(fall)), fall, **LOOKS["result fall area"])
    lower.plot(fall, **LOOKS["result fall"])
    upper.set_title(title, loc="left", fontsize=11)
    upper.set_ylabel("equity, $")
    lower.set_ylabel("drawdown, $")
    for axis in (upper, lower):
        axis.grid(True, axis="y", **LOOKS["light grid"])
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.margins(x=0.01)
    _mark_time(lower, equity)
    return figure


def _mark_time(axis: Any, equity: pd.DataFrame) -> None:
    """Mark dates below the axis, or full hours if there is one session."""
    session = equity["session"]
    first = np.flatnonzero(np.r_[True, session.to_numpy()[1:] != session.to_numpy()[:-1]])
    dates = [session.iloc[i] for i in first]
    if len(first) == 1:
        axis.set_xticks(*style.time_marks(list(equity.index)))
        axis.set_xlabel(f"{date_span(dates)}, {getattr(equity.index, 'tz', '')}")
        return
    chosen, labels = style.date_marks(dates)
    axis.set_xticks([first[i] for i in chosen], labels)
    axis.set_xlabel("session")
