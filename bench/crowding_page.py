"""The table of crowding against impact on the page of the shared market, from the result of
`crowding`. Imports no JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pages

COLUMNS = {
    "profit of an agent": ("crowding_profit", 0),
    "spread over agents": ("crowding_return_spread", 0),
    "correlation of positions": ("crowding_position_correlation", 2),
    "impact paid": ("impact_paid", 1),
    "highest offset": ("offset_high", 1),
}


def lines(result: Mapping[str, Any]) -> list[str]:
    """A Markdown table: one row for each kappa; the mean of each figure, with the lowest and the
    highest group.
    """
    cells = [
        [kappa, *(shown(found[name], digits) for name, digits in COLUMNS.values())]
        for kappa, found in result["by_kappa"].items()
    ]
    about = result["config"]
    return [
        *pages.rows(("`shared.kappa`", *COLUMNS), cells),
        "",
        f"{about['groups']} groups of {about['agents']} agents, {about['steps_of_each_agent']:,} steps each; means "
        "over the last quarter of the updates, and in brackets the lowest and the highest group. Profit and its "
        "spread are dollars per 1,000 steps, impact is ticks per contract, the offset is ticks. Commit "
        f"{result['stamp']['commit']}.",
    ]


def shown(figure: Mapping[str, float], digits: int) -> str:
    """A mean with its range."""
    mean, low, high = (f"{figure[name]:,.{digits}f}" for name in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"
