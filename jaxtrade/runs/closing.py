"""The closing figures about an advisor: RL-Trainer's `LLM query rate` line, with what stands beside
it.

The rate is the share of training decisions at which the policy was shown advice. A decision is one
step of one environment; all updates of a training have equally many, so the mean of `advice_share`
over all updates is that share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.storage import digests

LAST = (
    "hit_rate",
    "advice_scored",
    "trust",
    "agreement",
)  # metrics of which the last update's value counts


def closing_figures(
    figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of `closing_line`, as JSON values; None where one is undefined or was not kept.

    figures: of `TrainingAdvisor.close`, or as many of them as exist; `kind` must. history: rows of
        metrics, one per
    update of the whole training.

    kind: of the advisor. query_rate: share of the decisions with advice. requests: sent to the
        advisor by the last
    process of the training. hit_rate, advice_scored, trust, agreement: metrics of the last update.
    """
    shares = [share for row in history if (share := _number(row.get("advice_share"))) is not None]
    last = history[-1] if history else {}
    return {
        "kind": figures["kind"],
        "query_rate": sum(shares) / len(shares) if shares else None,
        "requests": figures.get("asked"),
        **{name: _number(last.get(name)) for name in LAST},
    }


def closing_line(found: Mapping[str, Any]) -> str:
    """One line: `LLM query rate: NN.N %`, then requests, hit rate, trust and agreement. found:
    `closing_figures`.
    """
    scored = f"{int(found['advice_scored'] or 0):,} scored"
    requests = "no requests" if found["requests"] is None else f"{found['requests']:,} requests"
    trust = "n/a" if found["trust"] is None else f"{found['trust']:.3g} (log-odds)"
    return (
        f"LLM query rate: {_percent(found['query_rate'])} of decisions had advice (advisor {found['kind']}: "
        f"{requests}, hit rate {_percent(found['hit_rate'])} over {scored}, trust {trust}, agreement "
        f"{_percent(found['agreement'])})"
    )


def closing_of(
    path: Path, kind: str, history: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """`closing_figures` of the run in a folder; None if it had no advisor. kind: its
    `advisor.kind`.

    Without `advice.json` (a process was killed after its last update) the figures come from the
    metrics alone.
    """
    if kind in ("off", "none"):
        return None
    file = path / "advice.json"
    kept = digests.read_json(file) if file.is_file() else {}
    return closing_figures(kept | {"kind": kind}, history)


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"
