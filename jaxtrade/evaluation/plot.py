"""Equity and drawdown as a figure. This module loads matplotlib, so it is imported where a figure is drawn."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LINE, FALL, GRID = "#1f4e9c", "#c0392b", "#e6e8eb"
TICKS = 7


class ResultFigure(Figure):
    """A figure that a notebook shows by itself: it needs neither pyplot nor a backend."""

    def _repr_png_(self) -> bytes:
        """The figure as PNG."""
        out = io.BytesIO()
        self.savefig(out, format="png", metadata={"Software": "jaxtrade"})
        return out.getvalue()


def draw_equity(equity: pd.DataFrame, title: str) -> ResultFigure:
    """Equity of the strategy pass above, its drawdown below. The x axis counts bars, so closed hours take no space.

    equity: as `frames.equity_frame` returns it.
    """
    figure = ResultFigure(figsize=(9, 5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    money = equity["strategy_equity"].to_numpy(np.float64)
    fall = money - np.maximum.accumulate(money)
    upper.plot(money, color=LINE, linewidth=1.4)
    lower.fill_between(np.arange(len(fall)), fall, color=FALL, alpha=0.35, linewidth=0)
    lower.plot(fall, color=FALL, linewidth=0.8)
    upper.set_title(title, loc="left", fontsize=11)
    upper.set_ylabel("equity, $")
    lower.set_ylabel("drawdown, $")
    for axis in (upper, lower):
        axis.grid(True, axis="y", color=GRID, linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.margins(x=0.01)
    _mark_time(lower, equity)
    return figure


def _mark_time(axis: Any, equity: pd.DataFrame) -> None:
    """Dates below the axis, or times if there is one session."""
    session, zone = equity["session"].to_numpy(), getattr(equity.index, "tz", "")
    first = np.flatnonzero(np.r_[True, session[1:] != session[:-1]])
    if len(first) == 1:
        at = np.unique(np.linspace(0, len(equity) - 1, TICKS).astype(int))
        axis.set_xticks(at, [equity.index[i].strftime("%H:%M") for i in at])
        axis.set_xlabel(f"{equity['session'].iloc[0]:%Y-%m-%d}, {zone}")
        return
    shown = first[np.unique(np.linspace(0, len(first) - 1, min(len(first), TICKS)).astype(int))]
    axis.set_xticks(shown, [f"{equity['session'].iloc[i]:%Y-%m-%d}" for i in shown])
    axis.set_xlabel("session")
