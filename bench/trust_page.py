"""The table of false trust and power on the page of the advisor, from the result of `trust`.
Imports no JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pages

MARKETS = ("random walk", "phase-randomised")


def lines(result: Mapping[str, Any]) -> list[str]:
    """A Markdown table: share of draws with trust, by opinion and market, by the earlier rule and
    by today's.
    """
    header = (
        "opinion",
        *(f"{market}: {rule}" for market in MARKETS for rule in ("`answers`", "`blocks`")),
    )
    cells = []
    for part, more in (("false_trust", ""), ("power", " (skill)")):
        for opinion in result[part][MARKETS[0]]:
            shares = [
                result[part][market][opinion][rule]
                for market in MARKETS
                for rule in ("answers", "blocks")
            ]
            cells.append([f"{opinion}{more}", *(share(found) for found in shares)])
    about = result["config"]
    return [
        *pages.rows(header, cells),
        "",
        f"Share of {about['draws']:,} draws with trust after the last of "
        f"{about['answers']:,} answers, with its 95 % interval. `persistent:N` keeps a random side for N bars on "
        f"average. Commit {result['stamp']['commit']}.",
    ]


def share(found: Mapping[str, Any]) -> str:
    """A share and its interval in percent."""
    low, high = (100 * end for end in found["interval"])
    return f"{100 * found['share']:.1f} % ({low:.1f} to {high:.1f})"
