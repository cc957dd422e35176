"""Charts as SVG that a browser shows without a script. Colours come from the classes of the style
sheet.

A chart is a picture for those who see it; each has a table with the same figures beside it. Where a
narrow screen would shrink its text too much, it is drawn twice, and the style sheet shows the one
that fits.

Also the curves of the shown agent: equity, drawdown, sessions, accounts and their floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.reporting.bars import PageClock, extremes
from jaxtrade.reporting.markup import Markup, joined, tag
from jaxtrade.reporting.schema import AccountRow, SessionRow

WIDTH, NARROW = 760, 360
LEFT, RIGHT, TOP, BOTTOM = (
    76,
    14,
    26,
    30,
)  # around the plot of `lines`; TOP holds the names of several lines
ROW, LABELS, VALUES = 26, 190, 120  # of `dots`: height of a row, widths beside the plot
TALL_ROW, SIDE = (
    42,
    22,
)  # of narrow `dots`: a row has its text above the plot; room beside the plot for its axis
Form = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """A line of a chart. values: None leaves a gap. kind: its class in the style sheet. steps:
    drawn as a staircase.
    """

    name: str
    values: Sequence[float | None]
    kind: str
    steps: bool = False
    filled: bool = False  # down to the axis of 0


@dataclass(frozen=True)
class Dot:
    """A row of `dots`: a value with its interval. text: written at the right. kind: its class in
    the style sheet.
    """

    label: str
    value: float | None
    text: str
    kind: str
    low: float | None = None
    high: float | None = None


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten, at most
    `most` + 1 of them.
    """
    span = high - low
    if span <= 0:
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def bounds(values: Sequence[float | None], zero: bool) -> tuple[float, float]:
    """Least and largest value with a margin; with `zero` 0 is inside. Never empty: without another
    value it is 0..1.
    """
    known = [each for each in values if each is not None] + ([0.0] if zero else [])
    low, high = (min(known), max(known)) if any(known) else (0.0, 1.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return (low if zero and low == 0 else low - margin), (
        high if zero and high == 0 else high + margin
    )


def text(
    x: float, y: float, content: str, anchor: str = "start", kind: str | None = None
) -> Markup:
    return tag("text", content, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=kind)


def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag(
        "line", x1=round(x1, 1), y1=round(y1, 1), x2=round(x2, 1), y2=round(y2, 1), class_=kind
    )


def frame(
    label: str, height: float, *children: Markup, width: float = WIDTH, kind: str = ""
) -> Markup:
    """The picture. label: what it shows, for a screen reader. kind: `wide` or `narrow` for one that
    only such screens show."""
    picture = tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        class_="chart",
    )
    return tag("div", picture, class_=f"figure {kind}".rstrip())


def lines(
    label: str,
    x: Sequence[float],
    drawn: Sequence[Line],
    form: Form,
    marks: Sequence[tuple[float, str]],
    *,
    height: float = 240,
    zero: bool = False,
) -> Markup:
    """Lines over a common x, for wide and for narrow screens. form: labels of the y axis. marks:
    (x, label) of the x axis. zero: 0 is on the y axis."""
    return joined(
        [
            small_lines(
                label, x, drawn, form, marks, height=height, zero=zero, width=WIDTH, kind="wide"
            ),
            small_lines(
                label,
                x,
                drawn,
                form,
                marks[::2],
                height=height,
                zero=zero,
                width=NARROW,
                kind="narrow",
            ),
        ]
    )


def small_lines(
    label: str,
    x: Sequence[float],
    drawn: Sequence[Line],
    form: Form,
    marks: Sequence[tuple[float, str]],
    *,
    height: float,
    zero: bool = False,
    width: float,
    kind: str = "",
) -> Markup:
    """`lines` in one width, for all screens or those of a `kind`."""
    low, high = bounds([each for line in drawn for each in line.values], zero)
    left, right = min(x, default=0), max(x, default=1)
    top = TOP if len(drawn) > 1 else 8
    wide, tall = width - LEFT - RIGHT, height - top - BOTTOM

    def px(value: float) -> float:
        return LEFT + wide * ((value - left) / (right - left) if right > left else 0.5)

    def py(value: float) -> float:
        return top + tall * (high - value) / (high - low)

    parts = []
    for value in ticks(low, high):
        parts += [
            rule(LEFT, py(value), width - RIGHT, py(value), "zero" if value == 0 else "grid"),
            text(LEFT - 8, py(value) + 4, form(value), "end", "axis"),
        ]
    for at, name in marks:
        parts += [
            rule(px(at), height - BOTTOM, px(at), height - BOTTOM + 4, "tick"),
            text(px(at), height - BOTTOM + 18, name, "middle", "axis"),
        ]
    for line in drawn:
        points = [
            None if each is None else (px(at), py(each))
            for at, each in zip(x, line.values, strict=True)
        ]
        parts += _line(points, line, py(0.0) if low <= 0 <= high else py(low))
    return frame(label, height, *_legend(drawn), *parts, width=width, kind=kind)


