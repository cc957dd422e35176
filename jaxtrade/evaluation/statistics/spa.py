"""Hansen's test for superior predictive ability (SPA): does the best of several policies beat the
baselines, or did it only have many tries?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.blocks import block_count, block_days, day_lots
from jaxtrade.evaluation.statistics.estimate import finite
from jaxtrade.evaluation.statistics.intervals import MIN_DAYS

SPA_DRAWS = 2000


class SuperiorAbility(NamedTuple):
    """p-values of the null hypothesis that no policy beats the baseline; small is good for the
    policies.

    consistent: Hansen's, the one to report. lower, upper: his bounds, lower <= consistent <= upper;
        `upper` is that of
    White's reality check, of studentised figures. why: the reason where they are None, else None.
    """

    consistent: float | None
    lower: float | None
    upper: float | None
    why: str | None


def spa(
    policies: np.ndarray,
    baselines: np.ndarray,
    *,
    block: int | None = None,
    draws: int = SPA_DRAWS,
    seed: int = 0,
    names: Sequence[str] = (),
) -> SuperiorAbility:
    """Test of the null hypothesis that no policy earns more per day than the baseline.

    policies: float[D] or [D, K], baselines: float[D] or [D, B], dollars by day. With one baseline
        this is the test of
    Hansen (Journal of Business & Economic Statistics 23, 2005). With several, the null hypothesis
    is that some baseline is beaten by no policy; each baseline is tested and the largest p counts
    (intersection-union test: no correction is needed, because every baseline must be beaten). One
    pooled test of all differences would be wrong here: it rejects as soon as the worst baseline is
    beaten.

    For the differences d_k of policies and a baseline: T = max(0, max_k sqrt(D) mean(d_k) / w_k),
    w_k the standard deviation of sqrt(D) mean(d_k) under circular blocks of `block` days, by
    default `block_days(D)`. p = (1 + number of draws with T* >= T) / (draws + 1), so it is never 0.
    T* is of resampled means less g: for `upper` g = mean(d_k); for `lower` g = max(mean(d_k), 0);
    for `consistent` g = mean(d_k), but 0 where mean(d_k) is below
    -w_k sqrt(2 log log D / D), because a policy that bad can be left out. A policy that never differs from a baseline
    cannot beat it and is left out.

    One step more than Hansen's: w_k is an estimate, so the terms of T have the tails of Student's
    t, while T* has nearly normal ones. Each term of T is therefore taken to the normal figure of
    the same tail probability, t having the number of blocks less 1 as degrees of freedom. Without
    it, the test of many equal policies rejects too often where days are few.

    n/a below `MIN_DAYS` days, and where a difference does not vary. names: of the baselines, for
    that reason. Raises ValueError where the shapes do not fit or a figure is not finite.
    """
    policies, baselines = (finite(_columns(net), "[D, K]", 2) for net in (policies, baselines))
    days = len(policies)
    if len(baselines) != days:
        raise ValueError(f"the days must be the same, got {days} and {len(baselines)} of them")
    if days < MIN_DAYS:
        return SuperiorAbility(None, None, None, f"it needs {MIN_DAYS} days, there are {days}")
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
                None,
                None,
                None,
                f"against {which}, a policy's difference does not vary from day to day",
            )
        found.append(_against_one(difference, drawn, block_count(days, block)))
    lower, consistent, upper = (float(p) for p in np.max(found, axis=0))
    return SuperiorAbility(consistent, lower, upper, None)


def _against_one(difference: np.ndarray, drawn: np.ndarray, blocks: float) -> np.ndarray:
    """float64[3]: lower, consistent and upper p of float64[D, K] differences; drawn: float64[draws,
    K], their means.
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
