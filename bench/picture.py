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

from . import catalogue, figures

PANELS = {"env_step": "Environment alone, observations consumed", "ppo_train": "Whole PPO training"}
# Okabe and Ito's colours, told apart under every common colour blindness; markers and dashes tell them apart in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.")
NUMBERED = re.compile(r"^(?P<name>.+?)[\s,:/(=@]*(?:num_envs|n_envs|n)?[\s=(]*(?P<count>\d+)(?: envs?)?\)?$")


class Point(NamedTuple):
    """One side at one number of environments: steps per wall second, median and range."""

    num_envs: int
    median: float
    low: float
    high: float


def split_name(name: str) -> tuple[str, int | None]:
    """Side and its number of environments: "SubprocVecEnv(8)" -> ("SubprocVecEnv", 8)."""
    found = NUMBERED.match(name)
    return (found["name"], int(found["count"])) if found else (name, None)


def series(result: Mapping[str, Any]) -> dict[str, list[Point]]:
    """Side -> its points by number of environments; sides that name no number are not drawn."""
    lines: dict[str, list[Point]] = {}
    for place, side in figures.find(result).sides.items():
        name, count = split_name(figures.label(place))
        count = side.get("num_envs", side.get("n_envs", count))
        if count is not None:
            low, high = side["steps_per_second_range"]
            lines.setdefault(name, []).append(Point(count, side["steps_per_second"], low, high))
    return {name: sorted(points) for name, points in lines.items()}


def panels(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[Point]]]:
    """Bench -> its lines, of the benches that there are results of."""
    drawn = {name: series(results[name]) for name in PANELS if name in results}
    return {name: lines for name, lines in drawn.items() if lines}


def digest(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of everything that the picture shows."""
    shown = {name: [lines, caption(results[name])] for name, lines in panels(results).items()}
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def caption(result: Mapping[str, Any]) -> str:
    """Machine and commit of a result."""
    stamp = result["stamp"]
    return f"{stamp['device']}, {stamp['cores']} CPU cores, commit {stamp['commit']}"


def is_current(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Whether each file shows these results."""
    mark = digest(results).encode()
    return all(path.is_file() and mark in path.read_bytes() for path in paths.values())


def draw(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Write the picture to `paths` (format -> file); False, and nothing written, where there is nothing to show."""
    chosen = panels(results)
    if not chosen:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "jaxtrade", "font.size": 9}):
        figure = Figure(figsize=(6.2 * len(chosen), 5.6), layout="constrained")
        figure.suptitle("Throughput by number of environments: medians, bars from the least to the greatest repeat")
        styles: dict[str, int] = {}  # a side looks the same in both panels
        for axis, (name, lines) in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen.items(), strict=True):
            for side in lines:
                styles.setdefault(side, len(styles))
            _panel(axis, PANELS[name], lines, styles)
            axis.text(0.0, -0.14, caption(results[name]), transform=axis.transAxes, fontsize=7.5, color="#444444",
                      va="top")
        text = f"jaxtrade bench; data {digest(results)}"
        for kind, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            note = {"Description": text} | ({"Date": None} if kind == "svg" else {})
            figure.savefig(path, format=kind, metadata=note, dpi=110)
    return True


def _panel(axis: Any, title: str, lines: Mapping[str, list[Point]], styles: Mapping[str, int]) -> None:
    for side, points in lines.items():
        style = styles[side]
        counts, rates = [p.num_envs for p in points], [p.median for p in points]
        spread = [[p.median - p.low for p in points], [p.high - p.median for p in points]]
        axis.errorbar(counts, rates, yerr=spread, label=side, color=COLOURS[style % len(COLOURS)],
                      marker=MARKERS[style % len(MARKERS)], linestyle=DASHES[style // len(COLOURS) % len(DASHES)],
                      linewidth=1.6, markersize=5.5, capsize=2.5, elinewidth=1.0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(sorted({p.num_envs for points in lines.values() for p in points}))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.minorticks_off()
    axis.tick_params(axis="x", labelrotation=45)
    axis.set_xlabel("environments side by side (num_envs)")
    axis.set_ylabel("environment steps per second of wall clock")
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(True, which="major", color="#e6e8eb", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    axis.legend(fontsize=8, frameon=False)


def files(folder: Path) -> dict[str, Path]:
    """Format -> where the picture of a results folder lies."""
    return {kind: folder / f"throughput.{kind}" for kind in ("png", "svg")}


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else catalogue.RESULTS
    results = {name: figures.read(path) for name in PANELS if (path := folder / f"{name}.json").exists()}
    paths = files(folder)
    if not draw(results, paths):
        print(f"error: {folder}: no result of {' or '.join(PANELS)}; run `jaxtrade bench` first", file=sys.stderr)
        return 1
    print("\n".join(map(str, paths.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
