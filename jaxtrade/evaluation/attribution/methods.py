"""Attribution at given decisions: by the gradient of the margin, and by permutation. For policies
without a memory.

The margin of a decision is the largest legal logit (of a Q-learner: Q value) less the second
largest. The policy changes its action where the margin passes 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.evaluation.attribution.groups import SlotGroup
from jaxtrade.networks.distributions import ILLEGAL
from jaxtrade.types import Array, PyTree

# (logits float32[A], mask bool[A]) of one decision: observation float32[D], and what else it is
# made on.
Logits = Callable[[Array, PyTree], tuple[Array, Array]]
Choose = Callable[[np.ndarray], np.ndarray]  # observations float32[B, D] -> actions int[B]


def margin(logits: Array, mask: Array) -> Array:
    """float32[]: the largest legal logit less the second largest; 0 where a single action is
    legal.
    """
    two, _ = jax.lax.top_k(jnp.where(mask, logits, ILLEGAL), 2)
    return jnp.where(mask.sum() >= 2, two[0] - two[1], 0.0)


def gradient_sizes(
    logits: Logits, observations: Array, others: PyTree, deviation: np.ndarray
) -> np.ndarray:
    """float64[D]: the mean over decisions of |d margin / d slot| times the slot's standard
    deviation.

    It is the change of the margin, to first order, when the slot moves by its standard deviation.

    Args:
        observations: float32[B, D], raw. others: [B, ...], what else each decision is made on.
        deviation: float64[D], in the units of the slots.
    """
    slopes = jax.jit(
        jax.vmap(jax.grad(lambda observation, other: margin(*logits(observation, other))))
    )
    return np.abs(np.asarray(slopes(observations, others), np.float64)).mean(axis=0) * deviation


def gradient_shares(sizes: np.ndarray, groups: Sequence[SlotGroup]) -> list[float] | None:
    """The share of each group in the sum of `sizes` over all slots. None if all of them are 0."""
    total = sizes.sum()
    return [float(sizes[group.slots].sum() / total) for group in groups] if total > 0.0 else None


def permuted_within(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """int64[B]: a random order of rows that keeps every row in its stratum. strata: int[B]."""
    rows = np.argsort(strata, kind="stable")
    order = np.empty_like(rows)
    order[rows] = np.lexsort((rng.random(len(strata)), strata))
    return order


def changed_shares(
    choose: Choose,
    observations: np.ndarray,
    groups: Sequence[SlotGroup],
    strata: np.ndarray,
    seed: int,
    repeats: int,
) -> list[float]:
    """The share of decisions whose action changes when a group's values come from another decision
    of its stratum.

    The slots of a group are moved together, all others stay. Breiman (2001), "Random forests",
    permutes over all rows; here only within a stratum, because the time of day alone tells much
    about a bar.

    Args:
        observations: float32[B, D], raw. strata: int[B].
        repeats: permutations over which the share is the mean. They are the same for every group.
    """
    before = choose(observations)
    orders = [
        permuted_within(strata, np.random.default_rng([seed, repeat])) for repeat in range(repeats)
    ]

    def share(group: SlotGroup) -> float:
        changed = []
        for order in orders:
            moved = observations.copy()
            moved[:, group.slots] = observations[order][:, group.slots]
            changed.append(np.mean(choose(moved) != before))
        return float(np.mean(changed))

    return [share(group) for group in groups]
