"""One update of PPO: a rollout, several epochs of gradient steps over it, and metrics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrade.networks.normalize import RunningStats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl import losses
from jaxtrade.rl.flat import Unchanged, layout_of, map_parts
from jaxtrade.rl.listening.figures import figures, visits
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.minibatches import minibatch_rows
from jaxtrade.rl.ppo.act import ready
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.form import CPU
from jaxtrade.rl.ppo.loss import Batch, Objective, gradient, rows_of
from jaxtrade.rl.ppo.network import packed, unpacked
from jaxtrade.rl.ppo.rollout import collect
from jaxtrade.rl.ppo.state import HParams, TrainState, policy_of
from jaxtrade.rl.rollout import count_illegal, episode_figures
from jaxtrade.rl.schedules import clipped_adam, linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.symbols import followed, weighted
from jaxtrade.types import Array, Env, PyTree, Transition


def update_statistics(env: Env, stats: RunningStats, refs: PyTree, params: PyTree, reduce: Reduce = LOCAL,
                      rows: int = CPU.statistics_rows) -> RunningStats:
    """Add the observations of a rollout to the statistics. refs: [T, N, ...].

    The scan rebuilds the observations of a few time steps at a time, about `rows` of them. All of them at once would
    take far more memory.
    """
    steps, envs = jax.tree.leaves(refs)[0].shape[:2]
    together = next(n for n in range(max(rows // envs, 1), 0, -1) if steps % n == 0)
    blocks = jax.tree.map(lambda x: x.reshape(steps // together, together * envs, *x.shape[2:]), refs)

    def add(stats: RunningStats, block: PyTree) -> tuple[RunningStats, None]:
        return merge(stats, jax.vmap(env.observe, (0, None))(block, params), reduce=reduce), None

    return jax.lax.scan(add, stats, blocks)[0]


def learning_rates(ppo: PPO, parameters: PyTree, learning_rate: Array, fraction: Array, hparams: HParams) -> PyTree:
    """The learning rate of each number of `parameters`: float32[], or arrays of their shapes.

    With an adapter, all other parameters are frozen (rate 0) until the fraction `adapter_freeze` of the run.
    """
    if not ppo.settings.adapter:
        return learning_rate
    base = jnp.where(fraction < hparams.adapter_freeze, 0.0, learning_rate)
    return {name: jax.tree.map(lambda x, rate=learning_rate if name == "adapter" else base:
                               jnp.broadcast_to(rate, x.shape), part) for name, part in parameters.items()}


def learn(ppo: PPO, state: TrainState, objective: Objective, batch: Batch, key: Array, learning_rate: Array,
          fraction: Array) -> tuple[TrainState, dict[str, Array]]:
    """Run all epochs over one rollout -> (state, diagnostics of every gradient step, [epochs, minibatches]).

    Once the approximate KL of a minibatch exceeds `target_kl` (> 0), no further step of this update is applied. The
    steps work on the parameters and moments as `ppo.form` says: as vectors (`rl.flat`), or as they are.
    """
    config, rollout, hparams = ppo.config, ppo.rollout, state.hparams
    layout = layout_of(packed(ppo, state.params)) if ppo.form.vectors else Unchanged()
    rows = rows_of(batch)

    def flat(tree: PyTree) -> PyTree:
        return layout.flat(packed(ppo, tree))

    def restored(old: PyTree, flattened: PyTree) -> PyTree:
        return unpacked(ppo, layout.tree(flattened), old)

    rates = learning_rates(ppo, state.params, learning_rate, fraction, hparams)
    rates = flat(rates) if ppo.settings.adapter else rates
    advantages = batch.advantage.reshape(-1)
    names: list[str] = []  # of the diagnostics, known when `minibatch` is traced

    def minibatch(carry: tuple[PyTree, PyTree, Array], now: tuple[Array, Array]) -> tuple[Any, Array]:
        parameters, opt_state, stopped = carry
        loss, terms, grads = gradient(ppo, objective, layout.tree(parameters), rows, *now)
        grads = layout.flat(grads)
        grad_norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        stopped |= (hparams.target_kl > 0.0) & (terms["approx_kl"] > hparams.target_kl)
        # A step that is not finite is not applied. The metric `finite` stops the run, and its parameters stay usable.
        applied = finite & ~stopped
        direction, new_opt_state = clipped_adam(grads, grad_norm, opt_state, hparams.max_grad_norm)
        moved = optax.tree.sub(parameters, optax.tree.mul(jax.tree.broadcast(rates, direction), direction))
        parameters, opt_state = jax.tree.map(lambda new, old: jnp.where(applied, new, old),
                                             (moved, new_opt_state), (parameters, opt_state))
        figures = terms | {"grad_norm": grad_norm, "finite": finite, "applied": applied}
        names[:] = figures
        # One row instead of an array for each figure: a device stores each array by a program of its own.
        return (parameters, opt_state, stopped), jnp.stack([x.astype(jnp.float32) for x in figures.values()])

    def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
        picked = minibatch_rows(key, rollout.num_steps, rollout.num_envs, rollout.shards, ppo.num_minibatches,
                                ppo.sequence, ppo.reduce.offset(rollout.shards))
        chosen = advantages[picked]
        chosen = losses.standardised(chosen, ppo.reduce) if config.normalise_advantages else chosen
        return jax.lax.scan(minibatch, carry, (picked, chosen))

    start = (flat(state.params), map_parts(flat, state.opt_state, state.params), jnp.bool_(False))
    (parameters, opt_state, _), history = jax.lax.scan(epoch, start, jax.random.split(key, config.num_epochs))
    learnt = state.replace(params=restored(state.params, parameters),
                           opt_state=map_parts(restored, state.opt_state, state.params, opt_state))
    return learnt, dict(zip(names, jnp.moveaxis(history, -1, 0), strict=True))


def step_metrics(history: dict[str, Array]) -> dict[str, Array]:
    """Metrics of the gradient steps. history: float32[epochs, minibatches] by name; 1 is True."""
    applied = history["applied"]
    metrics = {
        "finite": (history["finite"] > 0).all(),
        "ratio_error": history["ratio_error"][0, 0],
        "applied": applied.mean(),
    }
    for name, values in history.items():  # means over the gradient steps that were applied
        if name not in metrics:
            metrics[name] = jnp.where(applied > 0, values, 0.0).sum() / jnp.maximum(applied.sum(), 1.0)
    return metrics


def rollout_metrics(ppo: PPO, seen: Transition, batch: Batch) -> dict[str, Array]:
    """Metrics of the rollout: explained variance, illegal actions, and the share of each action (float32[A])."""
    chosen = seen.action[..., None] == jnp.arange(ppo.env.num_actions)
    return {
        "explained_variance": losses.explained_variance(batch.value, batch.target, ppo.reduce),
        "illegal": count_illegal(ppo.env, seen, ppo.reduce),
        "action_share": ppo.reduce.mean(chosen, (0, 1)),
    }


def advice_metrics(ppo: PPO, seen: Transition, policy: Policy, advice: AdviceState) -> dict[str, Array]:
    """Metrics of the advice in a rollout, and `visits`. Only for a learner with a fusion."""
    assert ppo.fusion is not None
    return figures(ppo.fusion.env, seen, seen.extras.overridden, policy.fusion, advice.outcomes, ppo.reduce) | {
        "visits": visits(seen.ref, -seen.extras.log_prob, advice.view, ppo.reduce)}


def summary_metrics(ppo: PPO, sums: PyTree) -> dict[str, Array]:
    """Metrics of `PPO.summary`; none without one. sums: over the steps of the rollout, [N, ...]."""
    if ppo.summary is None:
        return {}
    steps = ppo.reduce.count(ppo.rollout.num_envs) * ppo.rollout.num_steps
    return dict(ppo.summary.figures(jax.tree.map(lambda x: ppo.reduce.sum(x, 0, x.dtype), sums), steps))


def joined(metrics: dict[str, Array], *others: dict[str, Array]) -> dict[str, Array]:
    """Merge metrics. Raises ValueError if a name occurs twice."""
    for other in others:
        if clash := metrics.keys() & other.keys():
            raise ValueError(f"summarise or stage returned metrics that are reported already: {sorted(clash)}")
        metrics = metrics | other
    return metrics


def update(ppo: PPO, state: TrainState, params: PyTree, inputs: AdviceState | None = None
           ) -> tuple[TrainState, dict[str, Array]]:
    """`Algorithm.update`. Raises ValueError if `inputs` are given but there is no fusion that uses them."""
    if ppo.fusion is None and jax.tree.leaves(inputs):
        raise ValueError(f"PPO takes no inputs without a fusion, got {jax.tree.structure(inputs)}")
    hparams, policy = state.hparams, policy_of(state)
    if ppo.fusion is not None:
        assert inputs is not None
        params = params.replace(advice=inputs.view)
        policy = policy.replace(fusion=ppo.fusion.trust(inputs.outcomes))
    key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    ent_coef = linear(hparams.ent_coef, hparams.ent_coef_end, fraction)
    staged: dict[str, Array] = {}
    if ppo.stage is not None:
        params, staged = ppo.stage(params, fraction)

    params = weighted(params, state.errors, ppo.sampler)
    policy = ready(ppo, policy)
    collected, seen, batch, tally = collect(ppo, state, policy, params, key_rollout)
    objective = Objective(policy, params, hparams, ent_coef)
    learnt, history = learn(ppo, collected, objective, batch, key_epochs, learning_rate, fraction)
    # The statistics change only after the gradient steps: acting and learning must normalise in the same way.
    stats = state.normaliser
    if ppo.settings.normalise_observations:
        stats = update_statistics(ppo.env, stats, seen.ref, params, ppo.reduce, ppo.form.statistics_rows)
    errors = followed(state.errors, jnp.abs(batch.advantage), seen.ref, params, ppo.sampler, ppo.reduce)
    new = learnt.replace(normaliser=stats, update=state.update + 1, errors=errors)
    metrics = episode_figures(tally.episodes, ppo.reduce) | step_metrics(history)
    metrics |= rollout_metrics(ppo, seen, batch) | {
        "learning_rate": learning_rate,
        "ent_coef": ent_coef,
        "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
    }
    if errors is not None:
        metrics["symbol_share"] = params.symbol_weights
    if ppo.fusion is not None:
        assert inputs is not None
        metrics |= advice_metrics(ppo, seen, policy, inputs)
    return new, joined(metrics, staged, summary_metrics(ppo, tally.summary))
