"""Plots of a training run: its curves, and how the advisor was used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.evaluation.plots import style
from jaxtrade.evaluation.plots.style import LOOKS
from jaxtrade.formatting import MINUS, share, short_number
from jaxtrade.storage.sinks import EACH, count_agents
from jaxtrade.text import several

MOST_POINTS = 400  # more updates are averaged in groups
FEW = 30  # updates up to which each is marked by a point
LONGEST = 22  # characters of an action's name
LONGEST_SETTING, LEGEND_COLUMNS = 50, 3  # characters of a setting in the legend
COLORS = LOOKS["advisors"]  # of settings, and of advisors
RETURN, SHARES = "episode_reward", "action_share"
LABELS = {
    RETURN: "Return per episode, sum of rewards",
    "approx_kl": "KL of an update, nats",
    "clip_fraction": "Clip fraction, share of samples",
    "entropy": "Entropy, nats",
    "explained_variance": "Explained variance, 1 at best",
    "learning_rate": "Learning rate, step size",
    "td_loss": "TD loss",
}
Rows = Sequence[Mapping[str, Any]]
Scores = Sequence[tuple[int, float]]
FROM_ZERO = (
    "approx_kl",
    "clip_fraction",
    "entropy",
    "learning_rate",
)  # so that a small change looks small
FLOOR = {"explained_variance": -1.0}  # lower values say no more, and would hide the rest


@style.apply_style
def plot_training(
    rows: Rows,
    metrics: Sequence[str],
    title: str,
    scores: Scores = (),
    best: int | None = None,
    settings: Sequence[str] = (),
) -> Any:
    """Draw the curves of a training run as a matplotlib Figure; None for a run without rows.

    There is a panel for the return, the actions, each metric that was reported, and the scores. A
    dotted line marks the best checkpoint in every panel.

    Args:
        rows: of `metrics.jsonl`, one per update.
        metrics: the learner's own, in the order in which they are shown.
        scores: (update, score) of evaluations on validation sessions.
        best: the update of the best one, whose state the run has kept. Default: that of the
            highest score.
        settings: of a sweep, that of each agent. Each has a line, if there are few.
    """
    if not rows:
        return None
    if scores and best is None:
        best = max(scores, key=lambda each: each[1])[0]
    shown = [name for name in dict.fromkeys((RETURN, *metrics)) if name in rows[-1]]
    panels = [
        *shown[:1],
        *([SHARES] if isinstance(rows[-1].get(SHARES), Mapping) else []),
        *shown[1:],
    ]
    count = len(panels) + bool(scores)
    columns = 2 if count > 1 else 1
    lines = max(1, math.ceil(count / columns))
    known = list(dict.fromkeys(settings))
    by_setting = 1 < len(known) <= len(COLORS)
    top = 0.95 + (0.24 * math.ceil(len(known) / LEGEND_COLUMNS) if by_setting else 0)
    height = top + 2.15 * lines
    figure = style.new_figure(11.5, height, title, _about(rows, best, settings))
    axes = np.atleast_1d(figure.subplots(lines, columns, sharex=True)).ravel()
    figure.subplots_adjust(top=1 - top / height, bottom=0.5 / height, **LOOKS["training frame"])
    for axis, name in zip(axes, panels, strict=False):
        if name == SHARES:
            _shares(axis, rows, name)
        else:
            _curve(axis, rows, name, settings)
    if by_setting:
        figure.legend(
            axes[0].lines[: len(known)],
            [_short(each, LONGEST_SETTING) for each in known],
            bbox_to_anchor=(0.008, 1 - 0.62 / height),
            **LOOKS["settings legend"],
        )
    if scores:
        _scores(axes[len(panels)], rows, scores, best)
    for axis in axes[count:]:
        axis.set_axis_off()
    last = float(rows[-1]["steps"])
    for i, axis in enumerate(axes):
        axis.set_xlim(0, last)
        style.whole_marks(axis)
        axis.xaxis.set_major_formatter(lambda value, _: short_number(value))
        if best is not None and i < count:
            axis.axvline(
                _at(rows, best),
                **LOOKS["best"],
            )
        if count > i >= count - columns:
            axis.set_xlabel("environment steps")
            axis.tick_params(labelbottom=True)
    return figure


def _at(rows: Rows, update: int) -> float:
    """Return the steps at the end of an update; all updates have as many."""
    return update * float(rows[-1]["steps"]) / float(rows[-1]["update"])


def _about(rows: Rows, best: int | None, settings: Sequence[str]) -> str:
    last, known = rows[-1], len(set(settings))
    agents = count_agents(last)
    times, together = (f"{agents} x ", " together") if agents > 1 else ("", "")
    parts = [
        f"{times}{last['steps']:,.0f} steps in {several(int(last['update']), 'update')}",
        f"{last['steps_per_second']:,.0f} steps/s{together}",
    ]
    if 1 < known <= len(COLORS):
        seeds = agents // known
        parts.append(f"line = {f'median of {seeds} seeds' if seeds > 1 else 'one agent'}")
    elif agents > 1:
        whose = f"{agents} agents of {known} settings" if known > 1 else f"{agents} seeds"
        parts.append(f"{whose}: median and range")
    if best is not None:
        parts.append(f"dotted: best validation, update {best:,}")
    return "   ·   ".join(parts)


def by_agent(rows: Rows, name: str) -> np.ndarray:
    """Return a metric by agent, NaN where it is undefined (float64[updates, agents]).

    One agent without a list by agent.
    """
    import pandas as pd

    each = [(row.get(name), row.get(name + EACH)) for row in rows]
    found = [list(many) if isinstance(many, Sequence) else [one] for one, many in each]
    return pd.DataFrame(found, dtype=np.float64).to_numpy()


def thin(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Average groups of updates, at most `most` groups ([groups, ...]).

    Values that are not finite do not count.
    """
    count = min(len(values), most)
    edges = np.round(np.linspace(0, len(values), count + 1)).astype(int)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), edges[:-1], axis=0)
    counts = np.add.reduceat(known.astype(float), edges[:-1], axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, math.nan), where=counts > 0)


