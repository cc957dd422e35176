"""PQN's loss over a minibatch, and its gradient."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.rl.batches import Rows, pick
from jaxtrade.rl.q.act import of_action, values_of_rows
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H],
    the memory before the first step of each sequence. q: float32[B], Q of the action when it was
    taken. target: float32[B].
    """

    carry: PyTree
    ref: PyTree
    first: Array
    action: Array
    q: Array
    target: Array


def td_loss(
    parameters: PyTree, ctx: Q, policy: Policy, params: PyTree, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    """Half the mean squared difference of Q(s, a) from its target -> (loss, diagnostics).

    `parameters` (packed) replace those of `policy`. The loss and its terms are over the rows of this device.
    """
    q = values_of_rows(
        ctx, policy.replace(parameters=parameters), batch.carry, batch.ref, batch.first, params
    )
    chosen = of_action(q, batch.action)
    loss = 0.5 * jnp.square(chosen - batch.target).mean()
    change = jax.lax.stop_gradient(jnp.abs(chosen - batch.q))
    return loss, {
        "td_loss": loss,
        "q_mean": chosen.mean(),
        "q_change": change.mean(),
        "q_error": (change / (1.0 + jnp.abs(batch.q))).max(),
    }


def gradient(
    ctx: Q, policy: Policy, params: PyTree, rows: Rows, parameters: PyTree, of: Array
) -> tuple[Array, dict[str, Array], PyTree]:
    """Loss, diagnostics and gradient over the rows `of` int32[B] of a rollout on this device."""
    (loss, terms), grads = jax.value_and_grad(td_loss, has_aux=True)(
        parameters, ctx, policy, params, pick(ctx, rows, of)
    )
    return loss, terms, grads
