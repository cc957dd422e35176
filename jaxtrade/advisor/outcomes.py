"""Scores of advice: outcomes per range of confidence, and the trust that follows from them.

A hit is advice whose direction equals sign(close[t + h] - open[t + 1]), both prices from the bar's
own session. Moves within the cost of a round turn are not scored, and neither is advice to hold.
Each (bar, version) is scored once, when it becomes visible, however many environments act on it.
Scoring reads the bar's future, so only training sessions are scored. An evaluation uses the trust
that training ended with.

How much independent evidence scored advice holds: skill without the market's drift, and its
standard error.

Let f be the sign of the move that followed a piece of advice (+1 or -1), and a its direction. Two
things make advice without skill look good, and both are taken out here.

The market's drift. In a sample that rises, "always long" is right more often than not. The skill is
therefore the balanced hit rate

    q = (P(a = f | f = +1) + P(a = f | f = -1)) / 2  =  1/2 + mean(u) / (2 var(f)),
    u = (a - mean a) (f - mean f),

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

Several advisors at once: what each was worth, how much their errors agree, and their log-odds
put together.

Each advisor i of a panel has outcomes and trust t_i of its own. If their errors were independent,
their log-odds would add up. They seldom are: two models of one family err together, and the second
adds little. Let r_ij be the measured correlation of the errors of i and j, and d_i the direction of
i's advice (0 without advice). The panel's log-odds are

    sum over i of  t_i d_i / (1 + sum over j != i of  r_ij min(1, |t_j d_j| / |t_i d_i|)).

Advisors of equal skill whose errors have one correlation r thus weigh 1 / (1 + (A - 1) r) each, the
weight of the optimal linear rule (Fisher's discriminant, as in Clemen and Winkler, Operations
Research 33, 1985). Two copies of one advisor count once. A weak advisor takes little from a strong
one that it resembles: it is counted by its own strength.

r_ij lies in [0, 1]. A negative correlation counts as 0: no panel is worth more than independent
advisors. `prior` imagined outcomes with common errors are added, so that advisors without common
outcomes count as one.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtr, ndtri

from jaxtrade.advisor.table import AdviceTable, Delta, direction_of, entries
from jaxtrade.config import AdvisorConfig
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


class SkillByConfidence(NamedTuple):
    """What scored advice shows, by range of confidence; float32[B] each.

    rate: balanced hit rate q, 0.5 without data.
    effective: number of independent outcomes that the data are worth, at most (sum of w)^2 / (sum
        of w^2), the effective number of weighted outcomes (Kish 1965).
    errors: (q - 1/2) in standard errors.
    windows: disjoint windows' worth of data.
    """

    rate: Array
    effective: Array
    errors: Array
    windows: Array


def block_bars(horizon: int) -> int:
    """Return the bars per block: the horizon, and at least 30."""
    return max(horizon, _LEAST_BLOCK)


def skill_of(blocks: Array) -> SkillByConfidence:
    """Compute the skill that block sums show.

    Args:
        blocks: float32[N, B, 5] by `SUMS`, in the order of time.
    """
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
    return SkillByConfidence(rate, effective, errors, jnp.where(known, windows, 0.0))


def is_evidence(skill: SkillByConfidence, abstain: float) -> Array:
    """Return whether the skill is a reason to trust, or to distrust (bool[B]).

    Data of fewer than four disjoint windows are no evidence.

    Args:
        abstain: standard errors, of a normal distribution. They state the chance of a false alarm
            over all ranges together: the chance is shared by the ranges with data (Bonferroni), and
            the bound is widened to Student's t.
    """
    if abstain == 0:
        return skill.windows > 0
    ranges = jnp.maximum((skill.windows > 0).sum(), 1)
    normal = -ndtri(ndtr(-jnp.float32(abstain)) / ranges)
    bound = student(normal, jnp.maximum(skill.windows - 1, 1.0))
    return (jnp.abs(skill.errors) > bound) & (skill.windows >= _LEAST_WINDOWS)


def student(normal: Array, freedom: Array) -> Array:
    """Return the quantile of Student's t at the probability of a normal quantile.

    The formula is Abramowitz and Stegun 26.7.5. From three degrees of freedom on, and for the
    normal quantile 2.5, it is within a few percent.

    Args:
        normal, freedom: float32[...].
    """
    z, v = normal, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _windows(values: Array) -> Array:
    """Sum over all windows of `WINDOW` neighbouring blocks (float32[N + 3, B]).

    Windows that reach over an end are included.
    """
    number, edge = values.shape[0], WINDOW - 1
    padded = jnp.pad(values, ((edge, edge), (0, 0)))
    return sum((padded[i : i + number + edge] for i in range(1, WINDOW)), padded[: number + edge])


class Outcomes(struct.PyTreeNode):
    """Running scores by range of confidence, float32[B] each. Older rows count exponentially less.

    count: rows scored.
    hits: rows whose direction was right.
    brier: sum of squared differences between confidence and hit (1 or 0).
    seen: int32[], all rows ever scored, without decay.
    blocks: float32[N, B, 5] by `SUMS`, the same rows summed over blocks of `block` bars (static),
        for `advisor.evidence=blocks`; None for `answers`.
    """

    count: Array
    hits: Array
    brier: Array
    seen: Array
    blocks: Array | None = None
    block: int = struct.field(pytree_node=False, default=0)


def no_outcomes(config: AdvisorConfig, bars: int) -> Outcomes:
    """Return the initial outcomes over T = `bars` bars: no rows scored."""
    zero = jnp.zeros(config.bins, jnp.float32)
    found = Outcomes(zero, zero, zero, jnp.int32(0))
    if config.evidence == "answers":
        return found
    block = block_bars(config.horizon)
    blocks = jnp.zeros((-(-bars // block), config.bins, len(SUMS)), jnp.float32)
    return found.replace(blocks=blocks, block=block)


def what_followed(
    open_: np.ndarray,
    close: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    horizon: int,
    cost: int,
) -> np.ndarray:
    """Return the sign of the price move over each bar's horizon (int8[T]).

    It is +1 where the price rose by more than `cost` ticks, -1 where it fell, else 0.

    Args:
        open_, close: int32[T] ticks.
        first, last: int[N], the first and last decision bar of each session; the flat bar `last +
            1` is the session's last bar.
        horizon: bars h >= 1.
        cost: ticks of a round turn.

    Returns:
        sign(close[t + h] - open[t + 1]) where t is a decision bar, t + h is in the same session and
        the move exceeds `cost`; 0 elsewhere.
    """
    signs = np.zeros(len(close), np.int8)
    for begin, end in zip(first, last, strict=True):
        bars = np.arange(begin, min(int(end) + 1 - horizon, int(end)) + 1)
        if len(bars):
            move = close[bars + horizon].astype(np.int64) - open_[bars + 1]
            signs[bars] = np.where(np.abs(move) > cost, np.sign(move), 0)
    return signs


def bin_of(confidence: Array, bins: int) -> Array:
    """Return the index of the confidence among `bins` equal ranges of [0, 1] (int32[...])."""
    return jnp.clip((confidence * bins).astype(jnp.int32), 0, bins - 1)


def score_delta(
    outcomes: Outcomes, delta: Delta, followed: Array, memory: Array | float
) -> Outcomes:
    """Score a delta's rows and add them to the outcomes.

    Args:
        followed: int8[T] from `what_followed`, 0 outside the training sessions.
        memory: rows that the decay remembers; each scored row multiplies all earlier ones by 1 - 1
            / memory.
    """
    bins, bars, rows = outcomes.count.shape[0], jnp.asarray(delta.bars), jnp.asarray(delta.rows)
    advised = direction_of(rows)
    came = entries(followed, bars).astype(jnp.int32)
    counts = (advised != 0) & (came != 0)
    confidence = rows[:, 3]
    hit = counts & (advised == came)
    later = (
        jnp.cumsum(counts[::-1])[::-1] - counts
    )  # scored rows of this delta that come after each row
    # Within a delta, each row decays by the scored rows after it, as if the rows had been scored
    # one by one.
    weight = jnp.where(counts, jnp.exp(log_decay(memory) * later), 0.0)
    one_hot = jax.nn.one_hot(bin_of(confidence, bins), bins, dtype=jnp.float32)
    number = counts.sum(dtype=jnp.int32)
    fade = jnp.exp(log_decay(memory) * number)
    error = jnp.square(confidence - hit)

    def add(total: Array, values: Array) -> Array:
        return total * fade + (one_hot * (weight * values)[:, None]).sum(axis=0)

    found = Outcomes(
        add(outcomes.count, jnp.ones_like(weight)),
        add(outcomes.hits, hit.astype(jnp.float32)),
        add(outcomes.brier, error),
        outcomes.seen + number,
    )
    if outcomes.blocks is None:
        return found
    values = jnp.stack(
        [jnp.ones_like(weight), weight, advised, came, advised * came], axis=-1
    )  # by `SUMS`
    part = one_hot[:, :, None] * (weight[:, None] * values)[:, None, :]
    fades = jnp.stack([fade, fade**2, fade, fade, fade])
    blocks = (outcomes.blocks * fades).at[bars // outcomes.block].add(part, mode="drop")
    return found.replace(blocks=blocks, block=outcomes.block)


def log_decay(memory: Array | float) -> Array:
    """Return the log of what one more row leaves of the weight of an earlier one (float32[...])."""
    return jnp.log1p(-1.0 / jnp.asarray(memory, jnp.float32))


def hit_rate(outcomes: Outcomes) -> Array:
    """Return the share of hits over all ranges; NaN where nothing was scored (float32[])."""
    return outcomes.hits.sum() / outcomes.count.sum()


def independent(outcomes: Outcomes) -> Array:
    """Return the number of independent outcomes that the scored rows are worth (float32[]).

    It is over all ranges. With `advisor.evidence=answers` every row counts as independent.
    """
    return (
        outcomes.count.sum()
        if outcomes.blocks is None
        else skill_of(outcomes.blocks).effective.sum()
    )


def log_odds(outcomes: Outcomes, prior: float, abstain: float, cap: float) -> Array:
    """Return the trust (float32[B]): log-odds of the measured skill, clipped to [-cap, cap].

    It is 0 where no skill is shown.

    With blocks, the skill is the balanced hit rate q of n independent outcomes (`skill_of`). It is
    drawn towards one half by `prior` imagined outcomes: 1/2 + (q - 1/2) n / (n + prior).
    `is_evidence` says whether it counts.

    Without blocks (`advisor.evidence=answers`, the rule of earlier versions), every row counts as
    independent: the rate is (hits + prior / 2) / (count + prior). It counts beyond `abstain` * 0.5
    / sqrt(count + prior) from one half.
    """
    if outcomes.blocks is None:
        count = outcomes.count + prior
        rate = (outcomes.hits + prior / 2) / count
        counts = jnp.abs(rate - 0.5) > abstain * 0.5 / jnp.sqrt(count)
    else:
        skill = skill_of(outcomes.blocks)
        rate = 0.5 + (skill.rate - 0.5) * skill.effective / (skill.effective + prior)
        counts = is_evidence(skill, abstain)
    odds = jnp.log(rate) - jnp.log1p(-rate)
    return jnp.where(counts, jnp.clip(odds, -cap, cap), 0.0)


PAIR = (
    "weight",
    "own",
    "other",
    "both",
)  # sums over common outcomes: w, w e_i, w e_j, w e_i e_j; e: 1 for an error


class PanelOutcomes(struct.PyTreeNode):
    """Scores of a panel of A advisors.

    each: `Outcomes` with leaves [A, ...].
    pairs: float32[A, A, 4] by `PAIR`; entry (i, j) counts rows of i that came when j had advice
        about the same bar already, or with it.
    """

    each: Outcomes
    pairs: Array


def first_outcomes(config: AdvisorConfig, bars: int) -> Outcomes | PanelOutcomes:
    """Return the initial outcomes of the advisors of `config`, over T = `bars` bars.

    No rows are scored.
    """
    one, number = no_outcomes(config, bars), config.advisors
    if number == 1:
        return one
    each = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), one)
    return PanelOutcomes(each, jnp.zeros((number, number, len(PAIR)), jnp.float32))


def of_advisor(delta: Delta, advisor: Array, bars: int) -> Delta:
    """Select the rows of one advisor, with bars in [0, T); the others become padding (bar T).

    Args:
        bars: T.
    """
    each = jnp.asarray(delta.bars)
    return Delta(jnp.where(each // bars == advisor, each % bars, bars), delta.rows, delta.version)


def panel_scored(
    outcomes: PanelOutcomes,
    delta: Delta,
    table: AdviceTable,
    followed: Array,
    memory: Array | float,
) -> PanelOutcomes:
    """Score the rows of a delta and add them to the outcomes.

    Args:
        table: with the delta's rows in it.
        followed: int8[T], as for `outcomes.score_delta`.
        memory: as there, for each advisor.
    """
    bars, number = followed.shape[0], outcomes.pairs.shape[0]
    chex.assert_shape(table.version, (number * bars,))

    def one(each: Outcomes, pairs: Array, advisor: Array) -> tuple[Outcomes, Array]:
        own = of_advisor(delta, advisor, bars)
        after = score_delta(each, own, followed, memory)
        mine = jnp.asarray(own.bars)
        came = entries(followed, mine).astype(jnp.int32)
        at = mine[:, None] + bars * jnp.arange(number)  # [M, A] rows of the table
        at = jnp.where(mine[:, None] < bars, at, number * bars)
        said = direction_of(entries(table.rows, at))
        wrong = (said != came[:, None]).astype(jnp.float32)
        erred = jnp.take(wrong, advisor, axis=1)[:, None]
        both = (came != 0)[:, None] & (said != 0) & (jnp.take(said, advisor, axis=1) != 0)[:, None]
        sums = jnp.stack(
            [jnp.ones_like(wrong), erred * jnp.ones_like(wrong), wrong, erred * wrong], axis=-1
        )
        # Rows that came together are met from both sides, and are counted half from each.
        together_now = entries(table.version, at) == jnp.asarray(delta.version)
        sums = sums * jnp.where(together_now, 0.5, 1.0)[..., None]
        fade = jnp.exp(log_decay(memory) * (after.seen - each.seen))
        return after, pairs * fade + jnp.where(both[..., None], sums, 0.0).sum(axis=0)

    return PanelOutcomes(*jax.vmap(one)(outcomes.each, outcomes.pairs, jnp.arange(number)))


def correlation(pairs: Array, prior: float) -> Array:
    """Return the correlation of the advisors' errors, in [0, 1] (float32[A, A]).

    It is 1 between an advisor and itself.

    Args:
        pairs: float32[A, A, 4] by `PAIR`.
        prior: imagined common outcomes with common errors.
    """
    weight, own, other, both = jnp.moveaxis(
        pairs + jnp.swapaxes(pairs, 0, 1)[..., jnp.array([0, 2, 1, 3])], -1, 0
    )
    n = jnp.maximum(weight, 1e-9)
    first, second = own / n, other / n
    deviation = jnp.sqrt(jnp.maximum(first * (1 - first) * second * (1 - second), 1e-9))
    measured = jnp.clip((both / n - first * second) / deviation, 0.0, 1.0)
    # Without the diagonal, where every row was counted twice and the correlation is 1 by
    # definition.
    drawn = (measured * weight + prior) / (weight + prior)
    return jnp.where(jnp.eye(pairs.shape[0], dtype=bool), 1.0, drawn)


def together(odds: Array, common: Array) -> Array:
    """Return the panel's log-odds, by the formula of this module (float32[]).

    Args:
        odds: float32[A], t_i d_i of each advisor; 0 without advice.
        common: float32[A, A] from `correlation`.
    """
    size = jnp.abs(odds)
    relative = jnp.minimum(1.0, size[None, :] / jnp.maximum(size[:, None], 1e-9))
    others = common * (1 - jnp.eye(odds.shape[0], dtype=common.dtype))
    return (odds / (1 + (others * relative).sum(axis=1))).sum()
