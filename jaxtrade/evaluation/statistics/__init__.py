"""The statistics of daily net profit, in dollars: pure NumPy functions. docs/statistics.md explains
each figure.
"""

from jaxtrade.evaluation.statistics.aggregate import iqm, iqm_estimate
from jaxtrade.evaluation.statistics.blocks import DRAWS, block_days, day_lots, resampled_means
from jaxtrade.evaluation.statistics.comparison import MIN_SEEDS, Comparison, compare
from jaxtrade.evaluation.statistics.corrections import holm
from jaxtrade.evaluation.statistics.estimate import LEAST_SEEDS, IntervalEstimate
from jaxtrade.evaluation.statistics.improvement import ONE_POLICY, probability_of_improvement
from jaxtrade.evaluation.statistics.intervals import (
    LEVEL,
    MIN_DAYS,
    Interval,
    degrees_of_freedom,
    interval,
)
from jaxtrade.evaluation.statistics.overfitting import MIN_TRIALS, Overfitting, pbo
from jaxtrade.evaluation.statistics.sharpe import dsr, min_trl, psr, sharpe, trial_variance
from jaxtrade.evaluation.statistics.spa import SuperiorAbility, spa

__all__ = [
    "DRAWS",
    "LEAST_SEEDS",
    "LEVEL",
    "MIN_DAYS",
    "MIN_SEEDS",
    "MIN_TRIALS",
    "ONE_POLICY",
    "Comparison",
    "Interval",
    "IntervalEstimate",
    "Overfitting",
    "SuperiorAbility",
    "block_days",
    "compare",
    "day_lots",
    "degrees_of_freedom",
    "dsr",
    "holm",
    "interval",
    "iqm",
    "iqm_estimate",
    "min_trl",
    "pbo",
    "probability_of_improvement",
    "psr",
    "resampled_means",
    "sharpe",
    "spa",
    "trial_variance",
]
