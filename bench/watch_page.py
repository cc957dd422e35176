"""The figures of the live page on its page, from the result of `watch`. Imports no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import figures, pages


def lines(result: Mapping[str, Any]) -> list[str]:
    """A Markdown table of the promises, and what the long file took beside them."""
    words = {True: pages.MET, False: pages.MISSED, None: ""}
    cells = [
        [each["what"], each["target"], shown(each), words[each["met"]]]
        for each in result["targets"]
    ]
    about, read = result["config"], result["long_file"]
    whole = read["all_rows"]["viewer"]["seconds"]
    return [
        *pages.rows(("what", "target", "measured", ""), cells),
        "",
        f"Speed: {about['pairs']} pairs of turns of one run. Delays: {delays(result)}. The long file has "
        f"{read['rows']:,} rows; all of them are in the curves after {figures.in_unit(whole, 's')}. "
        f"Commit {result['stamp']['commit']}.",
    ]


def shown(target: Mapping[str, Any]) -> str:
    """What was measured, in the unit of its target."""
    if target["measured"] is None:
        return pages.UNMEASURED
    return figures.in_unit(target["measured"], target["unit"])


def delays(result: Mapping[str, Any]) -> str:
    """How many chunks were followed, and the medians."""
    return ", ".join(
        f"{name} {figures.in_unit(found['median_seconds'], 's')} (median of {found['chunks']} chunks)"
        for name, found in result["delay"].items()
    )
