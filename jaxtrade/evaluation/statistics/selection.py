"""Sharpe ratios, and whether the best of several tries is more than luck."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.resampling import (
    LEVEL,
    MIN_DAYS,
    TAIL,
    IntervalEstimate,
    block_count,
    block_days,
    day_lots,
    finite,
    student_over_normal,
    too_few,
)
from jaxtrade.text import several, state_shortfall

_NORMAL = NormalDist()
_EULER = 0.5772156649015329  # Euler and Mascheroni's constant
NO_VARIATION = "every day earns the same, so the Sharpe ratio is undefined"


class DailyMoments(NamedTuple):
    """What the formulas need of a record.

    ratio: Sharpe ratio per day.
    days: its length.
    skew: third standardised moment.
    kurtosis: fourth, not in excess: a normal distribution has 3.
    memory: variance of the ratio of such days over that of independent ones (`autocorrelation_inflation`).
    """

    ratio: float
    days: int
    skew: float = 0.0
    kurtosis: float = 3.0
    memory: float = 1.0


def moments(net: np.ndarray) -> DailyMoments | None:
    """Compute the moments of float[D]; None where there is one day or no variation.

    The ratio uses the deviation over D - 1, skew and kurtosis the moments over D.
    """
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
        autocorrelation_inflation(scaled, ratio),
    )


def autocorrelation_inflation(scaled: np.ndarray, ratio: float) -> float:
    """Return by how much autocorrelation of the days raises the variance of the Sharpe ratio.

    It is the variance over that of independent days, at least 1: (1 + r) / (1 - r), the long-run
    variance of a first-order autoregression. r is the first autocorrelation of each day's part in
    the ratio, z - SR/2 (z^2 - 1) (Lo, Financial Analysts Journal 58, 2002), plus (1 + 3 r) / D, by
    which a short record shows too little (Kendall, Biometrika 41, 1954). Where r is negative the
    independent variance stays: an interval is never narrower for it. 1 below `MIN_DAYS` days.

    scaled: float[D], z, with mean 0 and deviation 1.
    """
    days, part = len(scaled), scaled - ratio / 2 * (scaled**2 - 1)
    whole = float((part**2).sum())
    if days < MIN_DAYS or whole < 1e-9:
        return 1.0
    measured = float((part[1:] * part[:-1]).sum()) / whole
    r = min(max(measured + (1 + 3 * measured) / days, 0.0), 1 - 4 / days)
    return (1 + r) / (1 - r)


def standard_error(of: DailyMoments) -> float:
    """Return the standard error of the ratio per day.

    sqrt(memory (1 - skew SR + (kurtosis - 1) / 4 SR^2) / (D - 1)) (Mertens 2002; Bailey and Lopez
    de Prado, Journal of Risk 15, 2012; both without memory). 0 only where days take two values.
    """
    return math.sqrt(of.memory * max(_inflation(of), 0.0) / (of.days - 1))


def probabilistic_ratio(of: DailyMoments, benchmark: float = 0.0) -> float:
    """Return the probability that the true ratio is above `benchmark`, per day.

    PSR = Phi((SR - benchmark) / standard error).
    """
    return _NORMAL.cdf((of.ratio - benchmark) / standard_error(of))


def best_of_noise(trials: int, variance: float) -> float:
    """Return the ratio per day that the best of `trials` trials without skill has on average.

    The trials are independent. SR0 = sqrt(variance) ((1 - g) Phi^-1(1 - 1/N) + g Phi^-1(1 - 1/(N
    e))), g = 0.5772 (Bailey and Lopez de Prado, Journal of Portfolio Management 40, 2014). One
    trial is not picked: 0. Raises ValueError where `trials` is below 1 or `variance` below 0.

    variance: of the trials' ratios per day.
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


