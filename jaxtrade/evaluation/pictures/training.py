"""`training.png`: the figures of a training over its steps. Which ones there are is the learner's
own matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.evaluation.pictures import style
from jaxtrade.storage.sinks import EACH
from jaxtrade.text import several

MOST_POINTS = 400  # more updates are averaged in groups
FEW = 30  # updates up to which each is marked by a point
LONGEST = 22  # characters of an action's name
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


@style.styled
def draw(
    rows: Rows,
    metrics: Sequence[str],
    title: str,
    path: Path,
    scores: Scores = (),
    best: int | None = None,
) -> bool:
    """Write the PNG. Returns False, and writes nothing, for a run without rows.

    Args:
        rows: of `metrics.jsonl`, one per update. metrics: the learner's own, in the order in which
            they are shown.
        scores: (update, score) of evaluations on validation sessions.
        best: the update of the best one, whose state the run has kept. Default: that of the highest
            score.
    Raises OSError (disk).
    """
    if not rows:
        return False
    style.save(figure_of(rows, metrics, title, scores, best), path)
    return True


@style.styled
def figure_of(
    rows: Rows, metrics: Sequence[str], title: str, scores: Scores = (), best: int | None = None
) -> Any:
    """The matplotlib Figure: a panel for the return, the actions, each metric that was reported,
    and the scores.

    Arguments as `draw`. A dotted line marks the best checkpoint in every panel.
    """
    from matplotlib.ticker import MaxNLocator

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
    height = 0.95 + 2.15 * lines
    figure = style.new_figure(11.5, height, title, _about(rows, best))
    axes = np.atleast_1d(figure.subplots(lines, columns, sharex=True)).ravel()
    figure.subplots_adjust(
        left=0.075,
        right=0.985,
        top=1 - 0.95 / height,
        bottom=0.5 / height,
        hspace=0.32,
        wspace=0.17,
    )
    for axis, name in zip(axes, panels, strict=False):
        (_shares if name == SHARES else _curve)(axis, rows, name)
    if scores:
        _scores(axes[len(panels)], rows, scores, best)
    for axis in axes[count:]:
        axis.set_axis_off()
    last = float(rows[-1]["steps"])
    for i, axis in enumerate(axes):
        axis.set_xlim(0, last)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
        axis.xaxis.set_major_formatter(lambda value, _: short(value))
        if best is not None and i < count:
            axis.axvline(
                _at(rows, best),
                color=style.ORANGE,
                linewidth=1.2,
                linestyle=":",
                zorder=1,
                clip_on=False,
            )
        if count > i >= count - columns:
            axis.set_xlabel("environment steps")
            axis.tick_params(labelbottom=True)
    return figure


def _at(rows: Rows, update: int) -> float:
    """The steps at the end of an update; all updates have as many."""
    return update * float(rows[-1]["steps"]) / float(rows[-1]["update"])


def _about(rows: Rows, best: int | None = None) -> str:
    last = rows[-1]
    agents = next((len(value) for name, value in last.items() if name.endswith(EACH)), 1)
    parts = [
        f"{last['steps']:,.0f} steps in {several(int(last['update']), 'update')}",
        f"{last['steps_per_second']:,.0f} steps/s",
    ]
    if agents > 1:
        parts.append(f"{agents} seeds: line = median, band = lowest to highest")
    if best is not None:
        parts.append(f"dotted line: best on validation, update {best:,}")
    return "   ·   ".join(parts)


def short(value: float) -> str:
    """A number of steps: `0`, `50k`, `1.5M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def by_agent(rows: Rows, name: str) -> np.ndarray:
    """float64[updates, agents] of a metric; NaN where it is undefined. One agent without a list by
    agent.
    """
    each = [row.get(name + EACH) for row in rows]
    found = [
        list(value) if isinstance(value, Sequence) else [row.get(name)]
        for row, value in zip(rows, each, strict=True)
    ]
    width = max(len(values) for values in found)
    return np.array(
        [
            [math.nan if value is None else float(value) for value in values]
            + [math.nan] * (width - len(values))
            for values in found
        ],
        np.float64,
    )


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Means over groups of updates [groups, ...], at most `most`; values that are not finite do not
    count.
    """
    count = min(len(values), most)
    edges = np.round(np.linspace(0, len(values), count + 1)).astype(int)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), edges[:-1], axis=0)
    counts = np.add.reduceat(known.astype(float), edges[:-1], axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, math.nan), where=counts > 0)


def _steps(rows: Rows) -> np.ndarray:
    return thinned(np.array([float(row["steps"]) for row in rows]))


def _curve(axis: Any, rows: Rows, name: str) -> None:
    values = thinned(by_agent(rows, name))
    cut = ""
    if name in FLOOR and (values < FLOOR[name]).any():
        values, cut = (
            np.maximum(values, FLOOR[name]),
            f", cut off below {FLOOR[name]:g}".replace("-", style.MINUS),
        )
    x, known = _steps(rows), np.isfinite(values).any(axis=1)
    label = LABELS.get(name, name.replace("_", " ").capitalize())
    axis.set_title(label + (cut if known.any() else ": undefined throughout"))
    if not known.any():
        return
    middle = np.nanmedian(values[known], axis=1)
    if values.shape[1] > 1:
        axis.fill_between(
            x[known],
            np.nanmin(values[known], axis=1),
            np.nanmax(values[known], axis=1),
            color=style.BLUE,
            alpha=0.18,
            linewidth=0,
        )
    few = known.sum() <= FEW
    axis.plot(
        x[known],
        middle,
        color=style.BLUE,
        linewidth=1.6,
        marker="o" if few else None,
        markersize=4,
        clip_on=not few,
    )
    if name in FROM_ZERO and np.nanmin(values) >= 0 < np.nanmax(values):
        axis.set_ylim(0, 1.06 * np.nanmax(values))
    if name in (RETURN, "explained_variance"):
        axis.axhline(0, color=style.GREY, linewidth=0.8, zorder=0)


def _shares(axis: Any, rows: Rows, name: str) -> None:
    """Stacked shares of the actions; those that never reach 2 % are one area."""
    names = list(rows[-1][name])
    values = thinned(
        np.array(
            [
                [math.nan if row[name][key] is None else float(row[name][key]) for key in names]
                for row in rows
            ]
        )
    )
    x, values = (
        np.append(0, _steps(rows)),
        np.concatenate([values[:1], values]),
    )  # the first update begins at 0
    axis.set_title("Actions, share of all steps")
    axis.set_ylim(0, 1)
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    colors = [
        style.PALE,
        style.BLUE,
        style.VERMILLION,
        style.GREEN,
        style.ORANGE,
        style.PURPLE,
        style.SKY,
        style.GREY,
    ]
    shown = [i for i in range(len(names)) if np.nanmax(values[:, i], initial=0) >= 0.02]
    rest = np.nansum(np.delete(values, shown, axis=1), axis=1)
    stacks = [np.nan_to_num(values[:, i]) for i in shown]
    labels = [_shortened(names[i].lower().replace("_", " ")) for i in shown]
    drawn = [colors[i % len(colors)] for i in shown]
    if len(shown) < len(names):
        stacks, labels, drawn = [*stacks, rest], [*labels, "others"], [*drawn, style.INK]
    axis.stackplot(x, *stacks, colors=drawn, labels=labels, linewidth=0)
    place = axis.get_position()
    axis.set_position(
        (place.x0, place.y0, place.width * 0.65, place.height)
    )  # the names stand beside it
    axis.legend(
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=8.5,
        handlelength=1.0,
        labelspacing=0.35,
        reverse=True,
    )


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _scores(axis: Any, rows: Rows, scores: Scores, best: int | None) -> None:
    x, y = [_at(rows, update) for update, _ in scores], [score for _, score in scores]
    axis.plot(x, y, color=style.BLUE, linewidth=1.4, marker="o", markersize=4, clip_on=False)
    for (update, score), at in zip(scores, x, strict=True):
        if update == best:
            axis.plot(
                at,
                score,
                marker="*",
                markersize=13,
                color=style.ORANGE,
                linestyle="none",
                label="best, kept",
                clip_on=False,
                zorder=5,
            )
    axis.set_title("Validation, mean reward per session")
    style.legend_above(axis)
