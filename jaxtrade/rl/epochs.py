"""The rows of a rollout, laid out so that the rows of a minibatch are picked by one look-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from jaxtrade.rl.context import Context
from jaxtrade.rl.packing import Packed, Packing, Unchanged, layout_of, map_parts, packing_of
from jaxtrade.rl.train_state import TrainState, clipped_adam
from jaxtrade.types import Array, PyTree


class Rows(NamedTuple):
    """All rows of a rollout in the form from which minibatches are picked.

    packed: the words of each row lie side by side, int32[T * N, C], so one look-up picks a whole
        row. packing: how they
    are packed. carry: the memory of each environment before the rollout, float32[N, H]; None
    without a memory.
    """

    packed: Packed
    packing: Packing
    carry: PyTree


def rows_of(batch: Any) -> Rows:
    """The rows of a rollout. batch: a NamedTuple of arrays [T, N, ...] with a field `carry` [N,
    ...].
    """
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch._replace(carry=None))
    packing = packing_of(flat)
    return Rows(packing.pack(flat, axis=1), packing, batch.carry)


def pick(ctx: Context, rows: Rows, of: Array) -> Any:
    """The rows `of` int32[B] of a rollout, as the NamedTuple that `rows_of` was given.

    With a memory, each sequence starts at the first step of the rollout. The row numbers of these
    first steps are then the numbers of their environments.
    """
    envs = of[: ctx.rollout.num_envs // ctx.num_minibatches]
    picked = rows.packing.unpack(jax.tree.map(lambda x: x[of], rows.packed), axis=1)
    return picked._replace(carry=jax.tree.map(lambda x: x[envs], rows.carry))


# --- Choose the rows of a rollout that form each minibatch.
#
# Environments form fixed groups by their number. Each group is permuted on its own, and a minibatch
# joins the same slice of every group's permutation. A device that holds whole groups therefore
# never needs rows of another device. With the same groups, the minibatches are the same for any
# number of devices.


def permutation(key: Array, count: int) -> Array:
    """int32[count]: a random order of 0 .. count - 1 (count < 2^31).

    The function sorts random words that hold their position in the low bits. On a CPU, sorting
    integers is far faster than sorting pairs, as `jax.random.permutation` does. Words with equal
    random bits keep the order of their positions. A second round with new words therefore permutes
    the result of the first.
    """
    low = jnp.uint32((1 << max(count - 1, 1).bit_length()) - 1)

    def mixed(key: Array) -> Array:
        words = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
        return (jax.lax.sort(words, is_stable=False) & low).astype(jnp.int32)

    first, second = jax.random.split(key)
    return mixed(first)[mixed(second)]


def minibatch_rows(
    key: Array,
    num_steps: int,
    num_envs: int,
    num_groups: int,
    num_minibatches: int,
    length: int = 1,
    first_group: int | Array = 0,
) -> Array:
    """Row numbers `t * num_envs + n`, int32[num_minibatches, T * N / num_minibatches]. Each row
    occurs once.

    The function permutes sequences of `length` consecutive steps of one environment; T is a
    multiple of `length`. In a minibatch of S sequences, entry `l * S + s` is step l of sequence s.
    Each group draws by its global number, counted from `first_group`. Row numbers count the
    environments of this device.

    Raises AssertionError at trace time if the counts do not divide evenly.
    """
    chex.assert_is_divisible(num_envs, num_groups)
    chex.assert_is_divisible(num_steps, length)
    group_envs = num_envs // num_groups
    group_sequences = num_steps // length * group_envs
    chex.assert_is_divisible(group_sequences, num_minibatches)

    def permute(group: Array) -> Array:
        picked = permutation(jax.random.fold_in(key, first_group + group), group_sequences)
        return picked // group_envs * (length * num_envs) + group * group_envs + picked % group_envs

    permuted = jax.vmap(permute)(jnp.arange(num_groups))
    slices = permuted.reshape(num_groups, num_minibatches, group_sequences // num_minibatches)
    starts = slices.swapaxes(0, 1).reshape(num_minibatches, 1, -1)
    return (starts + num_envs * jnp.arange(length)[:, None]).reshape(num_minibatches, -1)


# --- Epochs of gradient steps over one rollout, for every learner that passes over its rollout in
# minibatches.


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

    The steps work on the parameters and moments as `ctx.form` says: as vectors (`rl.packing`), or as
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
