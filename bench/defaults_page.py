"""The tables of docs/defaults.md and its two pictures, from the result of `bench.defaults`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .defaults_plan import FLOATS, RATES, STATIC

ROOT = Path(__file__).resolve().parent.parent
PAGE, FOLDER = ROOT / "docs" / "defaults.md", ROOT / "docs" / "sweeps"
BEGIN, END = "<!-- defaults:begin -->", "<!-- defaults:end -->"
DRAWS, LEVEL = 10_000, 0.95
COLOURS = {"old": "#D55E00", "new": "#0072B2"}  # Okabe and Ito
UNITS = {"CartPole": "return", "Acrobot": "return"}  # shown instead of the score
Result = Mapping[str, Any]


def interval(values: np.ndarray) -> tuple[float, float]:
    """Bootstrap interval of the mean over seeds, percentiles (Efron 1979). values:
    float64[seeds].
    """
    draws = np.random.default_rng(0).integers(0, len(values), (DRAWS, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def cells_of(result: Result, part: str) -> dict[tuple[str, str, str], Result]:
    """(problem, network, label) -> cell."""
    return {
        (cell["problem"], cell["network"], cell["label"]): cell
        for cell in result["cells"].values()
        if cell["part"] == part
    }


def last(cell: Result, figure: str = "score") -> np.ndarray:
    """The figure of the final policies, float64[variants, seeds]."""
    return np.array(cell["judged"][figure][-1])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)
    )


def reached(result: Result) -> str:
    """What old and new defaults reach: mean, interval, worst seed."""
    cells = cells_of(result, "curves")
    rows = []
    for problem, network in dict.fromkeys((problem, network) for problem, network, _ in cells):
        figure = UNITS.get(problem, "score")
        rows.append(
            [
                problem,
                network,
                *(
                    _reached(cells.get((problem, network, label)), figure)
                    for label in ("old", "new")
                ),
            ]
        )
    return table(["problem", "network", "old defaults", "new defaults"], rows)


def _reached(cell: Result | None, figure: str) -> str:
    if cell is None:
        return "not run"
    values = last(cell, figure)[0]
    number = "{:.0f}" if figure == "return" else "{:.3f}"
    low, high = interval(values)
    text = f"{number} [{number}, {number}], worst {number}".format(
        values.mean(), low, high, values.min()
    )
    text += "" if figure == "return" else f"; {int((values >= 0.9).sum())} of {len(values)} at 0.9"
    return f"{text} ({cell['steps_taken'][-1]:,} steps)"


def changed_floats(result: Result) -> str:
    """Scores by variant and problem, mean over the seeds."""
    cells = cells_of(result, "floats")
    rows = []
    for i, variant in enumerate(FLOATS):
        rows.append(
            [variant, *(_number(key[0], last(cell)[i].mean()) for key, cell in cells.items())]
        )
    return table(["changed", *(f"{problem}, {network}" for problem, network, _ in cells)], rows)


def _number(problem: str, value: float) -> str:
    return f"{value:,.0f}" if problem == "ES week" else f"{value:.3f}"


def changed_counts(result: Result) -> str:
    """Scores by static key and learning rate, mean over the seeds."""
    cells = cells_of(result, "static")
    rows = []
    for label in STATIC:
        cell = cells.get(("reversion", "mlp", label))
        rows.append(
            [
                label,
                *(
                    ["not run"] * len(RATES)
                    if cell is None
                    else [f"{row.mean():.3f}" for row in last(cell)]
                ),
            ]
        )
    return table(["changed", *RATES], rows)


def scaled(result: Result) -> str:
    """Scores by number of environments and length."""
    rows = [
        [
            label,
            f"{cell['updates']:,}",
            str(cell["minibatches"]),
            ", ".join(f"{x:.3f}" for x in last(cell)[0]),
        ]
        for (_, _, label), cell in cells_of(result, "scale").items()
    ]
    return table(["run", "updates", "minibatches", "each seed"], rows)


def text_of(result: Result) -> str:
    """The generated part of the page."""
    parts = [
        ("What the defaults reach", reached(result)),
        ("One tunable number changed", changed_floats(result)),
        ("Counts, network and scales changed", changed_counts(result)),
        ("Numbers of environments and lengths of the run", scaled(result)),
    ]
    body = "\n\n".join(f"### {title}\n\n{part}" for title, part in parts)
    versions = result["stamp"]["versions"]
    return (
        f"{BEGIN}\n<!-- written by `python -m bench.defaults --draw`: change nothing here -->\n\n{body}\n\n"
        f"Computed on a CPU ({result['stamp']['device']}), jax {versions['jax']}; all cells together cost "
        f"{result['cpu_minutes']:.0f} minutes of one core.\n{END}"
    )


def inserted(page: str, generated: str) -> str:
    """The page with its generated part replaced. Raises ValueError if the markers are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name}: the markers {BEGIN} and {END} are missing")
    return before + generated + after


def publish(result: Result) -> None:
    """Write the tables and the picture."""
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), text_of(result)), encoding="utf-8")
    curves(result, FOLDER / "defaults_curves.png")


def curves(result: Result, path: Path) -> None:
    """Learning curves of old and new defaults: mean over the seeds, band: its interval."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cells = cells_of(result, "curves")
    shown = [
        key
        for key in dict.fromkeys((problem, network) for problem, network, _ in cells)
        if (*key, "old") in cells and (*key, "new") in cells
    ]
    with rc_context({"font.size": 9}):
        figure = Figure(figsize=(9, 2.9 * -(-len(shown) // 3)), layout="constrained")
        axes = figure.subplots(-(-len(shown) // 3), 3, squeeze=False).flatten()
        for axis, (problem, network) in zip(axes, shown, strict=False):
            for label in ("old", "new"):
                _curve(axis, cells[problem, network, label], label, UNITS.get(problem, "score"))
            axis.set_title(f"{problem}, {network}", loc="left", fontsize=10)
            axis.set_xlabel("environment steps")
            axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}k")
            axis.set_ylabel(UNITS.get(problem, "share of the optimum"))
            axis.grid(True, color="#e6e8eb", linewidth=0.8)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(loc="lower right", frameon=False)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        seeds = next(iter(cells.values()))["settings"]["seeds"]
        figure.supxlabel(
            f"greedy policy on sessions that no training has seen; {seeds} seeds: mean and its "
            f"{LEVEL:.0%} bootstrap interval",
            fontsize=7,
            color="#444444",
            x=0.01,
            ha="left",
        )
        figure.savefig(path, dpi=130)


def _curve(axis: Any, cell: Result, label: str, figure: str) -> None:
    values = np.array(cell["judged"][figure])[:, 0]  # [points, seeds]
    bounds = np.array([interval(row) for row in values])
    axis.fill_between(
        cell["steps_taken"],
        bounds[:, 0],
        bounds[:, 1],
        color=COLOURS[label],
        alpha=0.2,
        linewidth=0,
    )
    axis.plot(
        cell["steps_taken"],
        values.mean(axis=1),
        "--" if label == "old" else "-",
        color=COLOURS[label],
        linewidth=1.6,
        label=f"{label} defaults",
    )
    if figure == "score":
        axis.axhline(0.9, color="#777777", linewidth=0.8, linestyle=":")
