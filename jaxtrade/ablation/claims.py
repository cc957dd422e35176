"""Decides whether a real advisor may be said to help: its deflated intervals must lie above its
placebo and the rules.

The placebo is the advisor's own answers, moved by whole sessions.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtrade.ablation.kinds import PLACEBO, is_placebo, is_real, own_placebo
from jaxtrade.ablation.results import Ablation, FusionResult
from jaxtrade.evaluation.statistics import MIN_DAYS, MIN_SEEDS, Comparison

RULES = "rules"


class Claim(NamedTuple):
    """A claim about one advisor.

    helps: whether `kind` may be said to help; None where the matrix lacks the kinds or days to
        decide. found: the two
    differences, or what is missing.
    """

    kind: str
    helps: bool | None
    found: str


def claims(ablation: Ablation, fusion: FusionResult) -> list[Claim]:
    """One claim for each real advisor of the matrix (recorded answers or a snapshot), for one
    fusion.
    """
    kinds = [kind for kind in ablation.kinds if is_real(kind) and not is_placebo(kind)]
    return [_claim(ablation, fusion, kind) for kind in kinds]


def _claim(ablation: Ablation, fusion: FusionResult, kind: str) -> Claim:
    if (days := len(fusion.scores[ablation.split].dates)) < MIN_DAYS:
        return Claim(kind, None, f"needs {MIN_DAYS} days, there are {days}")
    if (seeds := len(ablation.seeds)) < MIN_SEEDS:
        return Claim(kind, None, f"needs {MIN_SEEDS} seeds, there are {seeds}")
    own = own_placebo(kind, ablation.kinds)
    missing = [
        *([PLACEBO + kind] if own is None else []),
        *([RULES] if RULES not in ablation.kinds else []),
    ]
    if own is None or missing:
        return Claim(kind, None, f"needs {' and '.join(missing)} in the matrix")
    placebo, rules = (ablation.compared(fusion, kind, other) for other in (own, RULES))
    return Claim(
        kind,
        placebo.certain > 0 and rules.certain > 0,
        f"less its placebo {shown(placebo)}, less the rules {shown(rules)}",
    )


def shown(comparison: Comparison) -> str:
    """The mean and the deflated interval as text, in dollars per day."""
    if comparison.deflated is None:
        return f"{comparison.mean:+,.0f} (no interval of {comparison.seeds} seeds and {comparison.days} days)"
    return f"{comparison.mean:+,.0f} [{comparison.deflated.low:+,.0f}, {comparison.deflated.high:+,.0f}]"