def min_track_record_days(of: DailyMoments, benchmark: float = 0.0) -> float:
    """Return the days after which a record with these moments excludes `benchmark`, one-sided.

    MinTRL = 1 + memory (1 - skew SR + (kurtosis - 1) / 4 SR^2) (z / (SR - benchmark))^2 (Bailey and
    Lopez de Prado 2012, without memory). math.inf where SR <= benchmark.
    """
    if of.ratio <= benchmark:
        return math.inf
    return (
        1
        + of.memory
        * max(_inflation(of), 0.0)
        * (_NORMAL.inv_cdf(LEVEL) / (of.ratio - benchmark)) ** 2
    )


def sharpe(net: np.ndarray, days_per_year: float = 1.0) -> IntervalEstimate:
    """Estimate the Sharpe ratio of float[D] daily net profit.

    It is per day, or annual with `days_per_year` = 252. The interval is SR +- t standard errors,
    with Student's t of D / memory - 1 degrees of freedom, at least one. n/a where no day differs;
    no interval below `MIN_DAYS` days.
    """
    of = moments(net)
    if not of:
        return IntervalEstimate(why=NO_VARIATION if len(net) > 1 else "one day has no Sharpe ratio")
    scale = math.sqrt(days_per_year)
    if why := too_few(of.days):
        return IntervalEstimate(scale * of.ratio, why=why)
    low, high = _ends(of)
    return IntervalEstimate(scale * of.ratio, scale * low, scale * high)


def psr(net: np.ndarray, benchmark: float = 0.0) -> IntervalEstimate:
    """Estimate the probabilistic Sharpe ratio of float[D].

    It is the probability that the true ratio is above `benchmark`, per day. Its interval holds the
    PSR of every true ratio in the interval of `sharpe`: how far the PSR of another record of the
    same length may lie. n/a below `MIN_DAYS` days, and where days take fewer than three values.
    """
    of = _usable(net)
    if isinstance(of, str):
        return IntervalEstimate(why=of)
    low, high = (_NORMAL.cdf((end - benchmark) / standard_error(of)) for end in _ends(of))
    return IntervalEstimate(probabilistic_ratio(of, benchmark), low, high)


def dsr(net: np.ndarray, trials: int, variance: float | None) -> IntervalEstimate:
    """Estimate the deflated Sharpe ratio of float[D].

    It is the PSR against `best_of_noise(trials, variance)`.

    Args:
        trials: configurations tried, this one included; count trials that resemble each other
            as fewer.
        variance: of their ratios per day (`trial_variance`); None where it is unknown, which is n/a
            for more than one trial.
    """
    if variance is None:
        if trials > 1:
            return IntervalEstimate(
                why=f"the spread of the Sharpe ratios of {trials} trials is unknown"
            )
        variance = 0.0
    return psr(net, best_of_noise(trials, variance))


def min_trl(net: np.ndarray) -> IntervalEstimate:
    """Estimate the minimum track record length.

    It is the number of days after which a record like float[D] excludes a ratio of 0 at the
    confidence LEVEL. Its interval is of the lengths at the ends of the interval of `sharpe`. Where
    that holds 0 there is no upper end, and `why` says so. n/a where the ratio is not above 0: no
    length is enough.
    """
    of = _usable(net)
    if isinstance(of, str):
        return IntervalEstimate(why=of)
    if of.ratio <= 0:
        return IntervalEstimate(
            why="the Sharpe ratio is not above the benchmark, so no length is enough"
        )
    low, high = (min_track_record_days(of._replace(ratio=end)) for end in reversed(_ends(of)))
    value = min_track_record_days(of)
    if math.isinf(high):
        return IntervalEstimate(
            value, low, None, "no upper end: the true Sharpe ratio may be below the benchmark"
        )
    return IntervalEstimate(value, low, high)


def trial_variance(net: np.ndarray) -> float | None:
    """Return the variance over trials of the Sharpe ratio per day, of float[D, N].

    Trials without variation are left out, as they have no ratio. None where fewer than two remain.
    """
    found = [of.ratio for column in finite(net, "[D, N]", 2).T if (of := moments(column))]
    return float(np.var(found, ddof=1)) if len(found) > 1 else None


