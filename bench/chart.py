"""jaxtrade's speed over each other learner's and environment's, row by row: a bar to the right of
the line where it is faster, to the left where it is slower.

Bars are ratios of medians by the clock, diamonds per CPU second, ticks the ceiling of the bar
(`products`). The same results give the same SVG bytes with the same matplotlib; both files carry
the digest of what they show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from . import figures, provenance, saved

NAME = "ratios"
FASTER, SLOWER, INK = "#0072B2", "#D55E00", "#000000"  # told apart by side, hatch and word too
NETWORKS = {"small": "PPO 64x64", "large": "PPO 256-256-128"}
OTHERS = {"sb3_dummy": "SB3", "rejax": "rejax", "purejaxrl": "PureJaxRL"}
TICKS = (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
PLACES = (  # label, bench, keys that lead to the ratio; one may be a pattern
    ("environment alone / DummyVecEnv(16)", "env_step", ("ratios", "* / sb3_dummy_16")),
    *(
        (
            f"{title}, {count} environments / {name}",
            "ppo_train",
            ("ratios", f"{network}/{other}/{count}"),
        )
        for network, title in NETWORKS.items()
        for other, name in OTHERS.items()
        for count in (4, 16)
    ),
    ("time to reward / SB3", "time_to_reward", ("at_fastest",)),
    ("time to reward with compilation / SB3", "time_to_reward", ("at_fastest", "with_compile")),
)


class Row(NamedTuple):
    """One comparison: ratios by both clocks, the ceiling by the clock, whether it may be quoted;
    None: not measured.
    """

    label: str
    wall: float | None
    cpu: float | None
    ceiling: float | None
    unverified: bool

    @property
    def words(self) -> str:
        """What stands beside the bar."""
        if self.wall is None:
            return "not measured"
        said = f"{figures.in_unit(self.wall, 'x')}: {figures.compared(self.wall)}"
        return said + (" (unverified)" if self.unverified else "")


def rows(results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Every comparison, measured or not; none at all where none is measured."""
    found = []
    for label, bench, place in PLACES:
        result = results.get(bench, {})
        ratio = _at(result, place) or {}
        limit = figures.at(result, ("ceiling", place[-1].partition("/")[0], *place, "wall"))
        doubted = bool(result) and bool(provenance.doubts(result))
        found.append(Row(label, ratio.get("wall"), ratio.get("cpu"), limit, doubted))
    return found if any(row.wall is not None for row in found) else []


def _at(result: Mapping[str, Any], place: Sequence[str]) -> Mapping[str, Any] | None:
    """The ratio at a place whose last key may be a pattern."""
    node = figures.at(result, place[:-1])
    names = (
        [name for name in node if fnmatchcase(name, place[-1])] if isinstance(node, Mapping) else []
    )
    return node[names[0]] if node is not None and names else None


def shown(results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is anything to draw."""
    return bool(rows(results))


def digest(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of everything that the chart shows."""
    return hashlib.sha256(json.dumps([rows(results), caption(results)]).encode()).hexdigest()


def caption(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Machine and commit of what is shown."""
    stamps = [
        results[bench]["stamp"]
        for bench in dict.fromkeys(bench for _, bench, _ in PLACES)
        if bench in results
    ]
    return "; ".join(
        dict.fromkeys(
            f"{stamp['device']}, {stamp['cores']} CPU cores, commit {stamp['commit']}"
            for stamp in stamps
        )
    )


def is_current(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Whether each file shows these results."""
    return saved.shows(paths, digest(results))


def files(folder: Path) -> dict[str, Path]:
    """Format -> where the chart of a results folder lies."""
    return saved.files(folder, NAME)


def draw(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Write the chart to `paths` (format -> file); False, and nothing written, where there is
    nothing to show.
    """
    chosen = rows(results)
    if not chosen:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "jaxtrade", "font.size": 9, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(9.5, 1.8 + 0.32 * len(chosen)), layout="constrained")
        axis = figure.subplots()
        _bars(axis, chosen)
        axis.set_title("jaxtrade's speed over the other's (medians)", loc="left", fontsize=10)
        figure.supxlabel(
            f"Measured on {caption(results)}", fontsize=7, color="#444444", x=0.01, ha="left"
        )
        saved.save(figure, digest(results), paths)
    return True


def _bars(axis: Any, chosen: Sequence[Row]) -> None:
    """One bar a row, its words beside it, and what the marks mean."""
    from matplotlib.ticker import NullLocator

    ratios = [
        value for row in chosen for value in (row.wall, row.cpu, row.ceiling) if value is not None
    ]
    low, high = min(0.7, *ratios), max(2.0, *ratios)
    axis.set_xscale("log")
    axis.set_xlim(low / 1.1, high * 4)  # room for the words
    for y, row in enumerate(chosen):
        slower = row.wall is not None and figures.compared(row.wall) == "slower"
        if row.wall is not None:
            axis.barh(
                y,
                row.wall - 1,
                left=1,
                height=0.6,
                color=SLOWER if slower else FASTER,
                edgecolor="white",
                hatch="////" if slower else None,
            )
        end = max(
            [1.0, *(value for value in (row.wall, row.cpu, row.ceiling) if value is not None)]
        )
        axis.annotate(
            row.words,
            (end, y),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight="bold" if slower else "normal",
            color=SLOWER if slower else INK,
        )
    for name, marker, size, face in (("cpu", "D", 26, "white"), ("ceiling", "|", 130, INK)):
        marks = [
            (getattr(row, name), y)
            for y, row in enumerate(chosen)
            if getattr(row, name) is not None
        ]
        if marks:
            label = {
                "cpu": "per CPU second",
                "ceiling": "ceiling of the bar: our matrix products alone",
            }[name]
            edge = {} if face == INK else {"edgecolor": INK}
            axis.scatter(
                *zip(*marks, strict=True),
                marker=marker,
                s=size,
                facecolor=face,
                linewidth=1.2,
                zorder=3,
                label=label,
                **edge,
            )
    axis.axvline(1, color=INK, linewidth=1)
    axis.set_yticks(range(len(chosen)), [row.label for row in chosen])
    axis.invert_yaxis()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("slower  <  1x  <  faster      (bars: by the clock)")
    axis.grid(True, axis="x", color="#e6e8eb", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(
            loc="lower right", frameon=True, framealpha=1.0, edgecolor="#cccccc", fontsize=8
        )
