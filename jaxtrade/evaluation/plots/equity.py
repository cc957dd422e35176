"""Plots of an evaluation: the equity of an agent in both passes, and one of its days."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import NO_LEVEL, EndReason
from jaxtrade.evaluation.plots import style
from jaxtrade.evaluation.plots.style import LOOKS
from jaxtrade.evaluation.result import AgentResult, EvaluationResult
from jaxtrade.evaluation.trades import Trades
from jaxtrade.formatting import at as time_at
from jaxtrade.formatting import date_span, name_agent, share
from jaxtrade.text import several

MOST_MARKS, MOST_ENTRIES = 1500, 150  # trades above which no exit, and no entry, is marked
WILD = (
    "random"  # the agent that may leave the plot: what it loses to costs can dwarf all the others
)
ROOM, PAD = (
    0.5,
    0.06,
)  # shares of the others' range: within ROOM the wild one is shown in full; PAD is left around it


def headline(result: EvaluationResult, agent: AgentResult) -> tuple[str, str]:
    """Return the two lines above the plot: what it shows, and the metrics of the strategy pass."""
    dates, figures = result.decisions.date.tolist(), agent.strategy_figures
    notes = [
        label.split(":")[0].upper()
        for label in result.labels
        if label.startswith(("synth", "in sample", "opti"))
    ]
    count = figures["trades"]
    parts = [
        f"net {style.dollars(figures['net_profit'])}",
        several(count, "trade"),
        *([f"{share(figures['win_rate'], 0)} won"] if count else []),
        f"max drawdown {style.dollars(figures['max_drawdown'])}",
        *notes,
    ]
    return (
        f"{name_agent(agent.name)} on {result.settings['market']}, {date_span(dates)}",
        "   ·   ".join(parts),
    )


Panel = Callable[[Any, Any, AgentResult], None]  # (axis, result, agent) draws one


def prices(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    """Draw the price, and the trades on it."""
    rows, tick = result.decisions.rows, float(result.clock.tick_size)
    axis.plot(
        *_insert_gaps(
            result.close[rows + 1] * tick, np.flatnonzero(np.diff(result.decisions.session)) + 1
        ),
        **LOOKS["price"],
    )
    count = len(agent.trades)
    note = (
        "no trades"
        if not count
        else ""
        if count <= MOST_MARKS
        else f"{count:,} trades, too many to mark"
    )
    axis.set_title("Price and trades" + (f": {note}" if note else ""))
    if 0 < count <= MOST_MARKS:
        _trades(axis, result, agent)
    style.price_axis(axis, result.clock)


def profits(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    """Draw what each symbol of a joint account has made, without account rules."""
    frame, colors = result.equity_of(agent.name), LOOKS["others"]
    for i, symbol in enumerate(result.settings["symbols"]):
        color = colors[i % len(colors)]
        axis.plot(frame[f"profit_{symbol}"], color=color, label=symbol, **LOOKS["other agent"])
    style.money_axis(axis, "profit")
    axis.set_title("Profit of each symbol")


@style.apply_style
def plot_result(result: EvaluationResult, agent: AgentResult, first: Panel = prices) -> Any:
    """Draw an agent's result as a matplotlib Figure.

    The x axes count decision bars, so that closed hours take no space.

    first: draws the first panel.
    """
    figure = style.new_figure(11.5, 10.5, *headline(result, agent))
    axes = figure.subplots(4, 1, **LOOKS["equity panels"])
    figure.subplots_adjust(**LOOKS["equity frame"])
    for axis, panel in zip(axes, (first, _equity, _drawdown, _account), strict=True):
        panel(axis, result, agent)
        style.legend_above(axis)
        axis.margins(x=0.01)
    figure.align_ylabels(axes)
    _mark_time(axes, result)
    return figure


def _trades(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    """Draw a line from each entry to its exit, and marks: entries by side, exits by outcome."""
    from matplotlib.collections import LineCollection

    trades, rows, tick = agent.trades, result.decisions.rows, float(result.clock.tick_size)
    entered, left = (
        np.searchsorted(rows, trades.decision_row),
        np.searchsorted(rows, trades.exit_row - 1),
    )
    bought, sold = trades.entry_price * tick, trades.exit_price * tick
    size = float(np.clip(3000 / len(trades), 9, 42))
    if len(trades) <= MOST_ENTRIES:
        style.entries(axis, entered, bought, trades.side, size * 0.9)
    won = trades.net > 0
    lines = np.stack([np.stack([entered, left], 1), np.stack([bought, sold], 1)], 2)
    axis.add_collection(
        LineCollection(
            list(lines),
            colors=list(np.where(won, style.WON, style.LOST)),
            **LOOKS["trade"],
        ),
        autolim=False,
    )
    style.exits(axis, left, sold, won, size)


def _equity(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    drawn: set[str] = set()
    samples = sum(other.name.startswith("sampled_") for other in result.agents)
    for i, other in enumerate(each for each in result.agents if each.name != agent.name):
        kind = "sampled" if other.name.startswith("sampled_") else other.name
        name = f"sampled ({samples})" if kind != other.name else other.name
        color = LOOKS["baselines"].get(kind, LOOKS["others"][i % len(LOOKS["others"])])
        axis.plot(
            result.start_balance + other.strategy.equity / 1000,
            color=color,
            **LOOKS["other agent"],
            label=None if name in drawn else name,
            linestyle="--" if other.name == "flat" else "-",
        )
        drawn.add(name)
    axis.plot(
        result.start_balance + agent.strategy.equity / 1000,
        label=name_agent(agent.name),
        **LOOKS["agent"],
    )
    _set_limits(axis, result, agent)
    style.money_axis(axis, "equity")
    axis.set_title("Equity without account rules")


def _set_limits(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    """Scale the axis to the sensible agents.

    A `random` that would flatten their curves runs off the edge, marked.
    """
    start, others = (
        result.start_balance,
        [each for each in result.agents if each.name != WILD or each is agent],
    )
    wild = next((each for each in result.agents if each.name == WILD and each is not agent), None)
    low, high = (
        start + how(how(each.strategy.equity) for each in others) / 1000 for how in (min, max)
    )
    if not wild or low == high:
        return
    curve, size = start + wild.strategy.equity / 1000, high - low
    if low - ROOM * size <= curve.min() and curve.max() <= high + ROOM * size:
        return
    low, high = low - PAD * size, high + PAD * size
    axis.set_ylim(low, high)
    at = int(np.flatnonzero((curve < low) | (curve > high))[0])
    below = bool(curve[at] < low)
    axis.plot(
        at,
        low if below else high,
        marker="v" if below else "^",
        color=LOOKS["baselines"][WILD],
        **LOOKS["gone"],
    )
    left = at < 0.6 * len(curve)
    axis.annotate(
        _label_hidden(curve - start, low - start, high - start),
        (at, low if below else high),
        (8 if left else -8, 5 if below else -5),
        ha="left" if left else "right",
        va="bottom" if below else "top",
        **LOOKS["gone note"],
    )


def _label_hidden(profit: np.ndarray, low: float, high: float) -> str:
    """Say where the wild agent is while it is out of the plot.

    profit: its dollars from the start.
    """
    value, when = profit[-1], ""
    if low <= value <= high:  # it came back
        value, when = (
            (profit.min(), " at worst") if profit.min() < low else (profit.max(), " at best")
        )
    return f"{WILD}: {style.dollars(float(value), 0)}{when}, off the picture"


def _drawdown(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    equity = agent.strategy.equity  # mills from the start, which counts as the first highest one
    fall = (equity - np.maximum(np.maximum.accumulate(equity), 0)) / 1000
    axis.fill_between(np.arange(len(fall)), fall, 0, **LOOKS["fall area"])
    axis.plot(fall, **LOOKS["fall"])
    if not fall.any():
        axis.set_ylim(-100, 10)
        axis.set_yticks([0])
    style.money_axis(axis, "drawdown")
    axis.set_title(
        f"Drawdown of {name_agent(agent.name)} below its highest equity, at most {style.dollars(-fall.min())}"
    )


def _account(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    record, start = agent.account, result.start_balance
    floor = np.where(
        record.active & (record.event.floor != NO_FLOOR), start + record.event.floor / 1000, np.nan
    )
    equity = start + record.equity / 1000
    alive = np.where(record.active, equity, np.nan)
    borders = (
        np.flatnonzero(np.diff(record.account)) + 1
    )  # a gap keeps a line from joining two accounts
    for values, look in ((alive, "balance"), (floor, "floor")):
        if not np.isnan(values).all():
            axis.plot(*_insert_gaps(values, borders), **LOOKS[look])
    for reason, (name, color, mark) in LOOKS["ends"].items():
        at = np.flatnonzero(record.end == EndReason[reason])
        if len(at):
            axis.scatter(
                at,
                equity[at],
                color=style.COLOURS[color],
                marker=mark,
                s=130 if mark == "*" else 55,
                label=f"{name} ({len(at)})",
                **LOOKS["account end"],
            )
    style.money_axis(axis, "account")
    count = agent.account_figures["accounts"]
    preset, _, changes = result.settings["account"].partition(" with ")
    axis.set_title(  # the changes themselves do not fit beside the legend
        f"{'Account' if count == 1 else f'{count} accounts'} with rules: {preset}"
        f"{', changed' if changes else ''}"
    )


def _insert_gaps(values: np.ndarray, borders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, y) of a line that is interrupted before each of `borders`."""
    x = np.insert(np.arange(len(values), dtype=float), borders, np.nan)
    return x, np.insert(values.astype(float), borders, np.nan)


