"""The Sharpe ratio of daily net profit, and what chance, tails and many trials leave of it.

All ratios are per day: mean over standard deviation, no risk-free rate (a day's net profit needs no
capital overnight).
`days_per_year` scales a ratio only where it is shown. The formulas take kurtosis as the fourth standardised moment, 3
for a normal distribution. The published ones take days as independent; here `memory` corrects them for days that
follow each other.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.aggregate import student_over_normal
from jaxtrade.evaluation.statistics.estimate import IntervalEstimate, finite, too_few, undefined
from jaxtrade.evaluation.statistics.intervals import LEVEL, MIN_DAYS

_NORMAL = NormalDist()
_EULER = 0.5772156649015329  # Euler and Mascheroni's constant
NO_VARIATION = "every day earns the same, so the Sharpe ratio is undefined"


class DailyMoments(NamedTuple):
    """What the formulas need of a record. ratio: Sharpe ratio per day. days: its length. skew:
    third standardised moment. kurtosis: fourth, not in excess: a normal distribution has 3. memory:
    variance of the ratio of such days over that of independent ones (`memory_of`)."""

    ratio: float
    days: int
    skew: float = 0.0
    kurtosis: float = 3.0
    memory: float = 1.0


def moments(net: np.ndarray) -> DailyMoments | None:
    """Moments of float[D]; the ratio uses the deviation over D - 1, skew and kurtosis the moments
    over D. None where there is one day or no variation."""
    net = finite(net, "[D]", 1)
    if len(net) < 2 or np.ptp(net) == 0:
        return None
    centred = net - net.mean()
    scaled = centred / net.std()
    ratio = float(net.mean() / net.std(ddof=1))
    return DailyMoments(
        ratio,
        len(net),
        float((scaled**3).mean()),
        float((scaled**4).mean()),
        memory_of(scaled, ratio),
    )


def memory_of(scaled: np.ndarray, ratio: float) -> float:
    """Variance of the Sharpe ratio of days with an autocorrelation, over that of independent days;
    at least 1.

    (1 + r) / (1 - r), the long-run variance of a first-order autoregression. r is the first
    autocorrelation of each day's part in the ratio, z - SR/2 (z^2 - 1) (Lo, Financial Analysts
    Journal 58, 2002), plus (1 + 3 r) / D, by which a short record shows too little (Kendall,
    Biometrika 41, 1954). Where r is negative the independent variance stays: an interval is never
    narrower for it. scaled: float[D], z, with mean 0 and deviation 1. 1 below `MIN_DAYS` days.
    """
    days, part = len(scaled), scaled - ratio / 2 * (scaled**2 - 1)
    whole = float((part**2).sum())
    if days < MIN_DAYS or whole < 1e-9:
        return 1.0
    measured = float((part[1:] * part[:-1]).sum()) / whole
    r = min(max(measured + (1 + 3 * measured) / days, 0.0), 1 - 4 / days)
    return (1 + r) / (1 - r)


def standard_error(of: DailyMoments) -> float:
    """sqrt(memory (1 - skew SR + (kurtosis - 1) / 4 SR^2) / (D - 1)) (Mertens 2002; Bailey and
    Lopez de Prado, Journal of Risk 15, 2012; both without memory). 0 only where days take two
    values."""
    return math.sqrt(of.memory * max(_inflation(of), 0.0) / (of.days - 1))


def probabilistic_ratio(of: DailyMoments, benchmark: float = 0.0) -> float:
    """PSR = Phi((SR - benchmark) / standard error): probability that the true ratio is above
    `benchmark`, per day.
    """
    return _NORMAL.cdf((of.ratio - benchmark) / standard_error(of))


def best_of_noise(trials: int, variance: float) -> float:
    """SR0: the ratio per day that the best of `trials` independent trials without skill reaches on
    average.

    sqrt(variance) ((1 - g) Phi^-1(1 - 1/N) + g Phi^-1(1 - 1/(N e))), g = 0.5772 (Bailey and Lopez
    de Prado, Journal of Portfolio Management 40, 2014). variance: of the trials' ratios per day.
    One trial is not picked: 0. Raises ValueError where `trials` is below 1 or `variance` below 0.
    """
    if trials < 1 or not variance >= 0:
        raise ValueError(
            f"expected at least one trial and a variance of at least 0, got {trials} and {variance}"
        )
    if trials == 1:
        return 0.0
    return math.sqrt(variance) * (
        (1 - _EULER) * _NORMAL.inv_cdf(1 - 1 / trials)
        + _EULER * _NORMAL.inv_cdf(1 - 1 / (trials * math.e))
    )


def record_days(of: DailyMoments, benchmark: float = 0.0, confidence: float = LEVEL) -> float:
    """MinTRL = 1 + memory (1 - skew SR + (kurtosis - 1) / 4 SR^2) (z / (SR - benchmark))^2 (Bailey
    and Lopez de Prado 2012, without memory).

    Days after which a record with these moments excludes `benchmark`, one-sided. math.inf where SR
    <= benchmark.
    """
    if of.ratio <= benchmark:
        return math.inf
    return (
        1
        + of.memory
        * max(_inflation(of), 0.0)
        * (_NORMAL.inv_cdf(confidence) / (of.ratio - benchmark)) ** 2
    )


def sharpe(net: np.ndarray, days_per_year: float = 1.0, level: float = LEVEL) -> IntervalEstimate:
    """Sharpe ratio of float[D] daily net profit: per day, or annual with `days_per_year` = 252.

    The interval is SR +- t standard errors, with Student's t of D / memory - 1 degrees of freedom,
    at least one. n/a where no day differs; no interval below `MIN_DAYS` days.
    """
    of = moments(net)
    if of is None:
        return undefined(_undefined_ratio(len(net)))
    scale = math.sqrt(days_per_year)
    if why := too_few(of.days):
        return IntervalEstimate(scale * of.ratio, None, None, why)
    low, high = _ends(of, level)
    return IntervalEstimate(scale * of.ratio, scale * low, scale * high, None)


def psr(net: np.ndarray, benchmark: float = 0.0, level: float = LEVEL) -> IntervalEstimate:
    """Probabilistic Sharpe ratio of float[D]: probability that the true ratio is above `benchmark`,
    per day.

    Its interval holds the PSR of every true ratio in the interval of `sharpe`: how far the PSR of
    another record of the same length may lie. n/a below `MIN_DAYS` days, and where days take fewer
    than three values.
    """
    of = _usable(net)
    if isinstance(of, str):
        return undefined(of)
    low, high = (_NORMAL.cdf((end - benchmark) / standard_error(of)) for end in _ends(of, level))
    return IntervalEstimate(probabilistic_ratio(of, benchmark), low, high, None)


def dsr(
    net: np.ndarray, trials: int, variance: float | None, level: float = LEVEL
) -> IntervalEstimate:
    """Deflated Sharpe ratio of float[D]: the PSR against `best_of_noise(trials, variance)`.

    trials: configurations tried, this one included; count trials that resemble each other as fewer.
        variance: of their
    ratios per day (`trial_variance`); None where it is unknown, which is n/a for more than one
    trial.
    """
    if variance is None:
        if trials > 1:
            return undefined(f"the spread of the Sharpe ratios of {trials} trials is unknown")
        variance = 0.0
    return psr(net, best_of_noise(trials, variance), level)


def min_trl(
    net: np.ndarray, benchmark: float = 0.0, confidence: float = LEVEL, level: float = LEVEL
) -> IntervalEstimate:
    """Minimum track record length: days after which a record like float[D] excludes `benchmark` at
    `confidence`.

    Its interval is of the lengths at the ends of the interval of `sharpe`. Where that holds the
    benchmark there is no upper end, and `why` says so. n/a where the ratio is not above the
    benchmark: no length is enough.
    """
    of = _usable(net)
    if isinstance(of, str):
        return undefined(of)
    if of.ratio <= benchmark:
        return undefined("the Sharpe ratio is not above the benchmark, so no length is enough")
    low, high = (
        record_days(of._replace(ratio=end), benchmark, confidence)
        for end in reversed(_ends(of, level))
    )
    value = record_days(of, benchmark, confidence)
    if math.isinf(high):
        return IntervalEstimate(
            value, low, None, "no upper end: the true Sharpe ratio may be below the benchmark"
        )
    return IntervalEstimate(value, low, high, None)


def trial_variance(net: np.ndarray) -> float | None:
    """Variance over trials of the Sharpe ratio per day, of float[D, N]. Trials without variation
    are left out, as they have no ratio. None where fewer than two remain."""
    found = [
        of.ratio for column in finite(net, "[D, N]", 2).T if (of := moments(column)) is not None
    ]
    return float(np.var(found, ddof=1)) if len(found) > 1 else None


def _inflation(of: DailyMoments) -> float:
    return 1 - of.skew * of.ratio + (of.kurtosis - 1) / 4 * of.ratio**2


def _ends(of: DailyMoments, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    freedom = max(of.days / of.memory - 1, 1.0)
    half = _NORMAL.inv_cdf(1 - tail) * student_over_normal(tail, freedom) * standard_error(of)
    return of.ratio - half, of.ratio + half


def _undefined_ratio(days: int) -> str:
    return NO_VARIATION if days > 1 else "one day has no Sharpe ratio"


def _usable(net: np.ndarray) -> DailyMoments | str:
    """Moments that have a standard error, or why there are none."""
    days = len(finite(net, "[D]", 1))
    if days < MIN_DAYS:
        return f"it needs {MIN_DAYS} days, there are {days}"
    of = moments(net)
    if of is None:
        return NO_VARIATION
    # Days of two values can make the error vanish, up to rounding.
    return (
        of
        if _inflation(of) >= 1e-9
        else "the days take two values only, which gives no standard error"
    )
