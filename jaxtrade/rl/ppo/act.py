"""PPO's network, acting, and loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import NetworkConfig, PPOConfig, RunConfig
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import Network
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.torso import FLOAT32, DotGeneral, forget, recall
from jaxtrade.parts import NETWORKS
from jaxtrade.rl import epochs, returns
from jaxtrade.rl.acting import ActExtras, advice_terms, chance_of, fused, network_input, ready
from jaxtrade.rl.context import Context
from jaxtrade.rl.epochs import Rows
from jaxtrade.rl.listening import AdviceTerms, Fused, Fusion
from jaxtrade.rl.state import Policy, opened, opening_at
from jaxtrade.rl.train_state import TrainState, floats_of, progress
from jaxtrade.types import Array, PyTree, Transition

PPO = Context[PPOConfig, Network]


def gradient_rows(ppo: PPO) -> int:
    """Largest number of rows whose gradient is computed at once."""
    given = ppo.config.gradient_rows
    return ppo.form.gradient_rows if given == "auto" else given


# --- PPO's network and its initial parameters


def make_network(
    config: NetworkConfig, num_actions: int, dot_general: DotGeneral = FLOAT32
) -> Network:
    """The network that `config` describes. dot_general: computes its products.

    Raises ConfigError if no network is registered under `config.kind`.
    """
    return NETWORKS[config.kind](config, num_actions, dot_general)


def first_parameters(
    config: NetworkConfig, num_actions: int, size: int, key: Array, fusion: Fusion | None = None
) -> dict[str, PyTree]:
    """Initial parameters: those of the network, and those that a fusion adds. size: length of an
    observation.
    """
    network = make_network(config, num_actions)
    parameters = dict(network.init(key, network.first_carry(), jnp.zeros(size))["params"])
    return parameters | ({} if fusion is None else fusion.init(jax.random.fold_in(key, 1), size))


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """`Learner.first_policy` of PPO."""
    parameters = first_parameters(config.network, num_actions, observation_size, key, fusion)
    return Policy(parameters, init_stats(observation_size))


# --- PPO's tunable floats, and the policy of its state


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]; meanings as in `PPOConfig`. They are leaves, so a sweep
    is a vmap.
    """

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    gae_lambda: Array
    clip_eps: Array
    vf_clip_eps: Array
    ent_coef: Array
    ent_coef_end: Array
    vf_coef: Array
    max_grad_norm: Array
    target_kl: Array
    adapter_freeze: Array


def make_hparams(config: PPOConfig) -> HParams:
    """The tunable floats of `config`. If `ent_coef_end` is None, the entropy bonus stays
    constant.
    """
    end = config.ent_coef if config.ent_coef_end is None else config.ent_coef_end
    return floats_of(HParams, config.model_copy(update={"ent_coef_end": end}))


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)


# --- PPO's policy: acting on one reference, and the output for the rows of a rollout that the loss
# needs.
#
# All functions but `act` take a policy that `acting.ready` has made.


class PolicyOutput(NamedTuple):
    """The policy's output for B references.

    logits: float32[B, A]. value: float32[B]. mask: bool[B, A]. cost: float32[B], extra loss of a
        fusion; None without
    a fusion.
    """

    logits: Array
    value: Array
    mask: Array
    cost: Array | None


def forward(
    ppo: PPO,
    policy: Policy,
    carry: PyTree,
    refs: PyTree,
    first: Array,
    terms: PyTree,
    params: PyTree,
) -> PolicyOutput:
    """The policy's output for the rows of a `Batch`.

    Args:
        carry: float32[S, H], memory of each of the S sequences before its first row; None without a
            memory.
        refs: references [B, ...]. first: bool[B]. terms: advice terms [B, ...], or None.
    """
    observations = jax.vmap(lambda ref: network_input(ppo, policy, ref, params))(refs)
    carries = recall(ppo.network, policy.parameters, carry, observations, first)

    def heads(carry: PyTree, observation: Array) -> Any:
        return ppo.network.apply({"params": policy.parameters}, carry, observation, method="heads")

    def with_advice(
        observation: Array, ref: PyTree, terms: AdviceTerms | None, logits: Array, mask: Array
    ) -> Fused:
        return fused(ppo, policy, observation, ref, terms, logits, mask)

    logits, values = jax.vmap(heads)(carries, observations)
    logits, masks = opened(policy.opening, logits, jax.vmap(ppo.env.action_mask)(refs))
    logits, masks, costs = jax.vmap(with_advice)(observations, refs, terms, logits, masks)
    return PolicyOutput(logits, values, masks, costs)


