"""What a rollout says about advice: the need for it by bar, and the metrics of a run."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.advisor.outcomes import Outcomes, PanelOutcomes, hit_rate, independent
from jaxtrade.advisor.table import AdviceSeen, AdviceView
from jaxtrade.config import EnvConfig
from jaxtrade.env.reference import ObservationRef
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Trust, side_after
from jaxtrade.types import Array, Transition


def visits(refs: ObservationRef, need: Array, view: AdviceView, reduce: Reduce = LOCAL) -> Array:
    """float32[T bars]: the need for advice about each bar in a rollout. It is the sum of `need`
    over the steps that read this bar's row of the table.

    Args:
        refs: references of the rollout, [T, N, ...].
        need: float32[T, N]. PPO uses -log_prob of the action taken. Its expectation is the policy's
            entropy, so bars at which the policy is undecided count most.
    """

    # A source of -1 (no row) becomes the largest uint32. It lies outside the table, so
    # `mode="drop"` drops it.
    def added(row: Array, need: Array) -> Array:
        bar = view.source[row].astype(jnp.uint32)
        return jnp.zeros(view.source.shape[0], jnp.float32).at[bar].add(need, mode="drop")

    return reduce.sum_of_parts(reduce.alone(added)(refs.row[..., 0], need))


def figures(
    env: EnvConfig,
    seen: Transition,
    overridden: Array,
    trust: Trust,
    outcomes: Outcomes | PanelOutcomes,
    reduce: Reduce = LOCAL,
) -> dict[str, Array]:
    """Metrics about advice in a rollout [T, N], each float32[]. A figure without data is NaN.

    overridden: bool[T, N], True if the same random number would have drawn another action without
        advice.

    advice_share: share of steps with advice. agreement: share of steps with a direction in which
        the action leads to
    the advised side. override: share of overridden steps. hit_rate, trust and brier are over all
    scored advice, with older advice discounted: share of hits, mean log-odds, and Brier score (mean
    squared error of the confidence).
    advice_scored: number of pieces of advice scored so far. advice_independent: how many
        independent outcomes they are
    worth. Of a panel, `agreement` and `advice_share` are of its consensus, the others are over all
    advisors, and each but `override` is also given for every advisor, as `trust/0`.
    """
    advice, side = seen.ref.aux, side_after(env, seen.action, jnp.sign(seen.ref.legs[..., 0, 0]))
    found = followed_figures(advice, side, reduce) | {
        "override": reduce.mean(overridden.astype(jnp.float32))
    }
    if not isinstance(outcomes, PanelOutcomes):
        return found | score_figures(trust.log_odds, outcomes)
    found |= score_figures(trust.log_odds, outcomes.each)
    for i in range(trust.log_odds.shape[0]):
        own = AdviceSeen(advice.each.values[..., i, :], advice.each.version[..., i])
        each = score_figures(trust.log_odds[i], jax.tree.map(lambda x, i=i: x[i], outcomes.each))
        found |= {
            f"{name}/{i}": value
            for name, value in (each | followed_figures(own, side, reduce)).items()
        }
    return found


def followed_figures(advice: AdviceSeen, side: Array, reduce: Reduce) -> dict[str, Array]:
    """`advice_share` and `agreement` of `figures`. advice: [T, N]. side: int32[T, N], held after
    the action.
    """
    directed = advice.direction != 0
    return {
        "advice_share": reduce.mean(advice.valid.astype(jnp.float32)),
        "agreement": (
            reduce.sum(directed & (side == advice.direction), dtype=jnp.float32)
            / reduce.sum(directed, dtype=jnp.float32)
        ),
    }


def score_figures(log_odds: Array, outcomes: Outcomes) -> dict[str, Array]:
    """The figures of `figures` about scored advice, over all advisors. log_odds: float32[B], or [A,
    B] of a panel.
    """
    count = outcomes.count.sum()
    worth = independent(outcomes) if log_odds.ndim == 1 else jax.vmap(independent)(outcomes).sum()
    return {
        "hit_rate": hit_rate(outcomes),
        "trust": (log_odds * outcomes.count).sum() / count,
        "brier": outcomes.brier.sum() / count,
        "advice_scored": outcomes.seen.sum().astype(jnp.float32),
        "advice_independent": worth,
    }