def _along(rows: Rows, name: str = "steps") -> np.ndarray:
    return thin(np.array([float(row[name]) for row in rows]))


def _curve(axis: Any, rows: Rows, name: str, settings: Sequence[str] = ()) -> None:
    values = thin(by_agent(rows, name))
    cut = ""
    if name in FLOOR and (values < FLOOR[name]).any():
        values, cut = (
            np.maximum(values, FLOOR[name]),
            f", cut off below {FLOOR[name]:g}".replace("-", MINUS),
        )
    x, known = _along(rows), np.isfinite(values).any(axis=1)
    label = LABELS.get(name, name.replace("_", " ").capitalize())
    axis.set_title(label + (cut if known.any() else ": undefined throughout"))
    if not known.any():
        return
    _lines(axis, x, values, name, settings)
    if name in FROM_ZERO and np.nanmin(values) >= 0 < np.nanmax(values):
        axis.set_ylim(0, 1.06 * np.nanmax(values))
    if name in (RETURN, "explained_variance"):
        axis.axhline(0, **LOOKS["zero below"])


def _lines(
    axis: Any, x: np.ndarray, values: np.ndarray, name: str, settings: Sequence[str]
) -> None:
    """Draw the agents: a line for each setting, or if these are many a median and a band.

    The step sizes of many settings have no median: nobody trained with it.
    """
    clip = np.isfinite(values).any(axis=1).sum() > FEW
    each = list(dict.fromkeys(settings))
    if 1 < len(each) <= len(COLORS) or (len(each) > 1 and name == "learning_rate"):
        for i, setting in enumerate(each):
            own = values[:, [other == setting for other in settings]]
            color = COLORS[i] if len(each) <= len(COLORS) else style.COLOURS["grey"]
            _median(axis, x, own, color, clip_on=clip)
        return
    known = np.isfinite(values).any(axis=1)
    if values.shape[1] > 1:
        axis.fill_between(
            x[known],
            np.nanmin(values[known], axis=1),
            np.nanmax(values[known], axis=1),
            **LOOKS["band"],
        )
    _median(axis, x, values, style.WON, clip_on=clip)


