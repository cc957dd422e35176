"""The rows of a rollout, laid out so that the rows of a minibatch are picked by one look-up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.networks.accelerators import SteppedTree
from jaxtrade.rl.context import Context
from jaxtrade.rl.optim import step
from jaxtrade.rl.packing import Packed, Packing, packing_of
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, Metrics, PyTree


class Rows(NamedTuple):
    """All rows of a rollout in the form from which minibatches are picked.

    packed: the words of each row lie side by side, int32[T * N, C], so one look-up
        picks a whole row.
    packing: how they are packed.
    carry: the memory of each environment before the rollout, float32[N, H]; None without a memory.
    """

    packed: Packed
    packing: Packing
    carry: PyTree


def rows_of(batch: Any) -> Rows:
    """Flatten a rollout to rows.

    Args:
        batch: a NamedTuple of arrays [T, N, ...] with a field `carry` [N, ...].
    """
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch._replace(carry=None))
    packing = packing_of(flat)
    return Rows(packing.pack(flat, axis=1), packing, batch.carry)


def pick(ctx: Context, rows: Rows, of: Array, prepared: dict[str, Array]) -> Any:
    """Pick the rows `of` int32[B] of a rollout, as the NamedTuple that `rows_of` was given.

    With a memory, each sequence starts at the first step of the rollout. The row numbers of these
    first steps are then the numbers of their environments.

    Args:
        prepared: its fields that are not among the rows, [B, ...].
    """
    envs = of[: ctx.rollout.num_envs // ctx.num_minibatches]
    picked = rows.packing.unpack(jax.tree.map(lambda x: x[of], rows.packed), axis=1)
    carry = jax.tree.map(lambda x: x[envs], rows.carry)
    return picked._replace(carry=carry, **prepared)


# --- Choose the rows of a rollout that form each minibatch.
#
# Environments form fixed groups by their number. Each group is permuted on its own, and a minibatch
# joins the same slice of every group's permutation. A device that holds whole groups therefore
# never needs rows of another device. With the same groups, the minibatches are the same for any
# number of devices.


def permutation(key: Array, count: int) -> Array:
    """Draw a random order of 0 .. count - 1 (int32[count], count < 2^31).

    The function sorts random words that hold their position in the low bits. On a CPU, sorting
    integers is far faster than sorting pairs, as `jax.random.permutation` does. Words with equal
    random bits keep the order of their positions. A second round with new words therefore permutes
    the result of the first.
    """
    low = jnp.uint32((1 << max(count - 1, 1).bit_length()) - 1)

    def mix(key: Array) -> Array:
        words = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
        return (jax.lax.sort(words, is_stable=False) & low).astype(jnp.int32)

    first, second = jax.random.split(key)
    return mix(first)[mix(second)]


def minibatch_rows(
    key: Array,
    num_steps: int,
    num_envs: int,
    num_groups: int,
    num_minibatches: int,
    length: int = 1,
    first_group: int | Array = 0,
) -> Array:
    """Draw row numbers `t * num_envs + n` (int32[num_minibatches, T * N / num_minibatches]).

    Each row occurs once.

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


# (parameters, batch) -> loss float32[], diagnostics, over the rows of this part
Loss = Callable[[PyTree, Any], tuple[Array, Metrics]]
Graded = tuple[tuple[Array, Metrics], PyTree]  # (loss float32[], diagnostics), gradient


class MetricVector(struct.PyTreeNode):
    """Numbers by name, as one array: a device stores each array by a program of its own."""

    values: Array  # float32[..., F]
    names: tuple[str, ...] = struct.field(pytree_node=False)

    @classmethod
    def of(cls, numbers: Metrics) -> MetricVector:
        """Pack numbers of any type, [] each."""
        return cls(jnp.stack([x.astype(jnp.float32) for x in numbers.values()]), tuple(numbers))

    def by_name(self) -> Metrics:
        """Return float32[...] of each name; 1 is True."""
        return dict(zip(self.names, jnp.moveaxis(self.values, -1, 0), strict=True))


