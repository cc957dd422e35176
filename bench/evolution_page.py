"""The figures of population-based training on its page, from the result of `evolution`. Imports no
JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pages


def lines(result: Mapping[str, Any]) -> list[str]:
    """A Markdown table: reward per held-out session of each side by repeat, and the differences
    with intervals.
    """
    about, held_out = result["config"], result["held_out"]
    header = (
        "reward per held-out session",
        *(f"repeat {i + 1}" for i in range(about["repeats"])),
        "evolution less this, with its 95 % interval",
    )
    found = {
        name.removeprefix("evolution - "): each for name, each in result["differences"].items()
    }
    cells = [
        [side, *(f"{value:.0f}" for value in values), shown(found[side]) if side in found else "-"]
        for side, values in held_out.items()
    ]
    return [
        *pages.rows(header, cells),
        "",
        f"{about['agents']} agents, {about['steps_per_agent']:,} steps each, on a "
        f"mean-reverting synthetic market; intervals by Student's t over {about['repeats']} repeats. "
        f"Commit {result['stamp']['commit']}.",
    ]


def shown(found: Mapping[str, Any]) -> str:
    """A mean difference and its interval."""
    low, high = found["interval"]
    return f"{found['mean']:+.1f} ({low:+.1f} to {high:+.1f})"
