"""What a matrix found, as plain arrays: everything that tables, pictures and claims are made of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.ablation.kinds import NONE, placebo_of
from jaxtrade.ablation.statistics import Comparison, compare
from jaxtrade.ablation.tables import Skill


class Scores(NamedTuple):
    """K kinds x S seeds on the D days of a session set, through the one evaluator, account rules off.

    split: its name. dates: of its days. net: float64[K, S, D] dollars after costs. trades: float64[K, S] entries per
    day. drawdown: float64[K, S] dollars. agreement: float64[K, S] share of the bars shown a direction after which the
    agent held that side, NaN where none was. skill: of each kind's advice about these days.
    """

    split: str
    dates: tuple[str, ...]
    net: np.ndarray
    trades: np.ndarray
    drawdown: np.ndarray
    agreement: np.ndarray
    skill: tuple[Skill, ...]


class FusionResult(NamedTuple):
    """One fusion's matrix. scores: by split. history: float64[U, K, S] per figure of training. trust: float64[K, B]
    log-odds by range of confidence, at the end. digests: sha256 of the parameters, [K][S]. turned: update from which
    second answers came. seconds: of training, without compile_seconds. evaluation_seconds: of all splits. health:
    check -> (passed, value), of the worst agent."""

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
    """A whole ablation. uses_future: which kinds know what the bars bring. split: the one that is compared, held out
    where any session is. settings, provenance: JSON values. labels: what must be known before a figure is read."""

    kinds: tuple[str, ...]
    uses_future: tuple[bool, ...]
    seeds: tuple[int, ...]
    fusions: tuple[FusionResult, ...]
    split: str
    settings: dict[str, Any]
    provenance: dict[str, Any]
    labels: tuple[str, ...]

    def net(self, fusion: FusionResult, kind: str, split: str | None = None) -> np.ndarray:
        """float64[S, D] dollars of a kind. Raises ValueError where there is no such kind."""
        return fusion.scores[split or self.split].net[self.kinds.index(kind)]

    def compared(self, fusion: FusionResult, kind: str, base: str, split: str | None = None) -> Comparison:
        """A kind less another, deflated for every kind that is compared with something."""
        return compare(self.net(fusion, kind, split), self.net(fusion, base, split), len(self.kinds) - 1)

    def to_none(self, fusion: FusionResult, kind: str, split: str | None = None) -> Comparison | None:
        """A kind less no advice; None of no advice itself."""
        return None if kind == NONE else self.compared(fusion, kind, NONE, split)

    def to_placebo(self, fusion: FusionResult, kind: str, split: str | None = None) -> Comparison | None:
        """A kind less its answers shuffled over the bars; None where the matrix has no such placebo."""
        placebo = placebo_of(kind, self.kinds)
        return None if placebo is None else self.compared(fusion, kind, placebo, split)
