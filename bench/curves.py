"""The curves of `precision_curves` as PNG and SVG: mean over the seeds, band from the least to the
greatest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import saved

NAME, BENCH = "precision_curves", "precision_curves"
COLOURS = {"float32": "#0072B2", "tf32": "#D55E00", "bfloat16": "#009E73"}  # Okabe and Ito
DASHES = {"float32": "-", "tf32": "--", "bfloat16": ":"}


def shown(results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is anything to draw."""
    return BENCH in results


def caption(results: Mapping[str, Mapping[str, Any]]) -> str:
    """What is shown, machine and commit."""
    result = results[BENCH]
    stamp, config, emulated = (
        result["stamp"],
        result["config"],
        ", ".join(result["emulated"]) or "none",
    )
    return (
        f"{config['seeds']} seeds; band: least to greatest seed; computed with rounded operands: {emulated}; "
        f"{stamp['device']}, commit {stamp['commit']}"
    )


def digest(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of everything that the picture shows."""
    return hashlib.sha256(
        json.dumps([results[BENCH]["curves"], caption(results)]).encode()
    ).hexdigest()


def is_current(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Whether each file shows these results."""
    return saved.shows(paths, digest(results))


def draw(results: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path]) -> bool:
    """Write the picture to `paths` (format -> file). False if there is nothing to show."""
    if not shown(results):
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    result = results[BENCH]
    with rc_context({"svg.hashsalt": "jaxtrade", "font.size": 9}):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axis = figure.subplots()
        for precision, curve in result["curves"].items():
            steps = [
                (i + 1) * result["config"]["steps_of_an_update"] for i in range(len(curve["mean"]))
            ]
            axis.fill_between(
                steps,
                curve["least"],
                curve["greatest"],
                color=COLOURS[precision],
                alpha=0.15,
                linewidth=0,
            )
            axis.plot(
                steps,
                curve["mean"],
                DASHES[precision],
                color=COLOURS[precision],
                linewidth=1.6,
                label=precision,
            )
        axis.set_title("Precision of matrix products in training", loc="left", fontsize=10)
        axis.set_xlabel("environment steps of each seed")
        axis.set_ylabel("reward per step, share of the optimum")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.grid(True, color="#e6e8eb", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
        axis.legend(loc="lower right", frameon=False)
        figure.supxlabel(caption(results), fontsize=7, color="#444444", x=0.01, ha="left")
        saved.save(figure, digest(results), paths)
    return True


def files(folder: Path) -> dict[str, Path]:
    """Format -> where the picture of a results folder lies."""
    return saved.files(folder, NAME)
