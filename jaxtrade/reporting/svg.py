"""The shapes of charts, which `templates/parts.html` writes as SVG: a browser shows them without a
script. Colours come from the classes of the style sheet.

A chart is a picture for those who see it; each has a table with the same figures beside it. Where a
narrow screen would shrink its text too much, it is drawn twice, and the style sheet shows the one
that fits.

Also the curves of the shown agent: equity, drawdown, sessions, accounts and their floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxtrade.reporting.bars import PageClock, extremes
from jaxtrade.reporting.schema import AccountRow, SessionRow
from jaxtrade.reporting.words import shown

WIDTH, NARROW = 760, 360
# Around the plot of `lines`; TOP holds the names of several lines.
LEFT, RIGHT, TOP, BOTTOM = 76, 14, 26, 30
ROW, LABELS, VALUES = 26, 190, 120  # of `dots`: height of a row, widths beside the plot
# Of narrow `dots`: a row has its text above the plot; room beside the plot for its axis.
TALL_ROW, SIDE = 42, 22
POINTS = 700  # of a picture
MARKS = 6  # of an x axis
NAME = 26  # letters of a label beside a plot
TABLE_ROWS = 8  # of the table of training curves

Marks = Sequence[tuple[float, str]]  # (x, label)
DotRow = tuple[str, Mapping[str, Any], str]  # label, `Estimate`, class in the style sheet


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


@dataclass
class Picture:
    """A picture. kind: `wide` or `narrow` for one that only such screens show. shapes: name,
    attributes and text of its elements.
    """

    width: float
    height: float
    kind: str = ""
    shapes: list[tuple[str, dict[str, str | None], str]] = field(default_factory=list)

    def add(self, name: str, kind: str | None, text: str = "", **attributes: str | float) -> None:
        """Add an element. kind: its class. Numbers are rounded to a tenth."""
        known = {
            key.replace("_", "-"): each if isinstance(each, str) else f"{round(each, 1):g}"
            for key, each in attributes.items()
        }
        self.shapes.append((name, {**known, "class": kind}, text))

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Add a straight line."""
        self.add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def text(self, x: float, y: float, content: str, anchor: str, kind: str = "axis") -> None:
        """Add a text."""
        self.add("text", kind, content, x=x, y=y, text_anchor=anchor)

    def disc(self, x: float, y: float, r: float, kind: str) -> None:
        """Add a circle."""
        self.add("circle", kind, cx=x, cy=y, r=r)

    def scale(self, axis: Axis, bottom: float, form: str, most: int = 5) -> None:
        """Add the upright lines of an x axis and their values below them."""
        for value in ticks(axis.low, axis.high, most):
            at = axis(value)
            self.rule(at, 4, at, bottom, "zero" if value == 0 else "grid")
            self.text(at, bottom + 17, axis_text(value, form), "middle")


