"""Draws an ablation: for each fusion, what every advisor was worth and how much training trusted
it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.ablation.results import Ablation, FusionResult
from jaxtrade.evaluation.pictures.style import save

HONEST, TOLD, GREY, GRID = "#1f4e9c", "#c0392b", "#9aa1ab", "#e6e8eb"
LINES = (
    "#1f4e9c",
    "#1b7f5c",
    "#c98f1c",
    "#8e6bbf",
    "#2a9d8f",
    "#b5485d",
    "#6b7280",
    "#7a8b3f",
    "#a04000",
)


def draw(ablation: Ablation, path: Path) -> bool:
    """Write the PNG. Returns False and writes nothing where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds, fusions = len(ablation.kinds), len(ablation.fusions)
    figure = Figure(
        figsize=(14, fusions * max(3.0, 0.9 + 0.32 * kinds) + 0.8), dpi=120, layout="constrained"
    )
    FigureCanvasAgg(figure)
    labels = "".join(f"   [{label.split(':')[0]}]" for label in ablation.labels)
    figure.suptitle(
        f"Advisors on {ablation.settings['market']}, {len(ablation.seeds)} seeds, split "
        f"{ablation.split}{labels}",
        fontsize=12,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    rows = figure.subplots(fusions, 2, squeeze=False, width_ratios=(1.5, 1))
    for (differences, trust), fusion in zip(rows, ablation.fusions, strict=True):
        _draw_differences(differences, ablation, fusion)
        _draw_trust(trust, ablation, fusion)
        for axis in (differences, trust):
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_axisbelow(True)
    save(figure, path)
    return True


def _draw_differences(axis: Any, ablation: Ablation, fusion: FusionResult) -> None:
    """Draw mean differences to no advice. Thick lines: 95 % intervals; thin: deflated; red:
    advisors that cheat.
    """
    names = []
    for k, kind in enumerate(ablation.kinds):
        found = ablation.to_none(fusion, kind)
        if found is None:
            continue
        color, at = TOLD if ablation.uses_future[k] else HONEST, len(names)
        names.append(kind + (" (CHEATS)" if ablation.uses_future[k] else ""))
        for interval, width in ((found.deflated, 1.0), (found.interval, 3.0)):
            if interval is not None:
                axis.plot(
                    [interval.low, interval.high], [at, at], color=color, linewidth=width, zorder=2
                )
        axis.scatter([found.mean], [at], color=color, s=26, zorder=3)
    axis.axvline(0.0, color=GREY, linewidth=1.0, zorder=1)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.grid(True, axis="x", color=GRID, linewidth=0.8)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel("dollars per day, less no advice")
    axis.set_title(
        f"fusion {fusion.fusion}: worth of advice; 95 % thick, deflated thin",
        loc="left",
        fontsize=10,
    )


def _draw_trust(axis: Any, ablation: Ablation, fusion: FusionResult) -> None:
    """Draw the trust (log-odds of the hit rate) by update. Kinds whose trust is undefined or always
    0 are left out.
    """
    trust = fusion.history["trust"]
    steps = np.arange(1, len(trust) + 1)
    for k, kind in enumerate(ablation.kinds):
        line = trust[:, k, 0]  # outcomes are shared by the seeds
        if np.isfinite(line).any() and np.nanmax(np.abs(line)) > 0:
            axis.plot(steps, line, color=LINES[k % len(LINES)], linewidth=1.3, label=kind)
    if fusion.turned is not None:
        axis.axvline(fusion.turned, color=GREY, linewidth=1.0, linestyle=":")
    axis.grid(True, axis="y", color=GRID, linewidth=0.8)
    axis.set_xlabel("update")
    axis.set_ylabel("log-odds")
    axis.set_title("trust measured in training", loc="left", fontsize=10)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
