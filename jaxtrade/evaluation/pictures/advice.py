"""`advice.png`: how often each advisor was right at the confidence that it stated, and how a run
trusted it over time.

The evidence behind a hit rate is smaller than its number of answers: the outcomes of neighbouring
bars share most of their prices, and opinions persist. Intervals therefore use the effective number
of answers, from the variance that blocks of bars show (Newey and West, Econometrica 55, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.evaluation.pictures import style
from jaxtrade.evaluation.pictures.training import FEW, Rows, by_agent, thinned
from jaxtrade.text import several

Z = 1.959964  # standard normal quantile of a two-sided 95 % interval
LITTLE = 10  # effective answers below which a hit rate says little
WINDOW, LEAST_BLOCK = 4, 30  # neighbouring blocks whose dependence counts; bars of a block at least
LONGEST = 36  # characters of an advisor's name where there are several
COLUMNS = 3  # of the legend
LABELLED = 2  # advisors up to which each point has its numbers; more would cover each other
DODGE = 0.013  # confidence between the points of two advisors in one range
FRAME = {"left": 0.07, "right": 0.985, "wspace": 0.2, "hspace": 0.42}
COLORS = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)


class Advisor(NamedTuple):
    """An advisor's scored answers about training sessions.

    name: as `advisor.kind`. bars: int[n], the bar of each scored answer. confidence: float[n], as
        stated. hits:
    bool[n], whether the direction was right. answers: how many became visible, scored or not.
    suffix: what follows the names of its metrics, such as `/0`; "" for the only advisor of a run.
    """

    name: str
    bars: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    answers: int
    suffix: str = ""


class Point(NamedTuple):
    """One range of confidence. confidence: the mean stated there. rate: share of hits. low, high:
    95 % interval of the rate. scored: answers. effective: how many independent answers they are
    worth."""

    confidence: float
    rate: float
    low: float
    high: float
    scored: int
    effective: float


def wilson(rate: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a probability, from a rate over `count` independent trials (Wilson
    1927). count > 0.
    """
    spread = Z * math.sqrt(rate * (1 - rate) / count + Z * Z / (4 * count * count))
    middle, scale = rate + Z * Z / (2 * count), 1 + Z * Z / count
    return (middle - spread) / scale, (middle + spread) / scale


def apart(bars: np.ndarray, horizon: int) -> int:
    """The largest number of the bars that lie `horizon` or more apart: answers whose outcomes share
    no price.
    """
    count, last = 0, -math.inf
    for bar in np.unique(bars):
        if bar - last >= horizon:
            count, last = count + 1, bar
    return count


def effective(bars: np.ndarray, hits: np.ndarray, horizon: int) -> float:
    """How many independent answers n scored ones are worth, from `apart` or 1 up to n.

    Deviations from the hit rate are summed over blocks of bars at least a horizon long. The
    variance of their total comes from windows of `WINDOW` neighbouring blocks, which overlap
    (Bartlett's weights), raised for the estimated mean and for the share that the weights miss.
    Where there are fewer than four windows' worth of data, or all answers were right or all wrong,
    it is the number of answers without overlap.

    bars: int[n], n >= 1. hits: bool[n].
    """
    count, rate = len(bars), float(hits.mean())
    block = (bars - bars.min()) // max(horizon, LEAST_BLOCK)
    size = int(block.max()) + 1
    held = _windows(np.bincount(block, minlength=size))
    windows = WINDOW * count**2 / float((held**2).sum())
    if windows < 4 or rate in (0.0, 1.0):
        return float(apart(bars, horizon))
    sums = _windows(np.bincount(block, weights=hits - rate, minlength=size))
    variance = float((sums**2).sum()) / WINDOW * windows / (windows - 1) / (1 - 1 / (3 * WINDOW))
    independent = count * rate * (1 - rate)
    return max(1.0, count * independent / max(variance, independent))


def _windows(values: np.ndarray) -> np.ndarray:
    """float64[N + 3]: sums over all windows of `WINDOW` neighbouring blocks, also those that reach
    over an end.
    """
    return np.convolve(values.astype(np.float64), np.ones(WINDOW))