def log_prob_and_entropy(
    ppo: PPO, logits: Array, mask: Array, action: Array
) -> tuple[Array, Array]:
    """Log-probability of the action and entropy, float32[...] each, in the form for the platform.
    Acting and learning use the same one, so that the ratio is exactly 1 before the first gradient
    step."""
    if ppo.form.columns:
        return distributions.log_prob_and_entropy(logits, mask, action)
    return distributions.log_prob(logits, mask, action), distributions.entropy(logits, mask)


def value_of(ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Any:
    """float32[]: the value of `ref`. `carry` is the memory before `ref`."""
    variables, observation = {"params": policy.parameters}, network_input(ppo, policy, ref, params)
    carry = ppo.network.apply(variables, carry, observation, method="remember")
    return ppo.network.apply(variables, carry, observation, method="value")


class Decided(NamedTuple):
    """What the policy makes of one reference. carry: its memory after it. value: float32[]. own,
    legal: logits float32[A] and mask bool[A] without advice. logits, mask: with it."""

    carry: PyTree
    value: Array
    own: Array
    legal: Array
    logits: Array
    mask: Array


def decide(ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Decided:
    """The policy's output for one reference. `carry` is the memory before `ref`."""
    observation = network_input(ppo, policy, ref, params)
    output: Any = ppo.network.apply({"params": policy.parameters}, carry, observation)
    carry, own, value = output
    own, legal = opened(policy.opening, own, ppo.env.action_mask(ref))
    logits, mask, _ = fused(
        ppo, policy, observation, ref, advice_terms(ppo, policy, ref), own, legal
    )
    return Decided(carry, value, own, legal, logits, mask)


def act_by_chance(
    ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree, chance: Array | None
) -> tuple[PyTree, Array, ActExtras]:
    """Act on one reference -> (carry, action, extras).

    chance: float32[] in [0, 1) selects the action by the inverse of the cumulative distribution.
        None selects the most
    probable action.
    """
    carry, value, own, legal, logits, mask = decide(ppo, policy, carry, ref, params)
    action = (
        distributions.mode(logits, mask)
        if chance is None
        else distributions.pick(chance, logits, mask)
    )
    # The same `chance` with and without advice: the comparison shows the effect of advice, not of
    # chance.
    overridden = None
    if ppo.fusion is not None and chance is not None:
        overridden = action != distributions.pick(chance, own, legal)
    return (
        carry,
        action,
        ActExtras(
            log_prob_and_entropy(ppo, logits, mask, action)[0], value, logits, mask, overridden
        ),
    )


def act(
    ppo: PPO,
    policy: Policy,
    carry: PyTree,
    ref: PyTree,
    params: PyTree,
    key: Array | None,
    explore: bool,
) -> tuple[PyTree, Array, ActExtras]:
    """`Algorithm.act`. Raises ValueError if `explore` is True and `key` is None."""
    return act_by_chance(
        ppo, ready(ppo, policy), carry, ref, params, chance_of(ppo.env, ref, key, explore)
    )


# PPO's loss over a minibatch, and its gradient.

Gradient = tuple[Array, dict[str, Array], PyTree]  # loss float32[], diagnostics, gradient


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H],
    the memory before the first step of each sequence. terms: advice terms (see `advice_terms`), or
    None.
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

    policy: the policy that collected the rollout, from `acting.ready`. params: environment
        parameters. ent_coef:
    float32[], entropy coefficient of this update.
    """

    policy: Policy
    params: PyTree
    hparams: HParams
    ent_coef: Array


def ppo_loss(
    parameters: PyTree, ppo: PPO, objective: Objective, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    """PPO's loss over one minibatch (Schulman et al. 2017, equation 9) -> (loss, diagnostics).

        loss = clipped surrogate + vf_coef * value loss - ent_coef * entropy + cost of the fusion

    `parameters` (packed) replace those of `objective.policy`. The loss and its terms are over the
    rows of this device, and the caller averages the gradients over devices.
    """
    policy, params, hparams, ent_coef = objective
    logits, value, mask, cost = forward(
        ppo,
        policy.replace(parameters=parameters),
        batch.carry,
        batch.ref,
        batch.first,
        batch.terms,
        params,
    )
    log_prob, entropy = log_prob_and_entropy(ppo, logits, mask, batch.action)
    rows = {
        "policy_loss": returns.clipped_surrogate(
            log_prob, batch.log_prob, batch.advantage, hparams.clip_eps
        ),
        "value_loss": returns.squared_error(value, batch.value, batch.target, hparams.vf_clip_eps),
        "entropy": entropy,
        "approx_kl": returns.approx_kl(log_prob, batch.log_prob),
        "clip_fraction": returns.clipped(log_prob, batch.log_prob, hparams.clip_eps),
        "ratio_error": jnp.abs(jnp.expm1(log_prob - batch.log_prob)),
    }
    loss = rows["policy_loss"] + hparams.vf_coef * rows["value_loss"] - ent_coef * rows["entropy"]
    loss = loss if cost is None else loss + cost
    # All rows of figures are reduced together. On a device each reduction would be two programs of
    # its own.
    stacked = jnp.stack([loss, *rows.values()])
    mean, highest = stacked.mean(axis=1), jax.lax.stop_gradient(stacked).max(axis=1)
    terms = dict(zip(rows, mean[1:], strict=True))
    return mean[0], terms | {"ratio_error": highest[-1]}


def block_count(rows: int, gradient_rows: int, sequence: int) -> int:
    """Number of equal blocks, of at most `gradient_rows` rows, into which a minibatch of `rows`
    rows is split.

    The result is 1 for sequences (`sequence` > 1), because they must stay whole. It is also 1 if an
    equal split would need more than twice the necessary number of blocks.
    """
    least = -(-rows // gradient_rows)
    return 1 if sequence > 1 else next((n for n in range(least, 2 * least + 1) if rows % n == 0), 1)


def rows_of(batch: Batch) -> Rows:
    """The rows of a rollout [T, N, ...], without their advantages: these are picked for a whole
    epoch at once.
    """
    return epochs.rows_of(batch._replace(advantage=None))


def pick(ppo: PPO, rows: Rows, of: Array, advantage: Array) -> Batch:
    """The rows `of` int32[B] of a rollout (`epochs.pick`). advantage: float32[B], theirs."""
    return epochs.pick(ppo, rows, of)._replace(advantage=advantage)


def gradient_of_rows(ppo: PPO, objective: Objective, parameters: PyTree, batch: Batch) -> Gradient:
    """Gradient over all rows of `batch` at once."""
    (loss, terms), grads = jax.value_and_grad(ppo_loss, has_aux=True)(
        parameters, ppo, objective, batch
    )
    return loss, terms, grads


def gradient_in_blocks(
    ppo: PPO,
    objective: Objective,
    parameters: PyTree,
    rows: Rows,
    of: Array,
    advantage: Array,
    blocks: int,
) -> Gradient:
    """Gradient over a large minibatch, as the mean over `blocks` equal blocks. This limits the
    memory that it takes.
    """

    def of_block(block: tuple[Array, Array]) -> Gradient:
        return gradient_of_rows(ppo, objective, parameters, pick(ppo, rows, *block))

    def add(total: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
        loss, terms, grads = of_block(block)
        worst = jnp.maximum(total[1]["ratio_error"], terms["ratio_error"])
        loss, terms, grads = jax.tree.map(jnp.add, total, (loss, terms, grads))
        return (loss, terms | {"ratio_error": worst}, grads), None

    parts = (of.reshape(blocks, -1), advantage.reshape(blocks, -1))
    first = jax.tree.map(lambda x: x[0], parts)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, first))
    (loss, terms, grads), _ = jax.lax.scan(add, zero, parts)
    loss, means, grads = jax.tree.map(lambda x: x / blocks, (loss, terms, grads))
    return loss, means | {"ratio_error": terms["ratio_error"]}, grads


def gradient(
    ppo: PPO, objective: Objective, parameters: PyTree, rows: Rows, of: Array, advantage: Array
) -> Gradient:
    """Gradient over the rows of a minibatch on this device.

    Args:
        rows: of the rollout. of: int32[B], the rows of the minibatch. advantage: float32[B], their
            advantages, which are normalised over the minibatch if the configuration says so.
    """
    blocks = block_count(len(of), gradient_rows(ppo), ppo.sequence)
    if blocks == 1:
        return gradient_of_rows(ppo, objective, parameters, pick(ppo, rows, of, advantage))
    return gradient_in_blocks(ppo, objective, parameters, rows, of, advantage, blocks)


# --- What the policy that learns makes of a rollout in which an older policy acted (`actor.delay`)


class Judged(NamedTuple):
    """A rollout as one policy sees it.

    log_prob, value: float32[T, N], log-probability of the action that was taken, and V of each
        reference. carries:
    float32[T, N, H], the policy's memory after each reference, and last: float32[N, H], after the
    last one; None without a memory.
    """

    log_prob: Array
    value: Array
    carries: PyTree
    last: PyTree


def judged(ppo: PPO, policy: Policy, carry: PyTree, seen: Transition, params: PyTree) -> Judged:
    """The rollout `seen` [T, N, ...] as `policy` sees it, which takes each step as in acting.

    policy: from `acting.ready`. carry: float32[N, H], the memory before the first step; None
        without a memory. It is
    the one that acting left, as for the gradient, whose sequences begin there too.
    """

    def one(carry: PyTree, ref: PyTree, action: Array) -> tuple[PyTree, Array, Array]:
        decided = decide(ppo, policy, carry, ref, params)
        log_prob, _ = log_prob_and_entropy(ppo, decided.logits, decided.mask, action)
        return decided.carry, log_prob, decided.value

    def step(carry: PyTree, now: tuple[PyTree, Array, Array]) -> tuple[PyTree, Any]:
        ref, first, action = now
        carry, log_prob, value = jax.vmap(one)(forget(carry, first), ref, action)
        return carry, (log_prob, value, carry)

    last, (log_prob, value, carries) = jax.lax.scan(
        step, carry, (seen.ref, seen.first, seen.action)
    )
    return Judged(log_prob, value, carries, last)


def delay_metrics(ppo: PPO, seen: Transition, log_prob: Array) -> dict[str, Array]:
    """How far the policy that acted is from the one that learns, before the first gradient step;
    none without a delay.

    `behaviour_kl`: estimate of KL(acted || learns), as `approx_kl`. `rho`: mean weight of a step in
        V-trace, at most
    `actor.rho_clip`; its distance from the mean ratio, 1, is what the clip takes away. log_prob: float32[T, N], of the
    policy that learns.
    """
    if not ppo.actor.delay:
        return {}
    acted, learns = seen.extras.log_prob.reshape(-1), log_prob.reshape(-1)
    rho = jnp.minimum(jnp.exp(learns - acted), ppo.actor.rho_clip)
    return {
        "behaviour_kl": ppo.reduce.mean(returns.approx_kl(learns, acted)),
        "rho": ppo.reduce.mean(rho),
    }
