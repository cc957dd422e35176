"""PPO's loss over a minibatch, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.networks import distributions
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl import losses
from jaxtrade.rl.losses import standardised
from jaxtrade.rl.minibatches import take_rows
from jaxtrade.rl.ppo.act import PolicyOutput, forward
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.state import HParams
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree

# (policy, carry [S, H], refs [B, ...], first bool[B], advice terms [B, ...], environment params) -> PolicyOutput; the
# rows are ordered as in `Batch`
Forward = Callable[[Policy, PyTree, PyTree, Array, PyTree, PyTree], PolicyOutput]
Gradient = tuple[Array, dict[str, Array], PyTree]  # loss float32[], diagnostics, gradient


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H], the memory before
    the first step of each sequence. terms: advice terms (see `advice_terms`), or None.
    """

    carry: PyTree
    ref: PyTree
    first: Array
    terms: PyTree
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


class Objective(NamedTuple):
    """Arguments of the loss that stay the same in all gradient steps of an update.

    policy: the policy that collected the rollout. params: environment parameters. ent_coef: float32[], entropy
    coefficient of this update.
    """

    policy: Policy
    params: PyTree
    hparams: HParams
    ent_coef: Array


def ppo_loss(parameters: PyTree, policy: Policy, forward: Forward, batch: Batch, params: PyTree, hparams: HParams,
             ent_coef: Array, normalise_advantages: bool, reduce: Reduce = LOCAL) -> tuple[Array, dict[str, Array]]:
    """PPO's loss over one minibatch (Schulman et al. 2017, equation 9) -> (loss, diagnostics).

        loss = clipped surrogate + vf_coef * value loss - ent_coef * entropy + cost of the fusion

    policy: the policy that collected the rollout; `parameters` replace its parameters. reduce: applies to the moments
    of the advantages alone. The loss and its terms are over the rows of this device, and the caller averages the
    gradients over devices.
    """
    logits, value, mask, cost = forward(policy.replace(parameters=parameters), batch.carry, batch.ref, batch.first,
                                        batch.terms, params)
    log_prob = distributions.log_prob(logits, mask, batch.action)
    advantage = standardised(batch.advantage, reduce) if normalise_advantages else batch.advantage
    terms = {
        "policy_loss": losses.clipped_surrogate(log_prob, batch.log_prob, advantage, hparams.clip_eps),
        "value_loss": losses.value_loss(value, batch.value, batch.target, hparams.vf_clip_eps),
        "entropy": distributions.entropy(logits, mask).mean(),
    }
    loss = terms["policy_loss"] + hparams.vf_coef * terms["value_loss"] - ent_coef * terms["entropy"]
    loss = loss if cost is None else loss + cost.mean()
    return loss, terms | {
        "approx_kl": losses.approx_kl(log_prob, batch.log_prob),
        "clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, hparams.clip_eps),
        "ratio_error": jnp.max(jnp.abs(jnp.expm1(log_prob - batch.log_prob))),
    }


def block_count(rows: int, gradient_rows: int, sequence: int) -> int:
    """Number of equal blocks, of at most `gradient_rows` rows, into which a minibatch of `rows` rows is split.

    The result is 1 for sequences (`sequence` > 1), because they must stay whole. It is also 1 if an equal split would
    need more than twice the necessary number of blocks.
    """
    least = -(-rows // gradient_rows)
    return 1 if sequence > 1 else next((n for n in range(least, 2 * least + 1) if rows % n == 0), 1)


def pick(ppo: PPO, batch: Batch, rows: Array) -> Batch:
    """Select the rows of a minibatch.

    With a memory, each sequence starts at the first step of the rollout. The row numbers of these first steps are then
    the numbers of their environments.
    """
    envs = rows[:ppo.rollout.num_envs // ppo.config.num_minibatches]
    picked = take_rows(batch._replace(carry=None), rows)
    return picked._replace(carry=jax.tree.map(lambda x: x[envs], batch.carry))


def gradient_of_rows(ppo: PPO, objective: Objective, parameters: PyTree, batch: Batch,
                     normalise_advantages: bool) -> Gradient:
    """Gradient over all rows of `batch` at once."""
    policy, params, hparams, ent_coef = objective
    (loss, terms), grads = jax.value_and_grad(ppo_loss, has_aux=True)(
        parameters, policy, partial(forward, ppo), batch, params, hparams, ent_coef, normalise_advantages, ppo.reduce)
    return loss, terms, grads


def gradient_in_blocks(ppo: PPO, objective: Objective, parameters: PyTree, batch: Batch, rows: Array,
                       blocks: int) -> Gradient:
    """Gradient over a large minibatch, as the mean over `blocks` equal blocks. This limits the memory that it takes.

    The advantages are normalised over all rows of the minibatch, before the split.
    """
    advantage = take_rows(batch.advantage, rows)
    advantage = standardised(advantage, ppo.reduce) if ppo.config.normalise_advantages else advantage

    def of_block(block: tuple[Array, Array]) -> Gradient:
        rows, advantage = block
        picked = pick(ppo, batch, rows)._replace(advantage=advantage)
        return gradient_of_rows(ppo, objective, parameters, picked, False)

    def add(total: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
        loss, terms, grads = of_block(block)
        worst = jnp.maximum(total[1]["ratio_error"], terms["ratio_error"])
        loss, terms, grads = jax.tree.map(jnp.add, total, (loss, terms, grads))
        return (loss, terms | {"ratio_error": worst}, grads), None

    parts = (rows.reshape(blocks, -1), advantage.reshape(blocks, -1))
    first = jax.tree.map(lambda x: x[0], parts)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, first))
    (loss, terms, grads), _ = jax.lax.scan(add, zero, parts)
    loss, means, grads = jax.tree.map(lambda x: x / blocks, (loss, terms, grads))
    return loss, means | {"ratio_error": terms["ratio_error"]}, grads


def gradient(ppo: PPO, objective: Objective, parameters: PyTree, batch: Batch, rows: Array) -> Gradient:
    """Gradient over a minibatch, averaged over devices. rows: int32[B], row numbers in the rollout `batch` [T, N, ...].
    """
    blocks = block_count(len(rows), ppo.config.gradient_rows, ppo.sequence)
    if blocks == 1:
        loss, terms, grads = gradient_of_rows(ppo, objective, parameters, pick(ppo, batch, rows),
                                              ppo.config.normalise_advantages)
    else:
        loss, terms, grads = gradient_in_blocks(ppo, objective, parameters, batch, rows, blocks)
    worst = ppo.reduce.max_of_parts(terms["ratio_error"])
    loss, terms, grads = ppo.reduce.mean_of_parts((loss, terms, grads))
    return loss, terms | {"ratio_error": worst}, grads
