"""Several advisors at once: what each was worth, how much their errors agree, and their log-odds
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

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.advisor.outcomes import Outcomes, no_outcomes, scored
from jaxtrade.advisor.table import AdviceTable, Delta, direction_of
from jaxtrade.config import AdvisorConfig
from jaxtrade.types import Array

PAIR = (
    "weight",
    "own",
    "other",
    "both",
)  # sums over common outcomes: w, w e_i, w e_j, w e_i e_j; e: 1 for an error


class PanelOutcomes(struct.PyTreeNode):
    """Scores of a panel of A advisors.

    each: `Outcomes` with leaves [A, ...]. pairs: float32[A, A, 4] by `PAIR`; entry (i, j) counts
        rows of i that came
    when j had advice about the same bar already, or with it.
    """

    each: Outcomes
    pairs: Array


def no_panel_outcomes(config: AdvisorConfig, bars: int) -> PanelOutcomes:
    """The initial outcomes of the advisors of `config`: no rows scored."""
    number = config.advisors
    each = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (number, *x.shape)), no_outcomes(config, bars)
    )
    return PanelOutcomes(each, jnp.zeros((number, number, len(PAIR)), jnp.float32))


def of_advisor(delta: Delta, advisor: Array, bars: int) -> Delta:
    """The rows of one advisor, with bars in [0, T); the others become padding (bar T). bars: T."""
    own = jnp.asarray(delta.bars) // bars == advisor
    return Delta(jnp.where(own, jnp.asarray(delta.bars) % bars, bars), delta.rows, delta.version)


def panel_scored(
    outcomes: PanelOutcomes,
    delta: Delta,
    table: AdviceTable,
    followed: Array,
    memory: Array | float,
) -> PanelOutcomes:
    """The outcomes after the rows of a delta have been scored.

    table: with the delta's rows in it. followed: int8[T], as for `outcomes.scored`. memory: as
        there, for each advisor.
    """
    bars, number = followed.shape[0], outcomes.pairs.shape[0]
    chex.assert_shape(table.version, (number * bars,))

    def one(each: Outcomes, pairs: Array, advisor: Array) -> tuple[Outcomes, Array]:
        own = of_advisor(delta, advisor, bars)
        after = scored(each, own, followed, memory)
        came = followed.at[jnp.asarray(own.bars)].get(mode="fill", fill_value=0).astype(jnp.int32)
        at = jnp.asarray(own.bars)[:, None] + bars * jnp.arange(number)  # [M, A] rows of the table
        at = jnp.where(jnp.asarray(own.bars)[:, None] < bars, at, number * bars)
        said = direction_of(table.rows.at[at].get(mode="fill", fill_value=0))
        wrong = (said != came[:, None]).astype(jnp.float32)
        mine = jnp.take(wrong, advisor, axis=1)[:, None]
        both = (came != 0)[:, None] & (said != 0) & (jnp.take(said, advisor, axis=1) != 0)[:, None]
        sums = jnp.stack(
            [jnp.ones_like(wrong), mine * jnp.ones_like(wrong), wrong, mine * wrong], axis=-1
        )
        # Rows that came together are met from both sides, and are counted half from each.
        together_now = table.version.at[at].get(mode="fill", fill_value=0) == jnp.asarray(
            delta.version
        )
        sums = sums * jnp.where(together_now, 0.5, 1.0)[..., None]
        fade = jnp.exp(
            jnp.log1p(-1.0 / jnp.asarray(memory, jnp.float32)) * (after.seen - each.seen)
        )
        return after, pairs * fade + jnp.where(both[..., None], sums, 0.0).sum(axis=0)

    return PanelOutcomes(*jax.vmap(one)(outcomes.each, outcomes.pairs, jnp.arange(number)))


def correlation(pairs: Array, prior: float) -> Array:
    """float32[A, A]: the correlation of the advisors' errors, in [0, 1]; 1 between an advisor and
    itself.

    pairs: float32[A, A, 4] by `PAIR`. prior: imagined common outcomes with common errors.
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
    """float32[]: the panel's log-odds, by the formula of this module.

    odds: float32[A], t_i d_i of each advisor; 0 without advice. common: float32[A, A] from
        `correlation`.
    """
    size = jnp.abs(odds)
    relative = jnp.minimum(1.0, size[None, :] / jnp.maximum(size[:, None], 1e-9))
    others = common * (1 - jnp.eye(odds.shape[0], dtype=common.dtype))
    return (odds / (1 + (others * relative).sum(axis=1))).sum()