def block_count(rows: int, rows_at_once: int, sequence: int) -> int:
    """Return the number of equal blocks into which a minibatch of `rows` rows is split.

    A block has at most `rows_at_once` rows.

    The result is 1 for sequences (`sequence` > 1), because they must stay whole. It is also 1 if an
    equal split would need more than twice the necessary number of blocks.
    """
    least = -(-rows // rows_at_once)
    return 1 if sequence > 1 else next((n for n in range(least, 2 * least + 1) if rows % n == 0), 1)


def in_blocks(
    graded: Callable[..., Any],
    pick: Callable[..., Any],
    largest: tuple[str, ...],
    blocks: int,
    parameters: PyTree,
    picked: tuple[Array, dict[str, Array]],
) -> Graded:
    """Compute loss, diagnostics and gradient over a large minibatch in equal blocks.

    The result is the mean over the blocks, but the largest for the diagnostics `largest`. Blocks
    limit the memory that it takes.

    Args:
        graded: of one batch.
        pick: what `picked` stands for.
    """

    def of_block(block: tuple[Array, dict[str, Array]]) -> Graded:
        return graded(parameters, pick(*block))

    def add(total: Graded, block: tuple[Array, dict[str, Array]]) -> tuple[Graded, None]:
        now = of_block(block)
        most = {name: jnp.maximum(total[0][1][name], now[0][1][name]) for name in largest}
        (value, terms), grads = jax.tree.map(jnp.add, total, now)
        return ((value, terms | most), grads), None

    parts = jax.tree.map(lambda x: x.reshape(blocks, -1), picked)
    first = jax.tree.map(lambda x: x[0], parts)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, first))
    total, _ = jax.lax.scan(add, zero, parts)
    (value, means), grads = jax.tree.map(lambda x: x / blocks, total)
    return (value, means | {name: total[0][1][name] for name in largest}), grads


def learn(
    ctx: Context,
    state: TrainState,
    loss: Loss,
    rows: Rows,
    key: Array,
    rates: PyTree,
    *,
    prepare: Callable[[Array], dict[str, Array]] = lambda picked: {},
    stops: Callable[[Metrics], Array] | None = None,
    largest: tuple[str, ...] = (),
    rows_at_once: int | None = None,
) -> tuple[TrainState, Metrics]:
    """Run all epochs over one rollout.

    Args:
        rates: learning rate float32[], or one for each number of the parameters (a tree like them).
        prepare: row numbers of an epoch int32[minibatches, B] -> fields of its batches by name,
            [minibatches, B, ...], which take the place of those in `rows`.
        stops: diagnostics -> bool[]: once True, no further step of this update is
            applied. None: never.
        largest: names of diagnostics of which the largest of all parts counts; of the others it is
            the mean.
        rows_at_once: as of `block_count`. None: all of a minibatch.

    Returns:
        (state, diagnostics of every gradient step, float32[epochs, minibatches] by name).
    """
    rollout, hparams = ctx.rollout, state.hparams
    form = SteppedTree.of(ctx.network, ctx.form, state.params)
    count = rollout.num_steps * rollout.num_envs // ctx.num_minibatches
    blocks = 1 if rows_at_once is None else block_count(count, rows_at_once, ctx.sequence)
    rates = form.enter(rates) if isinstance(rates, dict) else rates
    graded, pick_rows = jax.value_and_grad(loss, has_aux=True), partial(pick, ctx, rows)
    of_blocks = partial(in_blocks, graded, pick_rows, largest, blocks)

    def minibatch(
        carry: tuple[PyTree, PyTree, Array], picked: tuple[Array, dict[str, Array]]
    ) -> tuple[Any, MetricVector]:
        parameters, opt_state, stopped = carry
        tree = form.layout.tree(parameters)
        (value, terms), grads = (
            ctx.reduce.alone(graded)(tree, pick_rows(*picked))
            if blocks == 1
            else ctx.reduce.alone(of_blocks)(tree, picked)
        )
        most = {name: terms.pop(name) for name in largest}
        (value, terms, grads), most = ctx.reduce.reduce_mean_and_max(
            (value, terms, form.layout.flat(grads)), most
        )
        terms |= most
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        stopped = stopped if stops is None else stopped | stops(terms)
        # A step that is not finite is not applied. The metric `finite` stops the run, and its
        # parameters stay usable.
        applied = finite & ~stopped
        parameters, opt_state = step(
            parameters, opt_state, grads, norm, rates, hparams.max_grad_norm, applied
        )
        figures = terms | {"grad_norm": norm, "finite": finite, "applied": applied}
        return (parameters, opt_state, stopped), MetricVector.of(figures)

    def epoch(carry: Any, key: Array) -> tuple[Any, MetricVector]:
        picked = minibatch_rows(
            key,
            rollout.num_steps,
            rollout.num_envs,
            rollout.shards,
            ctx.num_minibatches,
            ctx.sequence,
            ctx.reduce.offset(rollout.shards),
        )
        return jax.lax.scan(minibatch, carry, (picked, prepare(picked)))

    start = (form.enter(state.params), form.enter_moments(state.opt_state), jnp.bool_(False))
    (parameters, opt_state, _), history = jax.lax.scan(
        epoch, start, jax.random.split(key, ctx.config.num_epochs)
    )
    learnt = state.replace(
        params=form.leave(parameters), opt_state=form.leave_moments(state.opt_state, opt_state)
    )
    return learnt, history.by_name()


def step_metrics(history: Metrics, first: tuple[str, ...] = ()) -> Metrics:
    """Compute the metrics of the gradient steps.

    Args:
        history: float32[epochs, minibatches] by name; 1 is True.
        first: names of metrics whose value at the first step counts. The others are means over the
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
