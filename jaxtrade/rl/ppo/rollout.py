"""PPO's rollout: acting, advantages and targets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.rl.acting import advice_terms
from jaxtrade.rl.collecting import Tally, roll_out, scaled_rewards
from jaxtrade.rl.ppo.act import act_by_chance, value_of
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.judged import Judged, judged
from jaxtrade.rl.ppo.loss import Batch
from jaxtrade.rl.returns import gae, next_values, vtrace
from jaxtrade.rl.rollout import final_values
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree, Transition


class StepExtras(NamedTuple):
    """`Transition.extras` of PPO: the part of `ActExtras` that the update reads. Logits and masks
    are recomputed.
    """

    log_prob: Array
    value: Array
    overridden: Array | None


def collect(
    ppo: PPO, state: TrainState, policy: Policy, behaviour: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout, advantages and value targets. policy, behaviour: the one that learns and
    the one that acts, from `acting.ready`; the same one without a delay.

    With a delay, V-trace corrects for the policy that acted, and the rows hold the values and the
    log-probabilities of the policy that learns: the loss clips the ratio to that policy, and the
    advantages carry V-trace's weight from the one that acted. This is the decoupled objective of
    Hilton et al. 2022 ("Batch size-invariance for policy optimization"), as in RLlib's APPO, whose
    target network is here the policy before the first gradient step.

    Returns:
        (state after the last step, transitions [T, N, ...], rows for the loss, tally). The value
        target is advantage + value, the TD(lambda) return, or that of V-trace.
    """

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ppo, behaviour, carry, ref, params, chance)
        return carry, action, StepExtras(extras.log_prob, extras.value, extras.overridden)

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ppo, policy, carry, ref, params)

    def advantages(
        reward: Array, before: PyTree, after: PyTree, ref: PyTree, seen: Transition
    ) -> tuple[Array, ...]:
        """Log-probabilities and values of the policy that learns, advantages and targets. before,
        after: memory of each environment before the first step and after the last one."""
        own, hparams = (
            Judged(seen.extras.log_prob, seen.extras.value, seen.carry, after),
            state.hparams,
        )
        if ppo.actor.delay:
            own = judged(ppo, policy, before, seen, params)
        # The carry is not reset here. Where an episode has just ended, `gae` does not read the
        # value of `ref`.
        following = next_values(
            own.value,
            jax.vmap(value)(own.last, ref),
            final_values(value, seen._replace(carry=own.carries)),
            seen.truncated,
        )
        if ppo.actor.delay:
            target, advantage = vtrace(
                reward,
                own.value,
                following,
                seen.terminated,
                seen.truncated,
                jnp.exp(own.log_prob - seen.extras.log_prob),
                hparams.gamma,
                hparams.gae_lambda,
                ppo.actor.rho_clip,
                ppo.actor.c_clip,
            )
        else:
            advantage = gae(
                reward,
                own.value,
                following,
                seen.terminated,
                seen.truncated,
                hparams.gamma,
                hparams.gae_lambda,
            )
            target = advantage + own.value
        return own.log_prob, own.value, advantage, target

    after, seen, tally = roll_out(ppo, explore, state, params, key)
    after, reward = scaled_rewards(ppo, after, seen)
    log_prob, values, advantage, target = ppo.reduce.alone(advantages)(
        reward, state.carry, after.carry, after.ref, seen
    )
    terms = ppo.reduce.alone(jax.vmap(jax.vmap(partial(advice_terms, ppo, policy))))(seen.ref)
    batch = Batch(
        state.carry, seen.ref, seen.first, terms, seen.action, log_prob, values, advantage, target
    )
    return after, seen, batch, tally
