"""Proximal policy optimisation (Schulman et al. 2017) with action masks.

One update is a rollout, advantages and value targets, epochs of gradient steps over the rollout,
and metrics.

The rollout stores references. Each minibatch rebuilds observations and masks from them, with the
function and the observation statistics that were used for acting. The probability ratio is
therefore 1 until the first gradient step (metric `ratio_error`). The memory of a recurrent policy
is rebuilt too. It starts from its value at the beginning of the rollout, runs through all steps,
and is reset at the start of each episode. Gradients flow through these steps.

What wraps a learner (stages, advice, an older actor, shares of symbols) is in `rl.wrappers`; what
is said about PPO is in `rl.info`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.config import PPOConfig, RunConfig
from jaxtrade.networks.heads import Network
from jaxtrade.networks.torso import forget
from jaxtrade.rl import epochs, info, returns, wrappers
from jaxtrade.rl.acting import act, advice_terms, first_parameters
from jaxtrade.rl.actor_critic import (
    act_by_chance,
    decide,
    explorer,
    first_policy,
    forward,
    make_network,
    policy_of,
    value_of,
)
from jaxtrade.rl.algorithms import LearnerKind, OutputLayer
from jaxtrade.rl.context import Context, MakeOptions, check_sequences, contexts_of, require_env
from jaxtrade.rl.optim import linear, progress
from jaxtrade.rl.rollout import (
    action_metrics,
    after_update,
    following_values,
    learning_rates,
    merge_metrics,
    roll_out,
    rollout_metrics,
    scaled_rewards,
)
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState, first_state, floats_of
from jaxtrade.rl.wrappers import Experience
from jaxtrade.types import Array, Env, Learner, Metrics, PyTree, Transition

PPO = Context[PPOConfig, Network]
WORST = ("ratio_error",)  # the diagnostic of the first gradient step whose largest value counts


class PPOHParams(struct.PyTreeNode):
    """The tunable floats, each float32[]; meanings as in `PPOConfig`.

    They are leaves, so a sweep is a vmap.
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


def make_hparams(config: PPOConfig) -> PPOHParams:
    """Return the tunable floats of `config`.

    If `ent_coef_end` is None, the entropy bonus stays constant.
    """
    end = config.ent_coef if config.ent_coef_end is None else config.ent_coef_end
    return floats_of(PPOHParams, config.model_copy(update={"ent_coef_end": end}))


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H],
    the memory before the first step of each sequence.

    terms: advice terms (`acting.advice_terms`), or None.
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