def _mark_time(axes: Any, result: EvaluationResult) -> None:
    """Mark session borders on all axes, and times (one session) or dates below the last."""
    decisions, bottom = result.decisions, axes[-1]
    first = np.append(0, decisions.last[:-1] + 1)
    if len(first) == 1:
        at, labels = style.time_marks(_times(result, decisions.rows))
        bottom.set_xticks(at, labels)
        bottom.set_xlabel(f"close of the bar, {result.clock.zone}")
        return
    if len(first) <= 60:
        for axis in axes:
            for x in first[1:]:
                axis.axvline(x - 0.5, **LOOKS["border"])
    chosen, labels = style.date_marks(decisions.date.tolist())
    few = len(first) <= 8  # then each label is in the middle of its session
    middle = (first + decisions.last) / 2
    bottom.set_xticks([middle[i] if few else first[i] for i in chosen], labels)
    bottom.set_xlabel("session")


def _times(result: EvaluationResult, rows: np.ndarray) -> list[datetime.datetime]:
    """Return the close of the bar after each decision, at the exchange."""
    clock = result.clock
    return [time_at(int(clock.time[row + 1]) + clock.bar_seconds, clock.zone) for row in rows]


MOST_CANDLES = 220
WIDTHS = (1, 2, 3, 5, 10, 15, 30, 60)  # bars in one candle
ROOM = 0.2  # share of the range of prices by which stops and targets may lie outside it
MARGIN = 20  # bars shown before the first entry and after the last exit


