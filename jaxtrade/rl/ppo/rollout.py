"""PPO's rollout: acting, advantages and targets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax

from jaxtrade.rl.acting import advice_terms
from jaxtrade.rl.collecting import Tally, roll_out, scaled_rewards
from jaxtrade.rl.ppo.act import act_by_chance, value_of
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.loss import Batch
from jaxtrade.rl.returns import gae, next_values
from jaxtrade.rl.rollout import final_values
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree, Transition


class StepExtras(NamedTuple):
    """`Transition.extras` of PPO: the part of `ActExtras` that the update reads. Logits and masks are recomputed."""

    log_prob: Array
    value: Array
    overridden: Array | None


def collect(ppo: PPO, state: TrainState, policy: Policy, params: PyTree,
            key: Array) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout, advantages and value targets. policy: from `acting.ready`.

    Returns:
        (state after the last step, transitions [T, N, ...], rows for the loss, tally). The value target is advantage +
        value, the TD(lambda) return.
    """

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ppo, policy, carry, ref, params, chance)
        return carry, action, StepExtras(extras.log_prob, extras.value, extras.overridden)

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ppo, policy, carry, ref, params)

    def advantages(reward: Array, carry: PyTree, ref: PyTree, seen: Transition) -> tuple[Array, Array]:
        values = seen.extras.value
        # The carry is not reset here. Where an episode has just ended, `gae` does not read the value of `ref`.
        following = next_values(values, jax.vmap(value)(carry, ref), final_values(value, seen), seen.truncated)
        advantage = gae(reward, values, following, seen.terminated, seen.truncated, state.hparams.gamma,
                        state.hparams.gae_lambda)
        return advantage, advantage + values

    after, seen, tally = roll_out(ppo, explore, state, params, key)
    after, reward = scaled_rewards(ppo, after, seen)
    advantage, target = ppo.reduce.alone(advantages)(reward, after.carry, after.ref, seen)
    terms = ppo.reduce.alone(jax.vmap(jax.vmap(partial(advice_terms, ppo, policy))))(seen.ref)
    batch = Batch(state.carry, seen.ref, seen.first, terms, seen.action, seen.extras.log_prob, seen.extras.value,
                  advantage, target)
    return after, seen, batch, tally
