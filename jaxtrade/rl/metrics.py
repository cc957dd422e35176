"""Parts of an update that every learner shares: observation statistics, learning rates, and
metrics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.collecting import Tally
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening.figures import figures, visits
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.observing import update_statistics
from jaxtrade.rl.rollout import closing_figures, count_illegal, episode_figures
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