@dataclass(frozen=True)
class Axis:
    """Places of values: `low` is at `start`, `high` at `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + (self.stop - self.start) * share


def axis_text(value: float, form: str) -> str:
    """A value beside an axis: a form of `words.shown`, in few digits."""
    return shown(value, form, None if form == "number" else 0)


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


def lines(
    x: Sequence[float],
    drawn: Sequence[Line],
    marks: Marks,
    form: str = "money",
    height: float = 240,
    zero: bool = False,
) -> list[Picture]:
    """Lines over a common x, for wide and for narrow screens. form: of the y axis. marks: of the x
    axis. zero: 0 is on the y axis."""
    return [
        small_lines(x, drawn, marks, form, height, width, kind, zero)
        for width, kind, marks in ((WIDTH, "wide", marks), (NARROW, "narrow", marks[::2]))
    ]


def small_lines(
    x: Sequence[float],
    drawn: Sequence[Line],
    marks: Marks,
    form: str,
    height: float,
    width: float,
    kind: str = "",
    zero: bool = False,
) -> Picture:
    """`lines` in one width, for all screens or those of a `kind`."""
    low, high = bounds([each for line in drawn for each in line.values], zero)
    picture, top = Picture(width, height, kind), TOP if len(drawn) > 1 else 8
    px = Axis(min(x, default=0), max(x, default=1), LEFT, width - RIGHT)
    py = Axis(low, high, height - BOTTOM, top)
    if len(drawn) > 1:  # the caption names a single one
        _legend(picture, drawn)
    for value in ticks(low, high):
        y = py(value)
        picture.rule(LEFT, y, width - RIGHT, y, "zero" if value == 0 else "grid")
        picture.text(LEFT - 8, y + 4, axis_text(value, form), "end")
    for at, name in marks:
        picture.rule(px(at), height - BOTTOM, px(at), height - BOTTOM + 4, "tick")
        picture.text(px(at), height - BOTTOM + 18, name, "middle")
    base = py(0.0 if low <= 0 <= high else low)
    for line in drawn:
        pieces: list[list[tuple[float, float]]] = [[]]
        for at, each in zip(x, line.values, strict=True):
            if each is None:
                pieces.append([])
            else:
                pieces[-1].append((px(at), py(each)))
        for piece in filter(None, pieces):
            _piece(picture, piece, line, base)
    return picture


def _piece(picture: Picture, piece: list[tuple[float, float]], line: Line, base: float) -> None:
    """A line between two gaps. A single point is a disc."""
    (x0, y0), *rest = piece
    if not rest:
        picture.disc(x0, y0, 3, f"dot {line.kind}")
        return
    path = [f"H{x:.1f}V{y:.1f}" if line.steps else f"L{x:.1f} {y:.1f}" for x, y in rest]
    way = f"M{x0:.1f} {y0:.1f}{''.join(path)}"
    if line.filled:
        picture.add("path", f"area {line.kind}", d=f"{way}V{base:.1f}H{x0:.1f}Z")
    picture.add("path", f"line {line.kind}", d=way)


def _legend(picture: Picture, drawn: Sequence[Line]) -> None:
    """The names of the lines above the plot."""
    x = float(LEFT)
    for line in drawn:
        picture.rule(x, 11, x + 18, 11, f"line {line.kind}")
        picture.text(x + 24, 15, line.name, "start")
        x += 48 + 6.6 * len(line.name)


def dots(
    rows: Sequence[DotRow],
    form: str = "signed",
    digits: int | None = None,
    axis: str = "money",
    ends: tuple[float, float] | None = None,
) -> list[Picture]:
    """One row per estimate: a disc, its interval as a bar, its figure at the right.

    form, digits: of the figure; axis: form of the axis; ends: of the axis.
    For wide and for narrow screens: there the label and the figure of a row stand above its disc."""
    every = [each.get(end) for _, each, _ in rows for end in ("value", "low", "high")]
    low, high = ends or bounds(every, True)
    texts = [shown(each["value"], form, digits) for _, each, _ in rows]
    pictures = []
    for narrow in (False, True):
        tall, edge = (TALL_ROW, NARROW - 2) if narrow else (ROW, WIDTH - 4)
        start, stop = (SIDE, NARROW - SIDE) if narrow else (LABELS, WIDTH - VALUES)
        px, bottom = Axis(low, high, start, stop), 8 + tall * len(rows)
        picture = Picture(NARROW if narrow else WIDTH, bottom + 26, "narrow" if narrow else "wide")
        picture.scale(px, bottom, axis, 3 if narrow else 5)
        for i, ((label, each, kind), text) in enumerate(zip(rows, texts, strict=True)):
            middle = 8 + tall * (i + (0.62 if narrow else 0.5))
            base = 8 + tall * i + 15 if narrow else middle + 4
            side, anchor = (2, "start") if narrow else (start - 14, "end")
            picture.text(side, base, shortened(label), anchor, "label")
            if each.get("low") is not None and each.get("high") is not None:
                picture.rule(px(each["low"]), middle, px(each["high"]), middle, f"range {kind}")
            if each["value"] is not None:
                picture.disc(px(each["value"]), middle, 5, f"dot {kind}")
            picture.text(edge, base, text, "end", "value")
        pictures.append(picture)
    return pictures


def strip(values: Sequence[float], own: float) -> list[Picture]:
    """Many values in dollars as open discs on one axis, and one of them all, `own`, as a full one
    with a line.
    """
    bottom = 46
    px = Axis(*bounds([*values, own], zero=True), LEFT, WIDTH - 2 * RIGHT)
    picture = Picture(WIDTH, bottom + 24)
    picture.scale(px, bottom, "money", 6)
    for value in values:
        picture.disc(px(value), 25, 5, "ring s2")
    picture.rule(px(own), 4, px(own), bottom, "line s0")
    picture.disc(px(own), 25, 6, "dot s0")
    return [picture]


def shortened(name: str) -> str:
    """A label that fits beside a plot; the table has the whole one."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def step_marks(last: float) -> list[tuple[float, str]]:
    """Marks of an axis of steps, in few characters: `250k`, `1.5M`."""
    return [(at, short(at)) for at in ticks(0, last, 4)]


def short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def some_of(count: int) -> list[int]:
    """At most `TABLE_ROWS` of the numbers 0 .. count - 1, the first and the last among them."""
    return sorted({round(i * (count - 1) / (TABLE_ROWS - 1)) for i in range(TABLE_ROWS)})


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