def _line(points: Sequence[tuple[float, float] | None], line: Line, base: float) -> list[Markup]:
    """The pieces of a line between its gaps. A piece of a single point is a disc."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    found = []
    for piece in filter(None, pieces):
        if len(piece) == 1:
            found.append(
                tag(
                    "circle",
                    cx=round(piece[0][0], 1),
                    cy=round(piece[0][1], 1),
                    r=3,
                    class_=f"dot {line.kind}",
                )
            )
            continue
        (x0, y0), path = piece[0], []
        for x, y in piece[1:]:
            path.append(f"H{x:.1f}V{y:.1f}" if line.steps else f"L{x:.1f} {y:.1f}")
        way = f"M{x0:.1f} {y0:.1f}{''.join(path)}"
        if line.filled:
            found.append(tag("path", d=f"{way}V{base:.1f}H{x0:.1f}Z", class_=f"area {line.kind}"))
        found.append(tag("path", d=way, class_=f"line {line.kind}"))
    return found


def _legend(drawn: Sequence[Line]) -> list[Markup]:
    """The names of the lines above the plot; nothing for a single one, which the caption names."""
    if len(drawn) < 2:
        return []
    parts, x = [], float(LEFT)
    for line in drawn:
        parts += [
            rule(x, 11, x + 18, 11, f"line {line.kind}"),
            text(x + 24, 15, line.name, kind="axis"),
        ]
        x += 48 + 6.6 * len(line.name)
    return parts


def dots(
    label: str,
    rows: Sequence[Dot],
    form: Form,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Markup:
    """One row per value: a disc, its interval as a bar, its text at the right. low, high: ends of
    the axis.

    For wide and for narrow screens: there the label and the text of a row stand above its disc."""
    every = [each for row in rows for each in (row.value, row.low, row.high)]
    found = bounds(every, True)
    ends = (found[0] if low is None else low), (found[1] if high is None else high)
    return joined(
        [
            _dots(label, rows, form, ends, "wide", (LABELS, WIDTH - VALUES, WIDTH - 4), ROW),
            _dots(label, rows, form, ends, "narrow", (SIDE, NARROW - SIDE, NARROW - 2), TALL_ROW),
        ]
    )


def _dots(
    label: str,
    rows: Sequence[Dot],
    form: Form,
    ends: tuple[float, float],
    kind: str,
    sides: tuple[float, float, float],
    tall: float,
) -> Markup:
    """`dots` for one kind of screen. sides: left and right end of the plot, and that of the text.
    tall: of a row.
    """
    (left, right), (start, stop, edge), narrow = ends, sides, kind == "narrow"
    bottom = 8 + tall * len(rows)

    def px(value: float) -> float:
        return start + (stop - start) * (value - left) / (right - left)

    parts = []
    for value in ticks(left, right, 3 if narrow else 5):
        parts += [
            rule(px(value), 4, px(value), bottom, "zero" if value == 0 else "grid"),
            text(px(value), bottom + 17, form(value), "middle", "axis"),
        ]
    for i, row in enumerate(rows):
        middle = 8 + tall * (i + (0.62 if narrow else 0.5))
        base = 8 + tall * i + 15 if narrow else middle + 4
        parts.append(
            text(
                2 if narrow else start - 14,
                base,
                shortened(row.label),
                "start" if narrow else "end",
                "label",
            )
        )
        if row.low is not None and row.high is not None:
            parts.append(rule(px(row.low), middle, px(row.high), middle, f"range {row.kind}"))
        if row.value is not None:
            parts.append(
                tag(
                    "circle",
                    cx=round(px(row.value), 1),
                    cy=round(middle, 1),
                    r=5,
                    class_=f"dot {row.kind}",
                )
            )
        parts.append(text(edge, base, row.text, "end", "value"))
    return frame(label, bottom + 26, *parts, width=edge + (2 if narrow else 4), kind=kind)


def strip(label: str, values: Sequence[float], own: float, form: Form) -> Markup:
    """Many values as open discs on one axis, and one of them all, `own`, as a full one with a
    line.
    """
    left, right = bounds([*values, own], zero=True)
    wide, bottom = WIDTH - 2 * RIGHT - LEFT, 46

    def px(value: float) -> float:
        return LEFT + wide * (value - left) / (right - left)

    parts = []
    for value in ticks(left, right, 6):
        parts += [
            rule(px(value), 4, px(value), bottom, "zero" if value == 0 else "grid"),
            text(px(value), bottom + 17, form(value), "middle", "axis"),
        ]
    parts += [
        tag("circle", cx=round(px(value), 1), cy=25, r=5, class_="ring s2") for value in values
    ]
    parts += [
        rule(px(own), 4, px(own), bottom, "line s0"),
        tag("circle", cx=round(px(own), 1), cy=25, r=6, class_="dot s0"),
    ]
    return frame(label, bottom + 24, *parts)


def shortened(name: str) -> str:
    """A label that fits beside a plot; the table has the whole one."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