def _median(
    axis: Any, x: np.ndarray, values: np.ndarray, color: str, line: str = "-", **more: Any
) -> bool:
    """Draw the median over the agents where it is known; points where there are few.

    Returns whether it is known anywhere.
    """
    known = np.isfinite(values).any(axis=1)
    if known.any():
        axis.plot(
            x[known],
            np.nanmedian(values[known], axis=1),
            color=color,
            linestyle=line,
            marker="o" if known.sum() <= FEW and line == "-" else None,
            **LOOKS["median"],
            **more,
        )
    return bool(known.any())


def _shares(axis: Any, rows: Rows, name: str) -> None:
    """Draw stacked shares of the actions; those that never reach 2 % are one area."""
    import pandas as pd

    names = list(rows[-1][name])
    shares = pd.DataFrame([row[name] for row in rows], columns=names, dtype=np.float64)
    values = thin(shares.to_numpy())
    x, values = (
        np.append(0, _along(rows)),
        np.concatenate([values[:1], values]),
    )  # the first update begins at 0
    axis.set_title("Actions, share of all steps")
    axis.set_ylim(0, 1)
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    colors = LOOKS["actions"]
    shown = [i for i in range(len(names)) if np.nanmax(values[:, i], initial=0) >= 0.02]
    rest = np.nansum(np.delete(values, shown, axis=1), axis=1)
    stacks = [np.nan_to_num(values[:, i]) for i in shown]
    labels = [_short(names[i].lower().replace("_", " "), LONGEST) for i in shown]
    drawn = [colors[i % len(colors)] for i in shown]
    if len(shown) < len(names):
        stacks, labels, drawn = [*stacks, rest], [*labels, "others"], [*drawn, style.COLOURS["ink"]]
    axis.stackplot(x, *stacks, colors=drawn, labels=labels, linewidth=0)
    place = axis.get_position()
    axis.set_position(
        (place.x0, place.y0, place.width * 0.65, place.height)
    )  # the names stand beside it
    axis.legend(**LOOKS["actions legend"])


def _scores(axis: Any, rows: Rows, scores: Scores, best: int | None) -> None:
    x, y = [_at(rows, update) for update, _ in scores], [score for _, score in scores]
    axis.plot(x, y, **LOOKS["scores"])
    for (update, score), at in zip(scores, x, strict=True):
        if update == best:
            axis.plot(at, score, **LOOKS["best score"])
    axis.set_title("Validation, mean reward per session")
    style.legend_above(axis)


Z = 1.959964  # standard normal quantile of a two-sided 95 % interval
LITTLE = 10  # effective answers below which a hit rate says little
WINDOW, LEAST_BLOCK = 4, 30  # neighbouring blocks whose dependence counts; bars of a block at least
LONGEST_NAME = 36  # characters of an advisor's name where there are several
COLUMNS = 3  # of the legend
LABELLED = 2  # advisors up to which each point has its numbers; more would cover each other
DODGE = 0.013  # confidence between the points of two advisors in one range


class Advisor(NamedTuple):
    """An advisor's scored answers about training sessions.

    name: as `advisor.kind`.
    bars: int[n], the bar of each scored answer.
    confidence: float[n], as stated.
    hits: bool[n], whether the direction was right.
    answers: how many became visible, scored or not.
    suffix: what follows the names of its metrics, such as `/0`; "" for the only advisor of a run.
    """

    name: str
    bars: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    answers: int
    suffix: str = ""


class Point(NamedTuple):
    """One range of confidence.

    confidence: the mean stated there.
    rate: share of hits.
    low, high: 95 % interval of the rate.
    scored: answers.
    effective: how many independent answers they are worth.
    """

    confidence: float
    rate: float
    low: float
    high: float
    scored: int
    effective: float


