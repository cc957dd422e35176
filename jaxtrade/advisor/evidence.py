"""How much independent evidence scored advice holds: skill without the market's drift, and its
standard error.

Let f be the sign of the move that followed a piece of advice (+1 or -1), and a its direction. Two
things make advice without skill look good, and both are taken out here.

The market's drift. In a sample that rises, "always long" is right more often than not. The skill is
therefore the balanced hit rate

    q = (P(a = f | f = +1) + P(a = f | f = -1)) / 2  =  1/2 + mean(u) / (2 var(f)),    u = (a - mean a) (f - mean f),

which is 1/2 for advice that is independent of f, whatever its bias and the market's. It is the
measure of market timing of Henriksson and Merton (Journal of Business 54, 1981).

Dependence. Outcomes of neighbouring bars share most of their moves, and opinions persist, so n
outcomes are worth fewer than n independent ones. u is summed over blocks of bars that are at least
a horizon long, and the variance of its sum is estimated from windows of `WINDOW` neighbouring
blocks that overlap,

    V = sum over windows of (sum over the window of (u - mean u))^2 / WINDOW,

the estimator of Newey and West (Econometrica 55, 1987) with Bartlett's weights. V is raised by 1 /
(1 - 1 / (3 WINDOW)), because the weights miss that share of the variance of moves that overlap over
one block; by n / (n - 1) for the n disjoint windows' worth of data, because the mean is estimated;
and to no less than the variance of independent outcomes. How many standard errors are a reason to
trust then follows from Student's t with n - 1 degrees of freedom.

Outcomes fade: each has a weight w. All sums over outcomes are weighted by it.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from jaxtrade.types import Array

WINDOW = 4  # blocks of a window
SUMS = (
    "weight",
    "square",
    "advised",
    "followed",
    "both",
)  # of a block: sums of w, w^2, w a, w f and w a f
_LEAST_BLOCK = 30  # bars; shorter blocks would only cost memory
_LEAST_WINDOWS = 4.0  # disjoint windows' worth of data below which nothing can be said


class Skill(NamedTuple):
    """What scored advice shows, by range of confidence; float32[B] each.

    rate: balanced hit rate q, 0.5 without data. effective: number of independent outcomes that the
        data are worth, at
    most (sum of w)^2 / (sum of w^2), the effective number of weighted outcomes (Kish 1965). errors:
    (q - 1/2) in standard errors. windows: disjoint windows' worth of data.
    """

    rate: Array
    effective: Array
    errors: Array
    windows: Array


def block_bars(horizon: int) -> int:
    """Bars per block: the horizon, and at least 30."""
    return max(horizon, _LEAST_BLOCK)


def skill_of(blocks: Array) -> Skill:
    """The skill that block sums show. blocks: float32[N, B, 5] by `SUMS`, in the order of time."""
    chex.assert_rank(blocks, 3)
    weight, square, advised, followed, both = (blocks[..., i] for i in range(len(SUMS)))
    number = weight.sum(axis=0)
    n = jnp.maximum(number, 1e-9)
    bias, drift = advised.sum(axis=0) / n, followed.sum(axis=0) / n
    products = (
        both - bias * followed - drift * advised + bias * drift * weight
    )  # sums of u by block
    total = products.sum(axis=0)
    spread, of_market = (1 - bias**2) * (1 - drift**2), 1 - drift**2

    around = _windows(products - total / n * weight)
    held = _windows(weight)
    windows = WINDOW * n**2 / jnp.maximum((held**2).sum(axis=0), 1e-9)
    small = windows / jnp.maximum(windows - 1, 1e-9)
    variance = (around**2).sum(axis=0) / WINDOW * small / (1 - 1 / (3 * WINDOW))
    variance = jnp.maximum(variance, square.sum(axis=0) * spread)

    known = (number > 0) & (
        spread > 1e-6
    )  # one direction only, of the advice or of the market, shows no skill
    effective = jnp.where(known, n**2 * spread / jnp.maximum(variance, 1e-9), 0.0)
    rate = 0.5 + jnp.where(known, total / n / (2 * jnp.maximum(of_market, 1e-6)), 0.0)
    errors = jnp.where(known, total / jnp.sqrt(jnp.maximum(variance, 1e-9)), 0.0)
    return Skill(rate, effective, errors, jnp.where(known, windows, 0.0))


def is_evidence(skill: Skill, abstain: float) -> Array:
    """bool[B]: whether the skill is a reason to trust, or to distrust.

    abstain: standard errors, of a normal distribution. They state the chance of a false alarm over
        all ranges together:
    the chance is shared by the ranges with data (Bonferroni), and the bound is widened to Student's
    t. Data of fewer than four disjoint windows are no evidence.
    """
    if abstain == 0:
        return skill.windows > 0
    ranges = jnp.maximum((skill.windows > 0).sum(), 1)
    normal = -ndtri(ndtr(-jnp.float32(abstain)) / ranges)
    bound = student(normal, jnp.maximum(skill.windows - 1, 1.0))
    return (jnp.abs(skill.errors) > bound) & (skill.windows >= _LEAST_WINDOWS)


def student(normal: Array, freedom: Array) -> Array:
    """The quantile of Student's t at the probability of a normal quantile (Abramowitz and Stegun
    26.7.5).

    normal, freedom: float32[...]. From three degrees of freedom on, and for the normal quantile
        2.5, it is within a few
    percent.
    """
    z, v = normal, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _windows(values: Array) -> Array:
    """float32[N + 3, B]: sums over all windows of `WINDOW` neighbouring blocks, also those that
    reach over an end.
    """
    number, edge = values.shape[0], WINDOW - 1
    padded = jnp.pad(values, ((edge, edge), (0, 0)))
    return sum((padded[i : i + number + edge] for i in range(1, WINDOW)), padded[: number + edge])
