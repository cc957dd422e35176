"""The results of a matrix as plain arrays, from which tables and plots are made.

Also whether a real advisor may be said to help: its deflated intervals must lie above its placebo
and the rules.

The placebo is the advisor's own answers, moved by whole sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.ablation.kinds import NONE, PLACEBO, is_placebo, is_real, own_placebo, placebo_of
from jaxtrade.ablation.tables import AdviceSkill
from jaxtrade.evaluation.statistics import MIN_DAYS, MIN_SEEDS, Comparison, compare
from jaxtrade.evaluation.test_set_history import SplitHistory
from jaxtrade.text import state_shortfall


class Scores(NamedTuple):
    """Scores of K kinds x S seeds on the D days of a session set.

    They come from the standard evaluator with account rules off.

    split: the set's name.
    dates: its days.
    net: float64[K, S, D], dollars after costs.
    trades: float64[K, S], entries per day.
    drawdown: float64[K, S], dollars.
    agreement: float64[K, S], share of the bars with a direction shown after which the agent held
        that side; NaN without such bars.
    skill: of each kind's advice about these days.
    """

    split: str
    dates: tuple[str, ...]
    net: np.ndarray
    trades: np.ndarray
    drawdown: np.ndarray
    agreement: np.ndarray
    skill: tuple[AdviceSkill, ...]


class FusionResult(NamedTuple):
    """The results of one fusion.

    scores: by split.
    history: float64[U, K, S] per training metric.
    trust: float64[K, B], log-odds by range of confidence at the end of training.
    digests: sha256 of the parameters, [K][S].
    turned: first update with second answers, or None.
    seconds: training time, without compile_seconds.
    evaluation_seconds: for all splits.
    health: check -> (passed, value) of the worst agent.
    """

    fusion: str
    scores: dict[str, Scores]
    history: dict[str, np.ndarray]
    trust: np.ndarray
    digests: tuple[tuple[str, ...], ...]
    turned: int | None
    seconds: float
    compile_seconds: float
    evaluation_seconds: float
    health: Mapping[str, tuple[bool, float]] = MappingProxyType({})


class Ablation(NamedTuple):
    """A whole ablation.

    uses_future: whether each kind reads the future.
    split: the split that is compared, the held-out one if there is any.
    settings, provenance: JSON values.
    labels: warnings to read before any metric.
    history: what the trial log says of the compared days; None if they were trained on, or nothing
        is written.
    """

    kinds: tuple[str, ...]
    uses_future: tuple[bool, ...]
    seeds: tuple[int, ...]
    fusions: tuple[FusionResult, ...]
    split: str
    settings: dict[str, Any]
    provenance: dict[str, Any]
    labels: tuple[str, ...]
    history: SplitHistory | None = None

    def net(self, fusion: FusionResult, kind: str, split: str | None = None) -> np.ndarray:
        """Return the net dollars of a kind (float64[S, D]).

        Raises ValueError where the ablation has no such kind.
        """
        return fusion.scores[split or self.split].net[self.kinds.index(kind)]

    def compare(
        self, fusion: FusionResult, kind: str, base: str, split: str | None = None
    ) -> Comparison:
        """Compare a kind with `base` (the kind minus it).

        The interval is deflated for all kinds except `none`.
        """
        return compare(
            self.net(fusion, kind, split), self.net(fusion, base, split), len(self.kinds) - 1
        )

    def to_none(
        self, fusion: FusionResult, kind: str, split: str | None = None
    ) -> Comparison | None:
        """Compare a kind with no advice (the kind minus it); None for `none` itself."""
        return None if kind == NONE else self.compare(fusion, kind, NONE, split)

    def to_placebo(
        self, fusion: FusionResult, kind: str, split: str | None = None
    ) -> Comparison | None:
        """Compare a kind with its placebo (the kind minus it; see `kinds.placebo_of`).

        None where the matrix has none for it.
        """
        placebo = placebo_of(kind, self.kinds)
        return None if placebo is None else self.compare(fusion, kind, placebo, split)


RULES = "rules"


class Claim(NamedTuple):
    """A claim about one advisor.

    helps: whether `kind` may be said to help; None where the matrix lacks the kinds or days
        to decide.
    found: the two differences, or what is missing.
    """

    kind: str
    helps: bool | None
    found: str


def claims(ablation: Ablation, fusion: FusionResult) -> list[Claim]:
    """Make one claim for each real advisor of the matrix, for one fusion.

    Real ones are recorded answers or a snapshot.
    """
    kinds = [kind for kind in ablation.kinds if is_real(kind) and not is_placebo(kind)]
    return [_claim(ablation, fusion, kind) for kind in kinds]


def _claim(ablation: Ablation, fusion: FusionResult, kind: str) -> Claim:
    if (days := len(fusion.scores[ablation.split].dates)) < MIN_DAYS:
        return Claim(kind, None, state_shortfall(MIN_DAYS, "day", days))
    if (seeds := len(ablation.seeds)) < MIN_SEEDS:
        return Claim(kind, None, state_shortfall(MIN_SEEDS, "seed", seeds))
    own = own_placebo(kind, ablation.kinds)
    missing = [
        *([PLACEBO + kind] if own is None else []),
        *([RULES] if RULES not in ablation.kinds else []),
    ]
    if own is None or missing:
        return Claim(kind, None, f"needs {' and '.join(missing)} in the matrix")
    placebo, rules = (ablation.compare(fusion, kind, other) for other in (own, RULES))
    return Claim(
        kind,
        placebo.certain > 0 and rules.certain > 0,
        f"less its placebo {format_comparison(placebo)}, less the rules {format_comparison(rules)}",
    )


def format_comparison(comparison: Comparison) -> str:
    """Format the mean and the deflated interval, in dollars per day."""
    if comparison.deflated is None:
        return f"{comparison.mean:+,.0f} (no interval of {comparison.seeds} seeds and {comparison.days} days)"
    return f"{comparison.mean:+,.0f} [{comparison.deflated.low:+,.0f}, {comparison.deflated.high:+,.0f}]"
