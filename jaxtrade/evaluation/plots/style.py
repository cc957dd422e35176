"""What all plots share: colours, titles, axes of time and of money, and the export as PNG.

`looks.yaml` says how each thing that is drawn looks.
"""

from __future__ import annotations

import datetime
import functools
import importlib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import yaml

from jaxtrade.evaluation.trades import BarClock
from jaxtrade.formatting import MINUS, format_number

P = ParamSpec("P")
T = TypeVar("T")
LOOKS: dict[str, Any] = yaml.safe_load(
    resources.files("jaxtrade.evaluation.plots").joinpath("looks.yaml").read_text("utf-8")
)
COLOURS = LOOKS["colours"]
WON, LOST = COLOURS["blue"], COLOURS["vermillion"]
DPI = 110
STEPS = (5, 10, 15, 30, 60, 120, 180, 240)  # minutes between two marks of a time axis


def load() -> None:
    """Load matplotlib, which takes half a second."""
    importlib.import_module("matplotlib.backends.backend_agg")
    importlib.import_module("matplotlib.figure")


def apply_style(draw: Callable[P, T]) -> Callable[P, T]:
    """Make a function draw in the style of all plots."""

    @functools.wraps(draw)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(LOOKS["rc"]):
            return draw(*args, **kwargs)

    return run


def new_figure(width: float, height: float, title: str, about: str) -> Any:
    """Make a matplotlib Figure with a bold first line and a plain second line above its axes.

    The size is in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.012, 1 - 0.12 / height, title, **LOOKS["title"])
    figure.text(0.012, 1 - 0.42 / height, about, **LOOKS["about"])
    return figure


def save(figure: Any, path: Path) -> None:
    """Write the PNG. Raises OSError (disk) with its name."""
    try:
        figure.savefig(path, format="png", metadata={"Software": "jaxtrade"})
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@apply_style
def write(figure: Any, path: Path) -> bool:
    """Write the PNG, in the style of all plots.

    Returns False, and writes nothing, without a figure. Raises OSError (disk).
    """
    if not figure:
        return False
    save(figure, path)
    return True


def dollars(value: float, digits: int = 2) -> str:
    """Format money with the minus sign of plots."""
    return format_number(value, "money", digits, MINUS)


def legend_above(axis: Any) -> None:
    """Put the legend above the axes on the right, so that it hides no line.

    The title is on the left.
    """
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        axis.legend(handles, labels, ncols=len(handles), **LOOKS["legend above"])


def money_axis(axis: Any, label: str) -> None:
    """Show whole dollars on the y axis."""
    axis.set_ylabel(label)
    axis.yaxis.set_major_formatter(lambda value, _: dollars(value, 0))


def whole_marks(axis: Any) -> None:
    """Put few marks on the x axis, at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(**LOOKS["whole marks"]))


def price_axis(axis: Any, clock: BarClock) -> None:
    """Show prices on the y axis, with as many decimals as its marks need.

    Call it once the limits are final.
    """
    marks = axis.yaxis.get_majorticklocs()
    digits = next(
        (
            n
            for n in range(clock.decimals)
            if np.allclose(marks, np.round(marks, n), rtol=0, atol=1e-9)
        ),
        clock.decimals,
    )
    axis.set_ylabel("price")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.{digits}f}")


def entries(axis: Any, x: np.ndarray, price: np.ndarray, side: np.ndarray, size: float) -> None:
    """Mark entries: long ones by a triangle just below the price, short ones just above.

    So exits stay visible.
    """
    from matplotlib.transforms import ScaledTranslation

    shift = np.sqrt(size) * 0.75 / 72  # inches
    for sign, mark, name in ((1, "^", "long entry"), (-1, "v", "short entry")):
        chosen = side == sign
        if chosen.any():
            moved = axis.transData + ScaledTranslation(
                0, -sign * shift, axis.figure.dpi_scale_trans
            )
            axis.scatter(
                x[chosen],
                price[chosen],
                s=size,
                marker=mark,
                label=name,
                transform=moved,
                **LOOKS["entry"],
            )


def exits(axis: Any, x: np.ndarray, price: np.ndarray, won: np.ndarray, size: float) -> None:
    """Mark exits: a disc for a trade with a profit after costs, a cross for any other."""
    for chosen, mark, color, name in ((won, "o", WON, "won"), (~won, "X", LOST, "lost")):
        if chosen.any():
            axis.scatter(
                x[chosen],
                price[chosen],
                s=size,
                marker=mark,
                color=color,
                label=f"{name} ({int(chosen.sum()):,})",
                **LOOKS["exit"],
            )


def time_marks(times: Sequence[datetime.datetime]) -> tuple[list[int], list[str]]:
    """Return (indices, labels) of the bars of one session at full hours, or at other round times.

    There are at most nine. A bar that is the first at or after a round time stands for it, so gaps
    in the bars are no problem.
    """
    if not times:
        return [], []
    minutes = [
        time.hour * 60 + time.minute + 1440 * (time.date() - times[0].date()).days for time in times
    ]
    for step in STEPS:
        slots = [minute // step for minute in minutes]
        at = [
            i
            for i in range(len(slots))
            if (slots[i] != slots[i - 1] if i else minutes[i] % step == 0)
        ]
        if len(at) <= 9:
            return at, [
                f"{slots[i] * step % 1440 // 60:02d}:{slots[i] * step % 60:02d}" for i in at
            ]
    at = [0, len(times) - 1]
    return at, [f"{times[i]:%H:%M}" for i in at]


def date_marks(dates: Sequence[datetime.date]) -> tuple[list[int], list[str]]:
    """Return (indices, labels) of at most eight sessions, evenly spaced.

    The first label has the year, and each in which it changes.
    """
    step = -(-len(dates) // 8)
    at = list(range(0, len(dates), step))
    if len(dates) <= 8:
        names = [f"{dates[i]:%a} {dates[i].day} {dates[i]:%b}" for i in at]
    else:
        names = [f"{dates[i].day} {dates[i]:%b}" for i in at]
    years = [not k or dates[i].year != dates[at[k - 1]].year for k, i in enumerate(at)]
    return at, [
        f"{name} {dates[i].year}" if year else name
        for i, name, year in zip(at, names, years, strict=True)
    ]