def wilson(rate: float, count: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a probability (Wilson 1927).

    It is computed from a rate over `count` independent trials; count > 0.
    """
    spread = Z * math.sqrt(rate * (1 - rate) / count + Z * Z / (4 * count * count))
    middle, scale = rate + Z * Z / (2 * count), 1 + Z * Z / count
    return (middle - spread) / scale, (middle + spread) / scale


def count_non_overlapping(bars: np.ndarray, horizon: int) -> int:
    """Return the largest number of the bars that lie `horizon` or more apart.

    These are answers whose outcomes share no price.
    """
    count, last = 0, -math.inf
    for bar in np.unique(bars):
        if bar - last >= horizon:
            count, last = count + 1, bar
    return count


def effective_sample_size(bars: np.ndarray, hits: np.ndarray, horizon: int) -> float:
    """Estimate how many independent answers n scored ones are worth, from `count_non_overlapping` or 1 up to n.

    Deviations from the hit rate are summed over blocks of bars at least a horizon long. The
    variance of their total comes from windows of `WINDOW` neighbouring blocks, which overlap
    (Bartlett's weights), raised for the estimated mean and for the share that the weights miss.
    Where there are fewer than four windows' worth of data, or all answers were right or all wrong,
    it is the number of answers without overlap.

    Args:
        bars: int[n], n >= 1.
        hits: bool[n].
    """
    count, rate = len(bars), float(hits.mean())
    block = (bars - bars.min()) // max(horizon, LEAST_BLOCK)
    size = int(block.max()) + 1
    held = _windows(np.bincount(block, minlength=size))
    windows = WINDOW * count**2 / float((held**2).sum())
    if windows < 4 or rate in (0.0, 1.0):
        return float(count_non_overlapping(bars, horizon))
    sums = _windows(np.bincount(block, weights=hits - rate, minlength=size))
    variance = float((sums**2).sum()) / WINDOW * windows / (windows - 1) / (1 - 1 / (3 * WINDOW))
    independent = count * rate * (1 - rate)
    return max(1.0, count * independent / max(variance, independent))


def _windows(values: np.ndarray) -> np.ndarray:
    """Sum over all windows of `WINDOW` neighbouring blocks (float64[N + 3]).

    Windows that reach over an end are included.
    """
    return np.convolve(values.astype(np.float64), np.ones(WINDOW))


def calibration_points(advisor: Advisor, bins: int, horizon: int) -> list[Point]:
    """Compute the calibration of an advisor.

    It is a point for each of `bins` equal ranges of confidence with a scored answer.
    """
    found, at = [], np.clip((advisor.confidence * bins).astype(int), 0, bins - 1)
    for i in np.unique(at):
        inside = at == i
        rate, worth = (
            float(advisor.hits[inside].mean()),
            effective_sample_size(advisor.bars[inside], advisor.hits[inside], horizon),
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


@style.apply_style
def plot_advice(
    advisors: Sequence[Advisor], rows: Rows, bins: int, horizon: int, title: str
) -> Any:
    """Draw calibration on the left, trust and agreement over updates on the right.

    Returns the matplotlib Figure, or None for a run without rows or without an advisor.

    Args:
        rows: of `metrics.jsonl`, one per update, with `trust`, `agreement` and `advice_share` of
            each advisor.
        bins, horizon: `advisor.bins` and `advisor.horizon`.
    """
    if not rows or not advisors:
        return None
    legend = 0.28 * -(-len(advisors) // COLUMNS) if len(advisors) > 1 else 0.0  # inches
    height = 5.6 + legend
    figure = style.new_figure(11.5, height, title, _about_advice(advisors, horizon))
    axes = figure.subplots(2, 2, **LOOKS["advice panels"])
    figure.subplots_adjust(
        top=1 - (1.0 + legend) / height, bottom=0.95 / height, **LOOKS["advice frame"]
    )
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
    axes[0, 1].axhline(0, **LOOKS["zero below"])
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
    axes[1, 1].yaxis.set_major_formatter(lambda value, _: share(value, 0))
    axes[1, 1].set_xlabel("update")
    figure.text(
        0.012,
        0.12 / height,
        _legend(len(advisors)),
        **LOOKS["advice note"],
    )
    if len(advisors) > 1:
        figure.legend(
            *left.get_legend_handles_labels(),
            bbox_to_anchor=(0.002, 1 - 0.62 / height),
            ncols=min(COLUMNS, len(advisors)),
            **LOOKS["advisors legend"],
        )
    return figure


def _legend(advisors: int) -> str:
    """Explain what the marks mean. advisors: how many there are."""
    bars = (
        "Bars: 95 % Wilson intervals of the independent answers that the scored ones are worth (outcomes overlap, "
        f"opinions persist). Hollow: worth fewer than {LITTLE}."
    )
    return bars + (" Labels: scored (worth)." if advisors <= LABELLED else " Size: scored.")


def _about_advice(advisors: Sequence[Advisor], horizon: int) -> str:
    visible, scored = (
        sum(each) for each in zip(*((a.answers, len(a.bars)) for a in advisors), strict=True)
    )
    who = (
        _short(advisors[0].name, 2 * LONGEST_NAME)
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


def _short(name: str, most: int = LONGEST_NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _calibration(axis: Any, advisors: Sequence[Advisor], bins: int, horizon: int) -> None:
    found = [calibration_points(advisor, bins, horizon) for advisor in advisors]
    few = all(point.effective < LITTLE for each in found for point in each)
    axis.set_title(
        "Hit rate by stated confidence"
        + (": nothing was scored" if not any(found) else ": too little evidence" if few else "")
    )
    axis.set(**LOOKS["calibration axes"])
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(lambda value, _: share(value, 0))
    axis.plot([0, 1], [0, 1], **LOOKS["calibrated"])
    axis.axhline(0.5, **LOOKS["chance"])
    axis.text(0.012, 0.525, "chance", ha="left", **LOOKS["words"])
    axis.text(0.945, 0.965, "as often right as it says", ha="right", **LOOKS["words"])
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
    """Mark a point with its interval.

    most: scored answers of the advisor that has most, for the size of the point.
    """
    few = point.effective < LITTLE
    axis.vlines(point.confidence, point.low, point.high, color=color, **LOOKS["point interval"])
    axis.scatter(
        [point.confidence],
        [point.rate],
        s=30 + 170 * point.scored / max(most, 1),
        facecolors="white" if few else color,
        edgecolors=color,
        **LOOKS["point"],
    )


def _label(axis: Any, point: Point, above: bool) -> None:
    """Write the numbers of a point.

    above: whether they stand above its interval, if there is room.
    """
    above = (above or point.low < 0.06) and point.high < 0.94
    axis.annotate(
        f"{point.scored:,} ({point.effective:,.0f})",
        (point.confidence, point.high if above else point.low),
        xytext=(0, 5 if above else -5),
        va="bottom" if above else "top",
        **LOOKS["point numbers"],
    )


def _over_updates(
    axis: Any, advisors: Sequence[Advisor], rows: Rows, metrics: dict[str, str], title: str
) -> None:
    """Draw metrics over updates. An advisor without its own metric is shown by the run's.

    metrics: name -> line style.
    """
    axis.set_title(title)
    updates = _along(rows, "update")
    known = False
    for number, advisor in enumerate(advisors):
        for metric, line in metrics.items():
            own = f"{metric}{advisor.suffix}"
            if own not in rows[-1]:
                continue
            values, color = thin(by_agent(rows, own)), COLORS[number % len(COLORS)]
            known |= _median(axis, updates, values, color, line)
    if not known:
        axis.text(
            0.5,
            0.5,
            "undefined throughout",
            transform=axis.transAxes,
            **LOOKS["undefined"],
        )
    axis.set_xlim(0, float(rows[-1]["update"]))
    style.whole_marks(axis)