POINTS = 700  # of a picture
MARKS = 6  # of an x axis
NAME = 26  # letters of a label beside a plot


@dataclass(frozen=True)
class Marked:
    """The shown agent at the L decision bars, as `equity.csv`. Money in dollars, float64[L].

    at: int64[L] number of the bar at whose close it is marked. time: int64[L] UTC seconds of that
        close. session:
    text[L] trade date. account: int64[L] from 1. floor: NaN where there is none. end: text[L],
    empty unless the account ended there. start: dollars of a new account.
    """

    at: np.ndarray
    time: np.ndarray
    session: np.ndarray
    equity: np.ndarray
    account: np.ndarray
    account_equity: np.ndarray
    floor: np.ndarray
    end: np.ndarray
    start: float
    clock: PageClock

    @property
    def drawdown(self) -> np.ndarray:
        """float64[L]: the highest equity so far less the equity, at least 0. The start counts as
        equity.
        """
        return np.maximum.accumulate(np.maximum(self.equity, self.start)) - self.equity

    @property
    def last(self) -> np.ndarray:
        """int64[n] the last decision bar of each session, in order."""
        return np.append(
            np.flatnonzero(self.session[1:] != self.session[:-1]), len(self.session) - 1
        )


def sessions(marked: Marked, trades: Sequence[str]) -> list[SessionRow]:
    """A row for each session. trades: the session of each trade."""
    drawdown, before, first = marked.drawdown, marked.start, 0
    counts = dict(zip(*np.unique(np.asarray(trades, str), return_counts=True), strict=True))
    found: list[SessionRow] = []
    for last in marked.last:
        date, equity = str(marked.session[last]), float(marked.equity[last])
        found.append(
            {
                "date": date,
                "trades": int(counts.get(date, 0)),
                "net": cents(equity - before),
                "equity": equity,
                "drawdown": cents(float(drawdown[first : last + 1].max())),
            }
        )
        before, first = equity, last + 1
    return found


def accounts(marked: Marked) -> list[AccountRow]:
    """A row for each account that was opened."""
    found: list[AccountRow] = []
    for number in np.unique(marked.account):
        own = np.flatnonzero(marked.account == number)
        floors, ends = marked.floor[own], [each for each in marked.end[own] if each]
        known = floors[~np.isnan(floors)]
        found.append(
            {
                "number": int(number),
                "first": str(marked.session[own[0]]),
                "last": str(marked.session[own[-1]]),
                "sessions": len(np.unique(marked.session[own])),
                "net": cents(float(marked.account_equity[own[-1]]) - marked.start),
                "floor": float(known[-1]) if len(known) else None,
                "end": str(ends[0]) if ends else None,
            }
        )
    return found


def curve(marked: Marked) -> dict[str, Any]:
    """Equity and drawdown in few points: `at`, `equity`, `drawdown`, and `marks` of the x axis."""
    chosen = extremes(marked.equity, POINTS)
    return {
        "at": marked.at[chosen].tolist(),
        "equity": marked.equity[chosen].tolist(),
        "drawdown": [cents(each) for each in marked.drawdown[chosen].tolist()],
        "marks": marks(marked),
    }


def floor(marked: Marked, rules: str) -> dict[str, Any]:
    """Account equity and floor in few points, with a gap where an account follows another. rules:
    in words.
    """
    changes = np.flatnonzero(marked.account[1:] != marked.account[:-1])
    chosen = np.union1d(
        extremes(marked.account_equity, POINTS), np.concatenate([changes, changes + 1]).astype(int)
    )
    first = {int(i) + 1 for i in changes}  # of each account but the first one
    at, equity, level = [], [], []
    for i in chosen.tolist():
        if i in first:
            at.append(int(marked.at[i]))
            equity.append(None)
            level.append(None)
        at.append(int(marked.at[i]))
        equity.append(float(marked.account_equity[i]))
        level.append(None if np.isnan(marked.floor[i]) else float(marked.floor[i]))
    return {"rules": rules, "at": at, "equity": equity, "floor": level, "marks": marks(marked)}


def marks(marked: Marked) -> list[tuple[int, str]]:
    """(bar, label) for an x axis, at most `MARKS`: the date at the first decision bar of some
    sessions; of one session times of day."""
    first = np.append(0, marked.last[:-1] + 1)
    if len(first) == 1:
        chosen = np.linspace(0, len(marked.at) - 1, min(MARKS, len(marked.at))).astype(int)
        return [(int(marked.at[i]), marked.clock.time_of_day(int(marked.time[i]))) for i in chosen]
    return [(int(marked.at[i]), str(marked.session[i])) for i in first[:: -(-len(first) // MARKS)]]


def cents(value: float) -> float:
    """Dollars rounded to a mill, so that differences of floats print as what they are."""
    return round(value, 3) + 0.0
