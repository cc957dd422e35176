"""Scores of advice: outcomes per range of confidence, and the trust that follows from them.

A hit is advice whose direction equals sign(close[t + h] - open[t + 1]), both prices from the bar's
own session. Moves within the cost of a round turn are not scored, and neither is advice to hold.
Each (bar, version) is scored once, when it becomes visible, however many environments act on it.
Scoring reads the bar's future, so only training sessions are scored. An evaluation uses the trust
that training ended with.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.advisor.evidence import SUMS, block_bars, is_evidence, skill_of
from jaxtrade.advisor.table import Delta, direction_of
from jaxtrade.config import AdvisorConfig
from jaxtrade.types import Array


class Outcomes(struct.PyTreeNode):
    """Running scores by range of confidence, float32[B] each. Older rows count exponentially less.

    count: rows scored. hits: rows whose direction was right. brier: sum of squared differences
        between confidence and
    hit (1 or 0). seen: int32[], all rows ever scored, without decay. blocks: float32[N, B, 5] by
    `evidence.SUMS`, the same rows summed over blocks of `block` bars (static), for
    `advisor.evidence=blocks`; None for `answers`.
    """

    count: Array
    hits: Array
    brier: Array
    seen: Array
    blocks: Array | None = None
    block: int = struct.field(pytree_node=False, default=0)


def no_outcomes(config: AdvisorConfig, bars: int) -> Outcomes:
    """The initial outcomes over T = `bars` bars: no rows scored."""
    zero = jnp.zeros(config.bins, jnp.float32)
    if config.evidence == "answers":
        return Outcomes(zero, zero, zero, jnp.int32(0))
    block = block_bars(config.horizon)
    blocks = jnp.zeros((-(-bars // block), config.bins, len(SUMS)), jnp.float32)
    return Outcomes(zero, zero, zero, jnp.int32(0), blocks, block)


def what_followed(
    open_: np.ndarray,
    close: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    horizon: int,
    cost: int,
) -> np.ndarray:
    """int8[T]: +1 where the price rose by more than `cost` ticks over a bar's horizon, -1 where it
    fell, else 0.

    Args:
        open_, close: int32[T] ticks. first, last: int[N], the first and last decision bar of each
            session; the flat bar `last + 1` is the session's last bar. horizon: bars h >= 1. cost:
            ticks of a round turn.
    Returns:
        sign(close[t + h] - open[t + 1]) where t is a decision bar, t + h is in the same session and
        the move exceeds
        `cost`; 0 elsewhere.
    """
    signs = np.zeros(len(close), np.int8)
    for begin, end in zip(first, last, strict=True):
        bars = np.arange(begin, min(int(end) + 1 - horizon, int(end)) + 1)
        if len(bars):
            move = close[bars + horizon].astype(np.int64) - open_[bars + 1]
            signs[bars] = np.where(np.abs(move) > cost, np.sign(move), 0)
    return signs


def bin_of(confidence: Array, bins: int) -> Array:
    """int32[...]: the index of the confidence among `bins` equal ranges of [0, 1]."""
    return jnp.clip((confidence * bins).astype(jnp.int32), 0, bins - 1)


def scored(outcomes: Outcomes, delta: Delta, followed: Array, memory: Array | float) -> Outcomes:
    """The outcomes after a delta's rows have been scored.

    followed: int8[T] from `what_followed`, 0 outside the training sessions. memory: rows that the
        decay remembers; each
    scored row multiplies all earlier ones by 1 - 1 / memory.
    """
    bins, bars = outcomes.count.shape[0], delta.bars
    advised = direction_of(jnp.asarray(delta.rows))
    came = followed.at[jnp.asarray(bars)].get(mode="fill", fill_value=0).astype(jnp.int32)
    counts = (advised != 0) & (came != 0)
    confidence = jnp.asarray(delta.rows)[:, 3]
    hit = counts & (advised == came)
    later = (
        jnp.cumsum(counts[::-1])[::-1] - counts
    )  # scored rows of this delta that come after each row
    keep = jnp.exp(jnp.log1p(-1.0 / jnp.asarray(memory, jnp.float32)) * later)
    # Within a delta, each row decays by the scored rows after it, as if the rows had been scored
    # one by one.
    weight = jnp.where(counts, keep, 0.0)
    one_hot = jax.nn.one_hot(bin_of(confidence, bins), bins, dtype=jnp.float32)
    number = counts.sum(dtype=jnp.int32)
    fade = jnp.exp(jnp.log1p(-1.0 / jnp.asarray(memory, jnp.float32)) * number)
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
    blocks = (
        (outcomes.blocks * fades).at[jnp.asarray(bars) // outcomes.block].add(part, mode="drop")
    )
    return found.replace(blocks=blocks, block=outcomes.block)


def hit_rate(outcomes: Outcomes) -> Array:
    """float32[]: share of hits over all ranges; NaN where nothing was scored."""
    return outcomes.hits.sum() / outcomes.count.sum()


def independent(outcomes: Outcomes) -> Array:
    """float32[]: the number of independent outcomes that the scored rows are worth, over all
    ranges. With
    `advisor.evidence=answers` every row counts as independent."""
    return (
        outcomes.count.sum()
        if outcomes.blocks is None
        else skill_of(outcomes.blocks).effective.sum()
    )


def log_odds(outcomes: Outcomes, prior: float, abstain: float, cap: float) -> Array:
    """float32[B]: the trust, log-odds of the measured skill, clipped to [-cap, cap]; 0 where no
    skill is shown.

    With blocks, the skill is the balanced hit rate q of n independent outcomes
    (`evidence.skill_of`). It is drawn towards one half by `prior` imagined outcomes: 1/2 + (q -
    1/2) n / (n + prior). `evidence.is_evidence` says whether it counts.

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