def _inflation(of: DailyMoments) -> float:
    return 1 - of.skew * of.ratio + (of.kurtosis - 1) / 4 * of.ratio**2


def _ends(of: DailyMoments) -> tuple[float, float]:
    freedom = max(of.days / of.memory - 1, 1.0)
    half = _NORMAL.inv_cdf(1 - TAIL) * student_over_normal(freedom) * standard_error(of)
    return of.ratio - half, of.ratio + half


def _usable(net: np.ndarray) -> DailyMoments | str:
    """Return moments that have a standard error, or say why there are none."""
    days = len(finite(net, "[D]", 1))
    if days < MIN_DAYS:
        return f"it {state_shortfall(MIN_DAYS, 'day', days)}"
    of = moments(net)
    if not of:
        return NO_VARIATION
    # Days of two values can make the error vanish, up to rounding.
    return (
        of
        if _inflation(of) >= 1e-9
        else "the days take two values only, which gives no standard error"
    )


MIN_TRIALS = 10  # of fewer trials the rank of one says next to nothing
NULL_DRAWS = 200
_NULL_WAYS = (
    1000  # ways of halving the days that a null matrix tries: all of S <= 12, a sample above
)
_FLAT = 1e-12  # a half with a smaller share of its trial's spread does not vary, up to rounding


class Overfitting(NamedTuple):
    """The probability of backtest overfitting (PBO), and its range for trials without skill.

    value: PBO, from 0 to 1.
    null_low, null_high: 5 and 95 % points of the PBO of trials without skill (`pbo` says which).
    why: the reason where they are None, else None.

    Within the band, the trials do not differ from noise. PBO has no interval: its ways of halving
    share their days.
    """

    value: float | None = None
    null_low: float | None = None
    null_high: float | None = None
    why: str | None = None


def pbo(net: np.ndarray, splits: int = 16, draws: int = NULL_DRAWS, seed: int = 0) -> Overfitting:
    """Estimate the probability of backtest overfitting (PBO).

    It is how often the trial that is best in one half of the days is below the median of trials in
    the other half. The days are cut into `splits` blocks of consecutive days, the first ones a day
    longer where they do not divide. Every way of taking half of the blocks is in-sample once, the
    rest is out-of-sample. PBO is the share of ways in which the trial with the highest Sharpe ratio
    in-sample has a rank below (N + 1) / 2 out-of-sample (Bailey, Borwein, Lopez de Prado and Zhu,
    Journal of Computational Finance 20, 2017). A half in which a trial earns the same every day has
    ratio 0, so never to trade is no skill. With odd N, the median trial is not below the median, so
    noise gives (N - 1) / 2N on average.

    The null band is simulated with `draws` matrices from `seed`: each day less its trial's mean,
    and all trials of a day mirrored together with probability 1/2. That keeps the shape, the tails,
    and how trials resemble each other.

    n/a below `MIN_TRIALS` trials, below two days a block, and where no trial varies. Raises
    ValueError where `splits` is odd or below 2, or a value is not finite.

    net: float[D, N], daily net profit of N trials: days down, trials across.
    """
    net = finite(net, "[D, N]", 2)
    days, trials = net.shape
    if splits < 2 or splits % 2:
        raise ValueError(
            f"the days are cut into an even number of blocks, at least 2, got {splits}"
        )
    if why := _make_undefined(net, splits):
        return Overfitting(why=why)
    ways = halves(splits)
    value = below_median(net, splits, ways)
    generator = np.random.default_rng([seed, days, trials, splits])
    if len(ways) > _NULL_WAYS:
        ways = ways[np.sort(generator.choice(len(ways), _NULL_WAYS, replace=False))]
    centred = net - net.mean(axis=0)
    null = [
        below_median(centred * generator.choice([-1.0, 1.0], (days, 1)), splits, ways)
        for _ in range(draws)
    ]
    low, high = np.quantile(null, [0.05, 0.95])
    return Overfitting(value, float(low), float(high))


