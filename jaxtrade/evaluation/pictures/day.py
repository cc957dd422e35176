"""`day.png`: the session with most trades as candles, with entries, exits, stops and targets, and
its profit.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.env.state import NO_LEVEL
from jaxtrade.evaluation.pictures import style
from jaxtrade.evaluation.report import EvaluationResult
from jaxtrade.evaluation.result import AgentResult
from jaxtrade.evaluation.trades import Trades

MOST_CANDLES = 220
WIDTHS = (1, 2, 3, 5, 10, 15, 30, 60)  # bars in one candle
ROOM = 0.2  # share of the range of prices by which stops and targets may lie outside it
MARGIN = 20  # bars shown before the first entry and after the last exit


class Day(NamedTuple):
    """The part of a session that is drawn.

    number: of the session in the set. first, last: indices of its first and last decision bar shown
        (inclusive).
    trades: those of the session.
    """

    number: int
    first: int
    last: int
    trades: Trades


def busiest(result: EvaluationResult, agent: AgentResult) -> Day:
    """The session with most trades, the first of several. Without any trade: the last session.

    Of a long session only the hours with trades are shown, and `MARGIN` bars on both sides.
    """
    decisions, trades = result.decisions, agent.trades
    number = len(decisions.ids) - 1
    if len(trades):
        number = int(np.bincount(trades.session, minlength=len(decisions.ids)).argmax())
    chosen = trades.where(trades.session == number)
    last = int(decisions.last[number])
    first = int(np.searchsorted(decisions.session, number))
    if len(chosen) and last - first >= MOST_CANDLES:
        entered = np.searchsorted(decisions.rows, chosen.decision_row)
        left = np.searchsorted(decisions.rows, chosen.exit_row - 1)
        first, last = max(first, int(entered.min()) - MARGIN), min(last, int(left.max()) + MARGIN)
    return Day(number, first, last, chosen)


@style.styled
def draw(result: EvaluationResult, agent: AgentResult, path: Path) -> None:
    """Write the PNG. Raises OSError (disk)."""
    style.save(figure_of(result, agent), path)


def headline(result: EvaluationResult, agent: AgentResult, day: Day) -> tuple[str, str]:
    """The two lines above the picture: which day, and the figures of its trades."""
    date: datetime.date = result.decisions.date.tolist()[day.number]
    title = f"{agent.name} on {result.settings['market']}, {style.span_of([date])}"
    count, won = len(day.trades), int((day.trades.net > 0).sum())
    if not count:
        return title, "no trades" + (
            "" if len(result.decisions.ids) == 1 else " in any session; this is the last one"
        )
    which = "" if len(result.decisions.ids) == 1 else "the session with most trades   ·   "
    return title, (
        f"{which}net {style.dollars(int(day.trades.net.sum()) / 1000)}   ·   {count:,} "
        f"trade{'' if count == 1 else 's'}   ·   {won} won, {count - won} lost"
    )


@style.styled
def figure_of(result: EvaluationResult, agent: AgentResult) -> Any:
    """The matplotlib Figure: candles above, the day's profit below. The x axes count bars."""
    day = busiest(result, agent)
    figure = style.new_figure(11.5, 7.6, *headline(result, agent, day))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    figure.align_ylabels([top, bottom])
    figure.subplots_adjust(left=0.085, right=0.985, top=0.87, bottom=0.075, hspace=0.2)
    bars = _candles(top, result, day)
    _levels(top, result, agent, day)
    _marks(top, result, day)
    style.price_axis(top, result.clock)
    minutes = bars * result.clock.bar_seconds / 60
    top.set_title(f"Candles of {minutes:g} minute{'' if minutes == 1 else 's'}")
    style.legend_above(top)
    _profit(bottom, agent, day)
    at, labels = style.time_marks(
        style.local_times(result.clock, result.decisions.rows[day.first : day.last + 1] + 1)
    )
    bottom.set_xticks(at, labels)
    bottom.set_xlabel(f"close of the bar, {result.clock.zone}")
    count = day.last - day.first + 1
    bottom.set_xlim(-0.5 - count / 80, count - 0.5 + count / 80)
    return figure


def grouped(values: np.ndarray, size: int, how: Any) -> np.ndarray:
    """`how` (a ufunc with `reduceat`) over groups of `size` values; the last group may be
    smaller.
    """
    return how.reduceat(values, np.arange(0, len(values), size))


