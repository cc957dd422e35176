"""Epochs of gradient steps over one rollout, for every learner that passes over its rollout in
minibatches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrade.rl.context import Context
from jaxtrade.rl.flat import Unchanged, layout_of, map_parts
from jaxtrade.rl.minibatches import minibatch_rows
from jaxtrade.rl.schedules import clipped_adam
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree

# (parameters, what `prepared` made of the minibatch's row numbers) -> loss float32[], diagnostics,
# gradient, over the rows of this part
Gradient = Callable[..., tuple[Array, dict[str, Array], PyTree]]


def learn(
    ctx: Context,
    state: TrainState,
    gradient: Gradient,
    prepared: Callable[[Array], tuple[Array, ...]],
    key: Array,
    rates: PyTree,
    stops: Callable[[dict[str, Array]], Array] | None = None,
    largest: tuple[str, ...] = (),
) -> tuple[TrainState, dict[str, Array]]:
    """Run all epochs over one rollout -> (state, diagnostics of every gradient step, [epochs,
    minibatches]).

    The steps work on the parameters and moments as `ctx.form` says: as vectors (`rl.flat`), or as
    they are.

    Args:
        gradient: of the loss over one minibatch; its further arguments are what `prepared` returns.
        prepared: row numbers of an epoch int32[minibatches, B] -> arrays [minibatches, ...], such
            as the row numbers themselves.
        rates: learning rate float32[], or one for each number of the parameters (a tree like them).
        stops: diagnostics -> bool[]: once True, no further step of this update is applied. None:
            never.
        largest: names of diagnostics of which the largest of all parts counts; of the others it is
            the mean.
    """
    rollout, hparams = ctx.rollout, state.hparams
    layout = layout_of(ctx.packed(state.params)) if ctx.form.vectors else Unchanged()

    def flat(tree: PyTree) -> PyTree:
        return layout.flat(ctx.packed(tree))

    def restored(old: PyTree, flattened: PyTree) -> PyTree:
        return ctx.unpacked(layout.tree(flattened), old)

    rates = flat(rates) if isinstance(rates, dict) else rates
    names: list[str] = []  # of the diagnostics, known when `minibatch` is traced

    def minibatch(carry: tuple[PyTree, PyTree, Array], now: tuple[Array, ...]) -> tuple[Any, Array]:
        parameters, opt_state, stopped = carry
        loss, terms, grads = ctx.reduce.alone(gradient)(layout.tree(parameters), *now)
        most = {name: terms.pop(name) for name in largest}
        (loss, terms, grads), most = ctx.reduce.joined((loss, terms, layout.flat(grads)), most)
        terms |= most
        grad_norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        stopped = stopped if stops is None else stopped | stops(terms)
        # A step that is not finite is not applied. The metric `finite` stops the run, and its
        # parameters stay usable.
        applied = finite & ~stopped
        direction, new_opt_state = clipped_adam(grads, grad_norm, opt_state, hparams.max_grad_norm)
        moved = optax.tree.sub(
            parameters, optax.tree.mul(jax.tree.broadcast(rates, direction), direction)
        )
        parameters, opt_state = jax.tree.map(
            lambda new, old: jnp.where(applied, new, old),
            (moved, new_opt_state),
            (parameters, opt_state),
        )
        figures = terms | {"grad_norm": grad_norm, "finite": finite, "applied": applied}
        names[:] = figures
        # One row instead of an array for each figure: a device stores each array by a program of
        # its own.
        return (parameters, opt_state, stopped), jnp.stack(
            [x.astype(jnp.float32) for x in figures.values()]
        )

    def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
        picked = minibatch_rows(
            key,
            rollout.num_steps,
            rollout.num_envs,
            rollout.shards,
            ctx.num_minibatches,
            ctx.sequence,
            ctx.reduce.offset(rollout.shards),
        )
        return jax.lax.scan(minibatch, carry, prepared(picked))

    start = (flat(state.params), map_parts(flat, state.opt_state, state.params), jnp.bool_(False))
    (parameters, opt_state, _), history = jax.lax.scan(
        epoch, start, jax.random.split(key, ctx.config.num_epochs)
    )
    learnt = state.replace(
        params=restored(state.params, parameters),
        opt_state=map_parts(restored, state.opt_state, state.params, opt_state),
    )
    return learnt, dict(zip(names, jnp.moveaxis(history, -1, 0), strict=True))


def step_metrics(history: dict[str, Array], first: tuple[str, ...] = ()) -> dict[str, Array]:
    """Metrics of the gradient steps. history: float32[epochs, minibatches] by name; 1 is True.

    first: names of figures whose value at the first step counts. The others are means over the
        steps that were applied.
    """
    applied = history["applied"]
    metrics = {
        "finite": (history["finite"] > 0).all(),
        **{name: history[name][0, 0] for name in first},
        "applied": applied.mean(),
    }
    for name, values in history.items():
        if name not in metrics:
            metrics[name] = jnp.where(applied > 0, values, 0.0).sum() / jnp.maximum(
                applied.sum(), 1.0
            )
    return metrics