def halves(splits: int) -> np.ndarray:
    """Enumerate the ways of taking half of the blocks (float64[C(S, S / 2), S]).

    Each row is one way, with 1 where a block is in-sample.
    """
    chosen = np.array(list(itertools.combinations(range(splits), splits // 2)))
    inside = np.zeros((len(chosen), splits))
    np.put_along_axis(inside, chosen, 1.0, axis=1)
    return inside


def below_median(net: np.ndarray, splits: int, ways: np.ndarray) -> float:
    """Return the share of `ways` with the best in-sample trial below the median out-of-sample.

    All halves at once, by matrix products: a half's ratio needs only its number of days, its sum
    and its sum of squares. Deviations from the trial's mean over all days are summed, so that no
    digits cancel.

    ways: float64[W, S].
    """
    mean = net.mean(axis=0)
    centred = net - mean
    starts = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(len(net)), splits))])[
        :-1
    ]
    sums = np.add.reduceat(centred, starts, axis=0)
    squares = np.add.reduceat(centred**2, starts, axis=0)
    counts = np.diff([*starts, len(net)]).astype(np.float64)
    inside = _ratios(ways, counts, sums, squares, mean)
    outside = _ratios(1 - ways, counts, sums, squares, mean)
    rows = np.arange(len(ways))
    best = outside[rows, inside.argmax(axis=1)][:, None]
    rank = (outside < best).sum(axis=1) + (
        (outside == best).sum(axis=1) + 1
    ) / 2  # ties share their mean rank
    return float((rank < (net.shape[1] + 1) / 2).mean())


def _ratios(
    half: np.ndarray, counts: np.ndarray, sums: np.ndarray, squares: np.ndarray, mean: np.ndarray
) -> np.ndarray:
    """Return the Sharpe ratio per day of each trial in each half (float64[W, N]).

    It is 0 where the trial earns the same on all days of the half.
    """
    days = (half @ counts)[:, None]
    total = half @ sums
    variance = (half @ squares - total**2 / days) / (days - 1)
    varies = variance > _FLAT * squares.sum(axis=0) / counts.sum()
    return np.where(varies, (mean + total / days) / np.sqrt(np.where(varies, variance, 1.0)), 0.0)


def _make_undefined(net: np.ndarray, splits: int) -> str | None:
    days, trials = net.shape
    lacks = [
        (least, noun, found)
        for least, noun, found in ((MIN_TRIALS, "trial", trials), (2 * splits, "day", days))
        if found < least
    ]
    if len(lacks) > 1:
        wanted = " and ".join(several(least, noun) for least, noun, _ in lacks)
        return f"it needs {wanted}, there are {' and '.join(str(found) for *_, found in lacks)}"
    if lacks:
        return f"it {state_shortfall(*lacks[0])}"
    return "no trial varies from day to day" if np.ptp(net, axis=0).max() == 0 else None


SPA_DRAWS = 2000


class SuperiorAbility(NamedTuple):
    """p-values of the null hypothesis that no policy beats the baseline.

    Small is good for the policies.

    consistent: Hansen's, the one to report.
    lower, upper: his bounds, lower <= consistent <= upper; `upper` is that of White's reality
        check, of studentised values.
    why: the reason where they are None, else None.
    """

    consistent: float | None = None
    lower: float | None = None
    upper: float | None = None
    why: str | None = None


