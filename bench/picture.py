"""Throughput against the number of environments, of all sides, as PNG and SVG.

    python -m bench.picture [RESULTS]        (default: bench/results; `python -m bench.publish` draws it too)

Log-log, medians with the range of the repeats, wall clock. A side counts where it names its environments: a key
`num_envs`, or a number at the end of its name, as in `SubprocVecEnv(8)`. The same results give the same SVG bytes with
the same matplotlib; both files carry the digest of what they show, so that `publish --check` sees a stale one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import catalogue, figures, saved

NAME = "throughput"
PANELS = (  # bench, beginning of its sides' names, title
    ("env_step", "", "Environment alone"),
    ("ppo_train", "small/", "Whole PPO training, 64-64, 4 epochs"),
    ("ppo_train", "large/", "Whole PPO training, 256-256-128"),
)
BENCHES = tuple(dict.fromkeys(bench for bench, _, _ in PANELS))
# Okabe and Ito's colours, told apart under every common colour blindness; markers and dashes tell them apart in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":")
NAMES = {"ours": "jaxtrade", "sb3_dummy": "SB3, DummyVecEnv", "sb3_subproc": "SB3, SubprocVecEnv",
         "purejaxrl": "PureJaxRL", "rejax": "rejax", "sbx": "sbx", "twin": "NumPy twin alone",
         "gymnax_rollout": "gymnax's rollout"}
NUMBERED = re.compile(r"^(?P<name>.+?)[\s,:/(=@_]*(?:num_envs|n_envs|n)?[\s=(]*(?P<count>\d+)(?: envs?)?\)?$")


LARGE_BATCH = re.compile(r"^(?P<name>.+)/(?P<count>\d+)x\d+/batch \d+/(?P<epochs>\d+ epochs)$")


class Point(NamedTuple):
    """One side at one number of environments: steps per wall second, median and range."""

    num_envs: int
    median: float
    low: float
    high: float


def split_name(name: str) -> tuple[str, int | None]:
    """Side and its number of environments: "SubprocVecEnv(8)" -> ("SubprocVecEnv", 8)."""
    if found := LARGE_BATCH.match(name):
        return f"{found['name']}, large batches, {found['epochs']}", int(found["count"])
    found = NUMBERED.match(name)
    return (found["name"], int(found["count"])) if found else (name, None)


def reader_name(name: str) -> str:
    """A side's name in the legend."""
    return NAMES.get(name, name.replace("ours_", "jaxtrade, ").replace("ours", "jaxtrade").replace("_", " "))


def series(result: Mapping[str, Any], prefix: str = "") -> dict[str, list[Point]]:
    """Side -> its points by number of environments; sides that name no number are not drawn."""
    lines: dict[str, list[Point]] = {}
    for place, side in figures.find(result).sides.items():
        name, count = split_name(figures.label(place).removeprefix(prefix))
        count = side.get("num_envs", side.get("n_envs", count))
        if count is not None and figures.label(place).startswith(prefix):
            low, high = side["steps_per_second_range"]
            lines.setdefault(reader_name(name), []).append(Point(count, side["steps_per_second"], low, high))
    return {name: sorted(points) for name, points in lines.items()}


def panels(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[Point]]]:
    """Title -> lines, of the benches that there are results of."""
    drawn = {title: series(results[bench], prefix) for bench, prefix, title in PANELS if bench in results}
    return {title: lines for title, lines in drawn.items() if lines}


def shown(results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is anything to draw."""
    return bool(panels(results))


def digest(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of everything that the picture shows."""
    return hashlib.sha256(json.dumps([panels(results), caption(results)]).encode()).hexdigest()


def caption(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Machine and commit of what is shown."""
    stamps = [results[bench]["stamp"] for bench in BENCHES if bench in results]
    return "; ".join(dict.fromkeys(f"{stamp['device']}, {stamp['cores']} CPU cores, commit {stamp['commit']}"
                                   for stamp in stamps))


def is_current(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Whether each file shows these results."""
    return saved.shows(paths, digest(results))


def draw(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Write the picture to `paths` (format -> file); False, and nothing written, where there is nothing to show."""
    chosen = panels(results)
    if not chosen:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "jaxtrade", "font.size": 9}):
        rows = (len(chosen) + 2) // 2  # two columns, the last cell for the legend
        figure = Figure(figsize=(11, 4.6 * rows), layout="constrained")
        figure.suptitle("Throughput by number of environments: medians, bars from the least to the greatest repeat")
        figure.supxlabel(f"Measured on {caption(results)}", fontsize=7.5, color="#444444", x=0.01, ha="left")
        styles = {name: i for i, name in enumerate(NAMES.values())}  # a side looks the same in every panel
        handles: dict[str, Any] = {}
        *cells, last = figure.subplots(rows, 2).flat
        for axis, (title, lines) in zip(cells, chosen.items(), strict=False):
            for side in lines:
                styles.setdefault(side, len(styles))
            handles |= _panel(axis, title, lines, styles)
        for axis in (*cells[len(chosen):], last):
            axis.axis("off")
        last.legend(handles.values(), handles.keys(), loc="center left", frameon=False)
        saved.save(figure, digest(results), paths)
    return True


def _panel(axis: Any, title: str, lines: Mapping[str, list[Point]], styles: Mapping[str, int]) -> dict[str, Any]:
    """Draw one panel -> side -> its legend entry."""
    from matplotlib.ticker import NullLocator

    handles = {}
    for side, points in lines.items():
        style = styles[side]
        counts, rates = [p.num_envs for p in points], [p.median for p in points]
        spread = [[p.median - p.low for p in points], [p.high - p.median for p in points]]
        handles[side] = axis.errorbar(
            counts, rates, yerr=spread, color=COLOURS[style % len(COLOURS)], marker=MARKERS[style % len(MARKERS)],
            linestyle=DASHES[style // len(COLOURS) % len(DASHES)], linewidth=1.6, markersize=5.5, capsize=2.5,
            elinewidth=1.0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(sorted({p.num_envs for points in lines.values() for p in points}))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="x", labelrotation=45)
    axis.set_xlabel("environments side by side (num_envs)")
    axis.set_ylabel("environment steps per second of wall clock")
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(True, which="major", color="#e6e8eb", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    return handles


def files(folder: Path) -> dict[str, Path]:
    """Format -> where the picture of a results folder lies."""
    return saved.files(folder, NAME)


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else catalogue.RESULTS
    results = {name: figures.read(path) for name in BENCHES if (path := folder / f"{name}.json").exists()}
    paths = files(folder)
    if not draw(results, paths):
        print(f"error: {folder}: no result of {' or '.join(BENCHES)}; run `jaxtrade bench` first", file=sys.stderr)
        return 1
    print("\n".join(map(str, paths.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
