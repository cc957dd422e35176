"""Throughput against the number of environments, of all sides, as PNG and SVG.

    python -m bench.picture [RESULTS]        (default: bench/results; `python -m bench.publish` draws it too)

Log-log, medians with the range of the repeats, wall clock. A side counts where it names its
environments: a key
`num_envs`, or a number at the end of its name, as in `SubprocVecEnv(8)`. The same results give the same SVG bytes with
the same matplotlib; both files carry the digest of what they show, so that `publish --check` sees a stale one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping
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
# Okabe and Ito's colours, told apart under every common colour blindness. Every line has a marker
# of its own too, which tells it apart in grey. jaxtrade's lines share its colour; all but the first
# are dashed, with hollow markers.
OURS, COLOUR = "jaxtrade", "#0072B2"
COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7f7f7f", "#F0E442")
MARKERS = ("s", "^", "D", "v", "P", "X", "*", "H")
OWN_MARKERS = ("o", "h", "p", "d", "<", ">", "8")
OWN_DASHES = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 2, 1, 2)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 4)),
)
NAMES = {
    "ours": "jaxtrade",
    "sb3_dummy": "SB3, DummyVecEnv",
    "sb3_subproc": "SB3, SubprocVecEnv",
    "purejaxrl": "PureJaxRL",
    "rejax": "rejax",
    "sbx": "sbx",
    "twin": "NumPy twin alone",
    "gymnax_rollout": "gymnax's rollout",
}
NUMBERED = re.compile(
    r"^(?P<name>.+?)[\s,:/(=@_]*(?:num_envs|n_envs|n)?[\s=(]*(?P<count>\d+)(?: envs?)?\)?$"
)


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
    return NAMES.get(
        name, name.replace("ours_", "jaxtrade, ").replace("ours", "jaxtrade").replace("_", " ")
    )


def series(result: Mapping[str, Any], prefix: str = "") -> dict[str, list[Point]]:
    """Side -> its points by number of environments; sides that name no number are not drawn."""
    lines: dict[str, list[Point]] = {}
    for place, side in figures.find(result).sides.items():
        name, count = split_name(figures.label(place).removeprefix(prefix))
        count = side.get("num_envs", side.get("n_envs", count))
        if count is not None and figures.label(place).startswith(prefix):
            low, high = side["steps_per_second_range"]
            lines.setdefault(reader_name(name), []).append(
                Point(count, side["steps_per_second"], low, high)
            )
    return {name: sorted(points) for name, points in lines.items()}


class Style(NamedTuple):
    """How a side is drawn, the same in every panel."""

    colour: str
    marker: str
    dash: Any
    hollow: bool


def styles(sides: Iterable[str]) -> dict[str, Style]:
    """Side -> its style; no two are alike. Those in `NAMES` come first, so that a new side changes
    none of them.

    Raises ValueError for more sides than there are styles.
    """
    known = list(dict.fromkeys([*NAMES.values(), *sides]))
    own = [side for side in known if side.partition(",")[0] == OURS]
    others = [side for side in known if side not in own]
    if len(own) > len(OWN_MARKERS) or len(others) > len(COLOURS):
        raise ValueError(
            f"{len(own)} lines of {OURS} and {len(others)} of others, for {len(OWN_MARKERS)} and "
            f"{len(COLOURS)} styles; add colours and markers"
        )
    found = {
        side: Style(COLOUR, marker, dash, i > 0)
        for i, (side, marker, dash) in enumerate(zip(own, OWN_MARKERS, OWN_DASHES, strict=False))
    }
    return found | {
        side: Style(colour, marker, "-", False)
        for side, colour, marker in zip(others, COLOURS, MARKERS, strict=False)
    }


def panels(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[Point]]]:
    """Title -> lines, of the benches that there are results of."""
    drawn = {
        title: series(results[bench], prefix) for bench, prefix, title in PANELS if bench in results
    }
    return {title: lines for title, lines in drawn.items() if lines}


def shown(results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is anything to draw."""
    return bool(panels(results))


def digest(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of everything that the picture shows, and how."""
    chosen = panels(results)
    return hashlib.sha256(
        json.dumps([chosen, caption(results), styles(itertools.chain(*chosen.values()))]).encode()
    ).hexdigest()


def caption(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Machine and commit of what is shown."""
    stamps = [results[bench]["stamp"] for bench in BENCHES if bench in results]
    return "; ".join(
        dict.fromkeys(
            f"{stamp['device']}, {stamp['cores']} CPU cores, commit {stamp['commit']}"
            for stamp in stamps
        )
    )


def is_current(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Whether each file shows these results."""
    return saved.shows(paths, digest(results))


def draw(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Write the picture to `paths` (format -> file); False, and nothing written, where there is
    nothing to show.
    """
    chosen = panels(results)
    if not chosen:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "jaxtrade", "font.size": 9}):
        rows = (len(chosen) + 2) // 2  # two columns, the last cell for the legend
        figure = Figure(figsize=(11, 4.6 * rows), layout="constrained")
        figure.suptitle(
            "Throughput by number of environments: medians, bars from the least to the greatest repeat"
        )
        figure.supxlabel(
            f"Measured on {caption(results)}", fontsize=7.5, color="#444444", x=0.01, ha="left"
        )
        looks = styles(itertools.chain(*chosen.values()))
        handles: dict[str, Any] = {}
        *cells, last = figure.subplots(rows, 2).flat
        for axis, (title, lines) in zip(cells, chosen.items(), strict=False):
            handles |= _panel(axis, title, lines, looks)
        for axis in (*cells[len(chosen) :], last):
            axis.axis("off")
        last.legend(
            [handles[side] for side in looks if side in handles],
            [side for side in looks if side in handles],
            loc="center left",
            frameon=False,
            handlelength=4.5,
        )
        saved.save(figure, digest(results), paths)
    return True


def _panel(
    axis: Any, title: str, lines: Mapping[str, list[Point]], looks: Mapping[str, Style]
) -> dict[str, Any]:
    """Draw one panel -> side -> its legend entry."""
    from matplotlib.ticker import NullLocator

    handles = {}
    for side, points in lines.items():
        look = looks[side]
        counts, rates = [p.num_envs for p in points], [p.median for p in points]
        spread = [[p.median - p.low for p in points], [p.high - p.median for p in points]]
        handles[side] = axis.errorbar(
            counts,
            rates,
            yerr=spread,
            color=look.colour,
            marker=look.marker,
            linestyle=look.dash,
            linewidth=1.6,
            markersize=6,
            markerfacecolor="white" if look.hollow else look.colour,
            capsize=2.5,
            elinewidth=1.0,
        )
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
    results = {
        name: figures.read(path) for name in BENCHES if (path := folder / f"{name}.json").exists()
    }
    paths = files(folder)
    if not draw(results, paths):
        print(
            f"error: {folder}: no result of {' or '.join(BENCHES)}; run `jaxtrade bench` first",
            file=sys.stderr,
        )
        return 1
    print("\n".join(map(str, paths.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
