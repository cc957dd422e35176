"""The rows of a rollout, laid out so that the rows of a minibatch are picked by one look-up."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from jaxtrade.rl.context import Context
from jaxtrade.rl.packing import Packed, Packing, packing_of
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