def _candles(axis: Any, result: EvaluationResult, day: Day) -> int:
    """Draw candles: hollow where the price rose, filled where it fell. Returns the number of bars
    in each.
    """
    from matplotlib.collections import LineCollection, PolyCollection

    rows, tick = result.decisions.rows[day.first : day.last + 1] + 1, float(result.clock.tick_size)
    size = next((width for width in WIDTHS if len(rows) / width <= MOST_CANDLES), WIDTHS[-1])
    starts = np.arange(0, len(rows), size)
    ends = np.minimum(starts + size, len(rows)) - 1
    first, last = result.open[rows[starts]] * tick, result.close[rows[ends]] * tick
    high = grouped(result.high[rows], size, np.maximum) * tick
    low = grouped(result.low[rows], size, np.minimum) * tick
    middle, half = (starts + ends) / 2, 0.36 * size
    top, bottom = np.maximum(first, last), np.minimum(first, last)
    wicks = [[(x, a), (x, b)] for x, a, b in zip(middle, low, bottom, strict=True)]
    wicks += [[(x, a), (x, b)] for x, a, b in zip(middle, top, high, strict=True)]
    axis.add_collection(LineCollection(wicks, colors=style.GREY, linewidths=0.8, zorder=1))
    bodies = [
        [(x - half, a), (x + half, a), (x + half, b), (x - half, b)]
        for x, a, b in zip(middle, bottom, top, strict=True)
    ]
    faces = np.where(last >= first, "white", style.PALE)
    axis.add_collection(
        PolyCollection(
            bodies, facecolors=list(faces), edgecolors=style.GREY, linewidths=0.8, zorder=2
        )
    )
    axis.autoscale_view()
    return size


def levels(agent: AgentResult, day: Day) -> dict[str, list[tuple[int, int]]]:
    """name -> (bar, level in ticks) of the stop and the target of the position held after each
    decision bar shown.

    bar: counted from the first one shown. The level at the close of a bar holds in the next one.
    """
    legs = np.asarray(agent.strategy.ref.legs)[day.first : day.last + 1, 0].astype(np.int64)
    held = legs[:, 0] != 0
    return {
        name: [
            (int(bar), int(legs[bar, column]))
            for bar in np.flatnonzero(held & (np.abs(legs[:, column]) < NO_LEVEL))
        ]
        for name, column in (("stop", 2), ("target", 3))
    }


def joined(levels: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(first bar, last bar, level) of each stretch of neighbouring bars with the same level.
    levels: (bar, level).
    """
    found: list[tuple[int, int, int]] = []
    for bar, level in levels:
        if found and found[-1][1] == bar - 1 and found[-1][2] == level:
            found[-1] = (found[-1][0], bar, level)
        else:
            found.append((bar, bar, level))
    return found


def _levels(axis: Any, result: EvaluationResult, agent: AgentResult, day: Day) -> None:
    """Draw stops and targets as far as they are near the prices: a far target must not flatten the
    candles.
    """
    from matplotlib.collections import LineCollection

    low, high = axis.get_ylim()
    room, tick = ROOM * (high - low), float(result.clock.tick_size)
    for name, color, form, how in (
        ("stop", style.LOST, "-", "solid"),
        ("target", style.WON, (0, (5, 2.5)), "dashed"),
    ):
        found = [
            (first, last, level * tick) for first, last, level in joined(levels(agent, day)[name])
        ]
        near = [each for each in found if low - room <= each[2] <= high + room]
        if not near:
            continue
        lines = [[(first - 0.5, price), (last + 0.5, price)] for first, last, price in near]
        label = f"{name} ({how}{'' if len(near) == len(found) else ', where near'})"
        axis.add_collection(
            LineCollection(
                lines, colors=color, linewidths=1.3, linestyles=form, zorder=3, label=label
            )
        )
    axis.autoscale_view()


def _marks(axis: Any, result: EvaluationResult, day: Day) -> None:
    """Entries by side and exits by outcome, at their prices."""
    trades, tick, rows = day.trades, float(result.clock.tick_size), result.decisions.rows
    if not len(trades):
        return
    entered = np.searchsorted(rows, trades.decision_row) - day.first
    left = np.searchsorted(rows, trades.exit_row - 1) - day.first
    size = float(np.clip(2400 / len(trades), 22, 70))
    style.entries(axis, entered, trades.entry_price * tick, trades.side, size)
    style.exits(axis, left, trades.exit_price * tick, trades.net > 0, size)


def _profit(axis: Any, agent: AgentResult, day: Day) -> None:
    equity = agent.strategy.equity.astype(np.int64)
    before = 0 if day.first == 0 else int(equity[day.first - 1])
    profit = (equity[day.first : day.last + 1] - before) / 1000
    x = np.arange(len(profit))
    axis.axhline(0, color=style.GREY, linewidth=0.8)
    for part, color in ((np.maximum(profit, 0), style.WON), (np.minimum(profit, 0), style.LOST)):
        axis.fill_between(x, part, 0, color=color, alpha=0.2, linewidth=0, step="mid")
    axis.plot(x, profit, color=style.POLICY, linewidth=1.4, drawstyle="steps-mid")
    style.money_axis(axis, "profit")
    axis.set_title("Profit of the day, open positions at the close of each bar")