def points(advisor: Advisor, bins: int, horizon: int) -> list[Point]:
    """The calibration of an advisor: a point for each of `bins` equal ranges of confidence with a
    scored answer.
    """
    found, at = [], np.clip((advisor.confidence * bins).astype(int), 0, bins - 1)
    for i in np.unique(at):
        inside = at == i
        rate, worth = (
            float(advisor.hits[inside].mean()),
            effective(advisor.bars[inside], advisor.hits[inside], horizon),
        )
        found.append(
            Point(
                float(advisor.confidence[inside].mean()),
                rate,
                *wilson(rate, worth),
                int(inside.sum()),
                worth,
            )
        )
    return found


@style.styled
def draw(
    advisors: Sequence[Advisor], rows: Rows, bins: int, horizon: int, title: str, path: Path
) -> bool:
    """Write the PNG. Returns False, and writes nothing, for a run without rows or without an
    advisor.

    Args:
        rows: of `metrics.jsonl`, one per update, with `trust`, `agreement` and `advice_share` of
            each advisor.
        bins, horizon: `advisor.bins` and `advisor.horizon`.
    Raises OSError (disk).
    """
    if not rows or not advisors:
        return False
    style.save(figure_of(advisors, rows, bins, horizon, title), path)
    return True


@style.styled
def figure_of(advisors: Sequence[Advisor], rows: Rows, bins: int, horizon: int, title: str) -> Any:
    """The matplotlib Figure: calibration on the left, trust and agreement over updates on the
    right.
    """
    legend = 0.28 * -(-len(advisors) // COLUMNS) if len(advisors) > 1 else 0.0  # inches
    height = 5.6 + legend
    figure = style.new_figure(11.5, height, title, _about(advisors, horizon))
    axes = figure.subplots(2, 2, gridspec_kw={"width_ratios": (1.15, 1)})
    figure.subplots_adjust(top=1 - (1.0 + legend) / height, bottom=0.95 / height, **FRAME)
    grid = axes[0, 0].get_gridspec()
    for axis in axes[:, 0]:
        axis.remove()
    left = figure.add_subplot(grid[:, 0])
    _calibration(left, advisors, bins, horizon)
    _over_updates(
        axes[0, 1],
        advisors,
        rows,
        {"trust": "-"},
        "Trust, log-odds; 0: not told from chance, ignored",
    )
    axes[0, 1].axhline(0, color=style.GREY, linewidth=0.8, zorder=0)
    if max(map(abs, axes[0, 1].get_ylim())) < 0.1:  # zero throughout
        axes[0, 1].set_ylim(-0.5, 0.5)
    _over_updates(
        axes[1, 1],
        advisors,
        rows,
        {"agreement": "-", "advice_share": ":"},
        "Agreement with advice (line); steps with advice (dots)",
    )
    axes[1, 1].set_ylim(0, 1)
    axes[1, 1].yaxis.set_major_formatter(lambda value, _: style.percent(value))
    axes[1, 1].set_xlabel("update")
    figure.text(
        0.012,
        0.12 / height,
        _legend(len(advisors)),
        fontsize=8.5,
        color=style.GREY,
        ha="left",
        va="bottom",
    )
    if len(advisors) > 1:
        figure.legend(
            *left.get_legend_handles_labels(),
            loc="upper left",
            bbox_to_anchor=(0.002, 1 - 0.62 / height),
            ncols=min(COLUMNS, len(advisors)),
            handletextpad=0.3,
            columnspacing=1.2,
        )
    return figure


def _legend(advisors: int) -> str:
    """What the marks mean. advisors: how many there are."""
    bars = (
        "Bars: 95 % Wilson intervals of the independent answers that the scored ones are worth (outcomes overlap, "
        f"opinions persist). Hollow: worth fewer than {LITTLE}."
    )
    return bars + (" Labels: scored (worth)." if advisors <= LABELLED else " Size: scored.")


def _about(advisors: Sequence[Advisor], horizon: int) -> str:
    visible, scored = (
        sum(each) for each in zip(*((a.answers, len(a.bars)) for a in advisors), strict=True)
    )
    who = (
        _short(advisors[0].name, 2 * LONGEST)
        if len(advisors) == 1
        else several(len(advisors), "advisor")
    )
    return "   ·   ".join(
        (
            who,
            several(visible, "answer"),
            f"{scored:,} scored, in training sessions",
            f"horizon {several(horizon, 'bar')}",
        )
    )


def _short(name: str, most: int = LONGEST) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _calibration(axis: Any, advisors: Sequence[Advisor], bins: int, horizon: int) -> None:
    found = [points(advisor, bins, horizon) for advisor in advisors]
    few = all(point.effective < LITTLE for each in found for point in each)
    axis.set_title(
        "Hit rate by stated confidence"
        + (": nothing was scored" if not any(found) else ": too little evidence" if few else "")
    )
    axis.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="stated confidence",
        ylabel="hit rate, share of scored answers",
    )
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(lambda value, _: style.percent(value))
    axis.plot([0, 1], [0, 1], color=style.GREY, linewidth=1, linestyle="--", zorder=1)
    axis.axhline(0.5, color=style.PALE, linewidth=1, zorder=1)
    words = {
        "color": style.GREY,
        "fontsize": 8.5,
        "zorder": 6,
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    }
    axis.text(0.012, 0.525, "chance", ha="left", va="center", **words)
    axis.text(0.945, 0.965, "as often right as it says", ha="right", va="center", **words)
    most = max((len(advisor.bars) for advisor in advisors), default=0)
    for number, advisor in enumerate(advisors):
        color = COLORS[number % len(COLORS)]
        for point in found[number]:
            shifted = point._replace(
                confidence=point.confidence + DODGE * (number - (len(advisors) - 1) / 2)
            )
            _mark(axis, shifted, color, most)
            if len(advisors) <= LABELLED:
                _label(axis, shifted, number % 2 == 0)
        axis.scatter(
            [], [], color=color, label=f"{_short(advisor.name)}, {len(advisor.bars):,} scored"
        )