def spa(
    policies: np.ndarray,
    baselines: np.ndarray,
    *,
    block: int | None = None,
    draws: int = SPA_DRAWS,
    seed: int = 0,
    names: Sequence[str] = (),
) -> SuperiorAbility:
    """Test the null hypothesis that no policy earns more per day than the baseline.

    With one baseline this is the test of Hansen (Journal of Business & Economic Statistics 23,
    2005). With several, the null hypothesis is that some baseline is beaten by no policy; each
    baseline is tested and the largest p counts (intersection-union test: no correction is needed,
    because every baseline must be beaten). One pooled test of all differences would be wrong here:
    it rejects as soon as the worst baseline is beaten.

    For the differences d_k of policies and a baseline: T = max(0, max_k sqrt(D) mean(d_k) / w_k),
    w_k the standard deviation of sqrt(D) mean(d_k) under circular blocks of `block` days, by
    default `block_days(D)`. p = (1 + number of draws with T* >= T) / (draws + 1), so it is never 0.
    T* is of resampled means less g: for `upper` g = mean(d_k); for `lower` g = max(mean(d_k), 0);
    for `consistent` g = mean(d_k), but 0 where mean(d_k) is below -w_k sqrt(2 log log D / D),
    because a policy that bad can be left out. A policy that never differs from a baseline cannot
    beat it and is left out.

    One step more than Hansen's: w_k is an estimate, so the terms of T have the tails of Student's
    t, while T* has nearly normal ones. Each term of T is therefore taken to the normal value of the
    same tail probability, t having the number of blocks less 1 as degrees of freedom. Without it,
    the test of many equal policies rejects too often where days are few.

    n/a below `MIN_DAYS` days, and where a difference does not vary. Raises ValueError where the
    shapes do not fit or a value is not finite.

    Args:
        policies: float[D] or [D, K], dollars by day.
        baselines: float[D] or [D, B], dollars by day.
        names: of the baselines, for the reason of n/a.
    """
    policies, baselines = (finite(_columns(net), "[D, K]", 2) for net in (policies, baselines))
    days = len(policies)
    if len(baselines) != days:
        raise ValueError(f"the days must be the same, got {days} and {len(baselines)} of them")
    if days < MIN_DAYS:
        return SuperiorAbility(why=f"it {state_shortfall(MIN_DAYS, 'day', days)}")
    block = block_days(days) if block is None else block
    if not 1 <= block <= days:
        raise ValueError(f"blocks of {block} days out of {days}")
    lots = day_lots(np.random.default_rng([seed, days, block]), days, block, draws)
    found = []
    for position, baseline in enumerate(baselines.T):
        difference = policies - baseline[:, None]
        difference = difference[:, (difference != 0).any(axis=0)]
        drawn = lots @ difference
        # Equal on all days, a fixed amount apart, or cycles that every block holds whole: up to
        # rounding, no variation.
        if (
            not difference.size
            or (drawn.std(axis=0) <= 1e-9 * np.abs(difference).max(axis=0)).any()
        ):
            which = names[position] if names else f"baseline {position + 1}"
            return SuperiorAbility(
                why=f"against {which}, a policy's difference does not vary from day to day",
            )
        found.append(_against_one(difference, drawn, block_count(days, block)))
    lower, consistent, upper = (float(p) for p in np.max(found, axis=0))
    return SuperiorAbility(consistent, lower, upper)


def _against_one(difference: np.ndarray, drawn: np.ndarray, blocks: float) -> np.ndarray:
    """Return lower, consistent and upper p of float64[D, K] differences (float64[3]).

    drawn: float64[draws, K], their means.
    """
    from scipy.special import ndtri, stdtr  # takes a moment to load

    days = len(difference)
    mean = difference.mean(axis=0)
    error = drawn.std(axis=0)  # w / sqrt(D)
    student = (
        mean / error * math.sqrt((blocks - 1) / blocks)
    )  # `blocks` units have too small a spread by this factor
    statistic = max(0.0, float(-ndtri(stdtr(blocks - 1, -student.max()))))
    near = mean >= -error * math.sqrt(2 * math.log(math.log(days)))
    centres = np.stack([np.maximum(mean, 0.0), np.where(near, mean, 0.0), mean])
    highest = np.maximum(0.0, ((drawn - centres[:, None]) / error).max(axis=-1))
    return (1 + (highest >= statistic).sum(axis=-1)) / (len(drawn) + 1)


def _columns(net: np.ndarray) -> np.ndarray:
    net = np.asarray(net, np.float64)
    return net[:, None] if net.ndim == 1 else net