class Day(NamedTuple):
    """The part of a session that is drawn.

    number: of the session in the set.
    first, last: indices of its first and last decision bar shown (inclusive).
    trades: those of the session.
    """

    number: int
    first: int
    last: int
    trades: Trades


def busiest(result: EvaluationResult, agent: AgentResult) -> Day:
    """Find the session with most trades, the first of several. Without any trade: the last session.

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


def day_headline(result: EvaluationResult, agent: AgentResult, day: Day) -> tuple[str, str]:
    """Return the two lines above the plot: which day, and the metrics of its trades."""
    date: datetime.date = result.decisions.date.tolist()[day.number]
    title = f"{name_agent(agent.name)} on {result.settings['market']}, {date_span([date])}"
    count, won = len(day.trades), int((day.trades.net > 0).sum())
    if not count:
        return title, "no trades" + (
            "" if len(result.decisions.ids) == 1 else " in any session; this is the last one"
        )
    which = "" if len(result.decisions.ids) == 1 else "the session with most trades   ·   "
    return title, (
        f"{which}net {style.dollars(int(day.trades.net.sum()) / 1000)}   ·   "
        f"{several(count, 'trade')}   ·   {won} won, {count - won} lost"
    )


@style.apply_style
def plot_day(result: EvaluationResult, agent: AgentResult) -> Any:
    """Draw a day as a matplotlib Figure: candles above, the day's profit below.

    The x axes count bars.
    """
    day = busiest(result, agent)
    figure = style.new_figure(11.5, 7.6, *day_headline(result, agent, day))
    top, bottom = figure.subplots(2, 1, **LOOKS["day panels"])
    figure.align_ylabels([top, bottom])
    figure.subplots_adjust(**LOOKS["day frame"])
    bars = _candles(top, result, day)
    _levels(top, result, agent, day)
    _marks(top, result, day)
    style.price_axis(top, result.clock)
    minutes = bars * result.clock.bar_seconds / 60
    top.set_title(f"Candles of {minutes:g} minute{'' if minutes == 1 else 's'}")
    style.legend_above(top)
    _profit(bottom, agent, day)
    at, labels = style.time_marks(_times(result, result.decisions.rows[day.first : day.last + 1]))
    bottom.set_xticks(at, labels)
    bottom.set_xlabel(f"close of the bar, {result.clock.zone}")
    count = day.last - day.first + 1
    bottom.set_xlim(-0.5 - count / 80, count - 0.5 + count / 80)
    return figure


def reduce_groups(values: np.ndarray, size: int, how: Any) -> np.ndarray:
    """Reduce groups of `size` values by `how` (a ufunc with `reduceat`).

    The last group may be smaller.
    """
    return how.reduceat(values, np.arange(0, len(values), size))


def _candles(axis: Any, result: EvaluationResult, day: Day) -> int:
    """Draw candles: hollow where the price rose, filled where it fell.

    Returns the number of bars in each.
    """
    from matplotlib.collections import LineCollection, PolyCollection

    rows, tick = result.decisions.rows[day.first : day.last + 1] + 1, float(result.clock.tick_size)
    size = next((width for width in WIDTHS if len(rows) / width <= MOST_CANDLES), WIDTHS[-1])
    starts = np.arange(0, len(rows), size)
    ends = np.minimum(starts + size, len(rows)) - 1
    first, last = result.open[rows[starts]] * tick, result.close[rows[ends]] * tick
    high = reduce_groups(result.high[rows], size, np.maximum) * tick
    low = reduce_groups(result.low[rows], size, np.minimum) * tick
    middle, half = (starts + ends) / 2, 0.36 * size
    top, bottom = np.maximum(first, last), np.minimum(first, last)
    wicks = [[(x, a), (x, b)] for x, a, b in zip(middle, low, bottom, strict=True)]
    wicks += [[(x, a), (x, b)] for x, a, b in zip(middle, top, high, strict=True)]
    axis.add_collection(LineCollection(wicks, **LOOKS["wick"]))
    bodies = [
        [(x - half, a), (x + half, a), (x + half, b), (x - half, b)]
        for x, a, b in zip(middle, bottom, top, strict=True)
    ]
    faces = np.where(last >= first, "white", style.COLOURS["pale"])
    axis.add_collection(PolyCollection(bodies, facecolors=list(faces), **LOOKS["body"]))
    axis.autoscale_view()
    return size


def levels(agent: AgentResult, day: Day) -> dict[str, list[tuple[int, int]]]:
    """Find the stop and the target of the position held after each decision bar shown.

    Returns name -> (bar, level in ticks). The level at the close of a bar holds in the next one.

    bar: counted from the first one shown.
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