def _mark(axis: Any, point: Point, color: str, most: int) -> None:
    """A point with its interval. most: scored answers of the advisor that has most, for the size of
    the point.
    """
    few = point.effective < LITTLE
    axis.vlines(point.confidence, point.low, point.high, color=color, linewidth=1.6, zorder=3)
    axis.scatter(
        [point.confidence],
        [point.rate],
        s=30 + 170 * point.scored / max(most, 1),
        zorder=4,
        clip_on=False,
        facecolors="white" if few else color,
        edgecolors=color,
        linewidths=1.4,
    )


def _label(axis: Any, point: Point, above: bool) -> None:
    """The numbers of a point. above: whether they stand above its interval, if there is room."""
    above = (above or point.low < 0.06) and point.high < 0.94
    axis.annotate(
        f"{point.scored:,} ({point.effective:,.0f})",
        (point.confidence, point.high if above else point.low),
        fontsize=8.5,
        color=style.INK,
        xytext=(0, 5 if above else -5),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        zorder=5,
        annotation_clip=False,
    )


def _over_updates(
    axis: Any, advisors: Sequence[Advisor], rows: Rows, metrics: dict[str, str], title: str
) -> None:
    """Metrics over updates. metrics: name -> line style. An advisor without its own metric is shown
    by the run's.
    """
    from matplotlib.ticker import MaxNLocator

    axis.set_title(title)
    updates = thinned(np.array([float(row["update"]) for row in rows]))
    known = False
    for number, advisor in enumerate(advisors):
        for metric, line in metrics.items():
            own = f"{metric}{advisor.suffix}"
            if own not in rows[-1]:
                continue
            values = thinned(by_agent(rows, own))
            seen = np.isfinite(values).any(axis=1)
            if not seen.any():
                continue
            known, few = True, seen.sum() <= FEW
            axis.plot(
                updates[seen],
                np.nanmedian(values[seen], axis=1),
                color=COLORS[number % len(COLORS)],
                linestyle=line,
                linewidth=1.6,
                marker="o" if few and line == "-" else None,
                markersize=4,
            )
    if not known:
        axis.text(
            0.5,
            0.5,
            "undefined throughout",
            color=style.GREY,
            ha="center",
            va="center",
            transform=axis.transAxes,
        )
    axis.set_xlim(0, float(rows[-1]["update"]))
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
