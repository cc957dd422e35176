"""Draw an ablation: for each fusion, what every advisor was worth and how training trusted it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.ablation.results import Ablation, FusionResult
from jaxtrade.evaluation.plots.style import LOOKS, save

HONEST, TOLD = "#1f4e9c", "#c0392b"


def draw(ablation: Ablation, path: Path) -> bool:
    """Write the PNG. Return False and write nothing where matplotlib is not installed."""
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
        **LOOKS["ablation title"],
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
    """Draw mean differences to no advice.

    Thick lines: 95 % intervals; thin: deflated; red: advisors that cheat.
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
    axis.axvline(0.0, **LOOKS["ablation zero"])
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.grid(True, axis="x", **LOOKS["light grid"])
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel("dollars per day, less no advice")
    axis.set_title(
        f"fusion {fusion.fusion}: worth of advice; 95 % thick, deflated thin",
        **LOOKS["ablation heading"],
    )


def _draw_trust(axis: Any, ablation: Ablation, fusion: FusionResult) -> None:
    """Draw the trust (log-odds of the hit rate) by update.

    Kinds whose trust is undefined or always 0 are left out.
    """
    trust, colors = fusion.history["trust"], LOOKS["ablation lines"]
    steps = np.arange(1, len(trust) + 1)
    for k, kind in enumerate(ablation.kinds):
        line = trust[:, k, 0]  # outcomes are shared by the seeds
        if np.isfinite(line).any() and np.nanmax(np.abs(line)) > 0:
            axis.plot(steps, line, color=colors[k % len(colors)], linewidth=1.3, label=kind)
    if fusion.turned is not None:
        axis.axvline(fusion.turned, **LOOKS["ablation turn"])
    axis.grid(True, axis="y", **LOOKS["light grid"])
    axis.set_xlabel("update")
    axis.set_ylabel("log-odds")
    axis.set_title("trust measured in training", **LOOKS["ablation heading"])
    if axis.get_legend_handles_labels()[0]:
        axis.legend(**LOOKS["ablation legend"])