def merge_levels(levels: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Merge neighbouring bars with the same level -> (first bar, last bar, level) of each stretch.

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
    """Draw stops and targets as far as they are near the prices.

    A far target must not flatten the candles.
    """
    from matplotlib.collections import LineCollection

    low, high = axis.get_ylim()
    room, tick = ROOM * (high - low), float(result.clock.tick_size)
    for name, color, form, how in (
        ("stop", style.LOST, "-", "solid"),
        ("target", style.WON, (0, (5, 2.5)), "dashed"),
    ):
        found = [
            (first, last, level * tick)
            for first, last, level in merge_levels(levels(agent, day)[name])
        ]
        near = [each for each in found if low - room <= each[2] <= high + room]
        if not near:
            continue
        lines = [[(first - 0.5, price), (last + 0.5, price)] for first, last, price in near]
        label = f"{name} ({how}{'' if len(near) == len(found) else ', where near'})"
        axis.add_collection(
            LineCollection(lines, colors=color, linestyles=form, label=label, **LOOKS["level"])
        )
    axis.autoscale_view()


def _marks(axis: Any, result: EvaluationResult, day: Day) -> None:
    """Mark entries by side and exits by outcome, at their prices."""
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
    axis.axhline(0, **LOOKS["zero"])
    for part, color in ((np.maximum(profit, 0), style.WON), (np.minimum(profit, 0), style.LOST)):
        axis.fill_between(x, part, 0, color=color, **LOOKS["profit area"])
    axis.plot(x, profit, **LOOKS["profit"])
    style.money_axis(axis, "profit")
    axis.set_title("Profit of the day, open positions at the close of each bar")


# The file of each plot, and what draws it: (result, agent) -> Figure.
PICTURES: dict[str, tuple[str, Callable[..., Any]]] = {
    "prices": ("equity.png", plot_result),
    "profits": ("equity.png", partial(plot_result, first=profits)),
    "day": ("day.png", plot_day),
}