def ppo_loss(
    ppo: PPO,
    policy: Policy,
    params: PyTree,
    hparams: PPOHParams,
    ent_coef: Array,
    parameters: PyTree,
    batch: Batch,
) -> tuple[Array, Metrics]:
    """Compute PPO's loss over one minibatch (Schulman et al. 2017, equation 9).

        loss = clipped surrogate + vf_coef * value loss - ent_coef * entropy + cost of the fusion

    The loss and its terms are over the rows of this device, and the caller averages the gradients
    over devices.

    Args:
        policy: the policy that learns, as it was before the gradient steps, from `acting.prepare_policy`.
        parameters: packed; they replace those of `policy`.
        ent_coef: float32[], of this update.

    Returns:
        (loss, diagnostics).
    """
    logits, value, mask, cost = forward(
        ppo,
        policy.replace(parameters=parameters),
        batch.carry,
        batch.ref,
        batch.first,
        batch.terms,
        params,
    )
    log_prob, entropy = ppo.form.log_prob_and_entropy(logits, mask, batch.action)
    rows = {
        "policy_loss": returns.clipped_surrogate(
            log_prob, batch.log_prob, batch.advantage, hparams.clip_eps
        ),
        "value_loss": returns.squared_error(value, batch.value, batch.target, hparams.vf_clip_eps),
        "entropy": entropy,
        "approx_kl": returns.approx_kl(log_prob, batch.log_prob),
        "clip_fraction": returns.is_clipped(log_prob, batch.log_prob, hparams.clip_eps),
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


# (ppo, policy that learns, params, hparams, rewards [T, N], memory before the first step and after
# the last one, reference after it, transitions [T, N, ...]) -> log-probabilities and values of the
# policy that learns, advantages and value targets, float32[T, N] each
Targets = Callable[..., tuple[Array, Array, Array, Array]]


def gae_targets(
    ppo: PPO,
    policy: Policy,
    params: PyTree,
    hparams: PPOHParams,
    reward: Array,
    before: PyTree,
    after: PyTree,
    ref: PyTree,
    seen: Transition,
) -> tuple[Array, Array, Array, Array]:
    """Compute `Targets` of a policy that acted itself.

    They are generalised advantages, and the TD(lambda) return as the target, advantage + value.
    """
    del before
    log_prob, own = seen.extras.log_prob, seen.extras.value
    value = partial(value_of, ppo, policy, params=params)
    advantage = returns.gae(
        reward,
        own,
        following_values(value, own, after, ref, seen),
        seen.terminated,
        seen.truncated,
        hparams.gamma,
        hparams.gae_lambda,
    )
    return log_prob, own, advantage, advantage + own


# --- The correction for an actor that is older than the policy that learns (`actor.delay`)
#
# V-trace corrects for the policy that acted, and the rows of a batch hold the values and the
# log-probabilities of the policy that learns: the loss clips the ratio to that policy, and the
# advantages carry V-trace's weight from the one that acted. This is the decoupled objective of
# Hilton et al. 2022 ("Batch size-invariance for policy optimization"), as in RLlib's APPO, whose
# target network is here the policy before the first gradient step.


def reevaluate(
    ppo: PPO, policy: Policy, carry: PyTree, seen: Transition, params: PyTree
) -> tuple[Transition, PyTree]:
    """Evaluate a rollout [T, N, ...] of another policy by `policy`.

    It takes each step as in acting. Log-probabilities of the actions taken, values and memories of
    the result are those of `policy`.

    Args:
        policy: from `acting.prepare_policy`.
        carry: float32[N, H], the memory stored at the start of the rollout, from which training
            sequences begin too; None without a memory.

    Returns:
        (the rollout, the memory after it).
    """

    def one(carry: PyTree, ref: PyTree, action: Array) -> tuple[PyTree, Array, Array]:
        decided = decide(ppo, policy, carry, ref, params)
        log_prob, _ = ppo.form.log_prob_and_entropy(decided.logits, decided.mask, action)
        return decided.carry, log_prob, decided.value

    def step(carry: PyTree, now: tuple[PyTree, Array, Array]) -> tuple[PyTree, Any]:
        ref, first, action = now
        carry, log_prob, value = jax.vmap(one)(forget(carry, first), ref, action)
        return carry, (log_prob, value, carry)

    last, (log_prob, value, carries) = jax.lax.scan(
        step, carry, (seen.ref, seen.first, seen.action)
    )
    extras = seen.extras._replace(log_prob=log_prob, value=value)
    return seen._replace(carry=carries, extras=extras), last


def vtrace_targets(
    ppo: PPO,
    policy: Policy,
    params: PyTree,
    hparams: PPOHParams,
    reward: Array,
    before: PyTree,
    after: PyTree,
    ref: PyTree,
    seen: Transition,
) -> tuple[Array, Array, Array, Array]:
    """Compute `Targets` of an older actor: advantages and targets by V-trace."""
    del after
    own, last = reevaluate(ppo, policy, before, seen, params)
    log_prob, values = own.extras.log_prob, own.extras.value
    value = partial(value_of, ppo, policy, params=params)
    target, advantage = returns.vtrace(
        reward,
        values,
        following_values(value, values, last, ref, own),
        seen.terminated,
        seen.truncated,
        jnp.exp(log_prob - seen.extras.log_prob),
        hparams.gamma,
        hparams.gae_lambda,
        ppo.actor.rho_clip,
        ppo.actor.c_clip,
    )
    return log_prob, values, advantage, target


# --- The update


def update(
    ppo: PPO, targets: Targets, state: TrainState, policy: Policy, params: PyTree
) -> tuple[TrainState, Metrics, Experience]:
    """Run one update (`wrappers.Update`).

    Once the approximate KL of a minibatch exceeds `target_kl` (> 0), no further gradient step of
    this update is applied.
    """
    hparams = state.hparams
    key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    ent_coef = linear(hparams.ent_coef, hparams.ent_coef_end, fraction)

    rollout = roll_out(ppo, explorer, state, policy, params, key_rollout)
    policy, seen = rollout.policy, rollout.seen
    after, reward, _ = scaled_rewards(ppo, rollout.state, seen)
    log_prob, value, advantage, target = ppo.reduce.alone(
        partial(targets, ppo, policy, params, hparams)
    )(reward, state.carry, after.carry, after.ref, seen)
    terms = ppo.reduce.alone(jax.vmap(jax.vmap(partial(advice_terms, ppo, policy))))(seen.ref)
    batch = Batch(
        state.carry, seen.ref, seen.first, terms, seen.action, log_prob, value, advantage, target
    )
    advantages = advantage.reshape(-1)

    def prepare(picked: Array) -> dict[str, Array]:
        chosen = advantages[picked]
        if ppo.config.normalise_advantages:
            chosen = ppo.reduce.standardise(chosen)
        return {"advantage": chosen}

    def stops(terms: Metrics) -> Array:
        return (hparams.target_kl > 0.0) & (terms["approx_kl"] > hparams.target_kl)

    # Without the advantages, which are picked and standardised for a whole epoch at once.
    rows = epochs.rows_of(batch._replace(advantage=None))
    learnt, history = epochs.learn(
        ppo,
        after,
        partial(ppo_loss, ppo, policy, params, hparams, ent_coef),
        rows,
        key_epochs,
        learning_rates(ppo, state.params, learning_rate, fraction, hparams.adapter_freeze),
        prepare=prepare,
        stops=stops,
        largest=WORST,
        rows_at_once=ppo.form.rows_at_once(ppo.config.gradient_rows),
    )
    new = after_update(ppo, learnt, seen.ref, params)
    metrics = merge_metrics(
        rollout_metrics(ppo, rollout, params),
        epochs.step_metrics(history, first=WORST),
        action_metrics(ppo, seen),
        {
            "explained_variance": returns.explained_variance(value, target, ppo.reduce),
            "learning_rate": learning_rate,
            "ent_coef": ent_coef,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        },
    )
    # Bars at which the policy is undecided need advice most: the expectation is its entropy.
    return (
        new,
        metrics,
        Experience(rollout, lambda: -seen.extras.log_prob, lambda: jnp.abs(advantage), log_prob),
    )


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """Implement `Learner.init`. Raises TypeError if the key is not a typed key."""
    network = make_network(ppo.settings, ppo.env.num_actions)
    first = partial(first_parameters, network, ppo.env.observation_size, fusion=ppo.fusion)
    return first_state(ppo, key, params, first, make_hparams(ppo.config))


def make_ppo(
    config: RunConfig,
    env: Env,
    total_updates: int,
    **around: Unpack[MakeOptions],
) -> Learner:
    """Build PPO on `env` for a run of `total_updates` updates. The schedules span this length.

    Args:
        config: the sections `ppo`, `network`, `rollout`, `compute`, `sampler` and `actor` are read.
            They hold static counts and the initial values of the tunable floats.
        around: each of these keywords may be left out.
            summarise: extra metrics, computed from the environment's `info`.
            stage: changes `params` as the run goes on. The whole update uses the changed
                parameters, and the stage's metrics are reported. `act` does not apply the stage.
            fusion: combines the policy with advice. `params.advice` then holds the advice.
            reduce: reduces metrics over environments that several devices share
                (`networks.reductions`). The counts of `config.rollout` are then
                those of one device.
            platform: where the program will run, such as "cpu" or "gpu" (`accelerators.form_of`).
                Default: that of this process.

    Returns:
        `Learner` whose state is a `TrainState`. All of its functions work under vmap over states
        with shared `params`. Without a fusion, `inputs` of its update is None. With a fusion it is
        the `AdviceState` (`rl.advice`) of this update, and the metric `visits` is float32[T bars]
        (`listening.visits`). `act` handles one environment and returns `ActExtras`; use vmap for
        many. Its `explore` is a Python bool: True samples an action, False takes the most probable
        legal action and needs no key. `act` computes float32 products, whatever precision the
        update has.

    Raises:
        ConfigError: the network has a memory, but a minibatch cannot hold whole rollouts of some
            environments; or `env` is no `types.Env`.
    """
    require_env(env)
    exact, ppo = contexts_of(
        config,
        config.ppo,
        env,
        total_updates,
        partial(make_network, config.network, env.num_actions),
        **around,
    )
    check_sequences(ppo, "ppo")
    targets = vtrace_targets if config.actor.delay else gae_targets
    first, composed = wrappers.compose(
        ppo, partial(init, ppo), partial(update, ppo, targets), policy_of
    )
    return Learner(
        init=first,
        update=composed,
        act=partial(act, act_by_chance, exact),
        policy=policy_of,
        info=info.ppo(config, ppo.form),
        carry=ppo.first_carry,
    )


LEARNER = LearnerKind(make_ppo, first_policy, OutputLayer("policy_head"), divides=True)
