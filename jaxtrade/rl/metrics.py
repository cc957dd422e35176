"""Parts of an update that every learner shares: observation statistics, learning rates, and
metrics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.advisor.outcomes import Outcomes, PanelOutcomes, hit_rate, independent
from jaxtrade.advisor.table import AdviceSeen, AdviceView
from jaxtrade.config import EnvConfig
from jaxtrade.env.state import ObservationRef
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.acting import update_statistics
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening.fusion import AdviceState, Trust, side_after
from jaxtrade.rl.rollout import Tally, closing_figures, count_illegal, episode_figures
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree, Transition


def new_statistics(ctx: Context, stats: RunningStats, refs: PyTree, params: PyTree) -> RunningStats:
    """The statistics after a rollout, if the configuration normalises observations.

    They change only after the gradient steps: acting and learning must normalise in the same way.
    """
    if not ctx.settings.normalise_observations:
        return stats
    return update_statistics(ctx.env, stats, refs, params, ctx.reduce, ctx.form.statistics_rows)


def learning_rates(
    ctx: Context, parameters: PyTree, learning_rate: Array, fraction: Array, adapter_freeze: Array
) -> PyTree:
    """The learning rate of each number of `parameters`: float32[], or arrays of their shapes.

    With an adapter, all other parameters are frozen (rate 0) until the fraction `adapter_freeze` of
    the run.
    """
    if not ctx.settings.adapter:
        return learning_rate
    base = jnp.where(fraction < adapter_freeze, 0.0, learning_rate)
    return {
        name: jax.tree.map(
            lambda x, rate=learning_rate if name == "adapter" else base: jnp.broadcast_to(
                rate, x.shape
            ),
            part,
        )
        for name, part in parameters.items()
    }


def tally_metrics(
    ctx: Context, tally: Tally, seen: Transition, params: PyTree
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Metrics of the episodes that ended in a rollout, and those of `ctx.summary` (none without
    one).

    seen: the transitions of the rollout. params: the parameters of the environment in this update.
    """
    episodes = episode_figures(tally.episodes, ctx.reduce)
    if ctx.summary is None:
        return episodes, {}
    steps = ctx.steps_per_update
    sums = jax.tree.map(lambda x: ctx.reduce.sum(x, 0, x.dtype), tally.summary)
    closing = closing_figures(ctx.summary, seen, params, ctx.reduce)
    return episodes, joined(dict(ctx.summary.figures(sums, steps)), closing)


def action_metrics(ctx: Context, seen: Transition) -> dict[str, Array]:
    """The number of illegal actions in a rollout, and the share of each action (float32[A])."""
    chosen = seen.action[..., None] == jnp.arange(ctx.env.num_actions)
    return {
        "illegal": count_illegal(ctx.env, seen, ctx.reduce),
        "action_share": ctx.reduce.mean(chosen, (0, 1)),
    }


def advice_metrics(
    ctx: Context, seen: Transition, need: Array, policy: Policy, advice: AdviceState | None
) -> dict[str, Array]:
    """Metrics of the advice in a rollout, and `visits`; none without a fusion. need: float32[T, N],
    as of `visits`.
    """
    if ctx.fusion is None:
        return {}
    assert advice is not None
    return figures(
        ctx.fusion.env, seen, seen.extras.overridden, policy.fusion, advice.outcomes, ctx.reduce
    ) | {"visits": visits(seen.ref, need, advice.view, ctx.reduce)}


def joined(metrics: dict[str, Array], *others: dict[str, Array]) -> dict[str, Array]:
    """Merge metrics. Raises ValueError if a name occurs twice."""
    for other in others:
        if clash := metrics.keys() & other.keys():
            raise ValueError(
                f"summarise or stage returned metrics that are reported already: {sorted(clash)}"
            )
        metrics = metrics | other
    return metrics


def advised(
    ctx: Context, policy: Policy, params: PyTree, inputs: AdviceState | None
) -> tuple[Policy, PyTree]:
    """The policy with its trust in the advice of this update, and the environment's parameters with
    the advice.

    Raises ValueError if `inputs` are given but there is no fusion that uses them.
    """
    if ctx.fusion is None:
        if jax.tree.leaves(inputs):
            raise ValueError(
                f"the learner takes no inputs without a fusion, got {jax.tree.structure(inputs)}"
            )
        return policy, params
    assert inputs is not None
    return policy.replace(fusion=ctx.fusion.trust(inputs.outcomes)), params.replace(
        advice=inputs.view
    )


# --- What a rollout says about advice: the need for it by bar, and the metrics of a run


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
