"""The smallest learner: one softmax over actions, whatever is observed, moved by the reward
(REINFORCE).
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.rl.rollout import unroll
from jaxtrade.rl.state import Policy, reset_all
from jaxtrade.types import Array, Learner, LearnerInfo, PyTree


class ToyState(struct.PyTreeNode):
    logits: Array
    worlds: PyTree  # (state, ref, first, carry) of all environments
    key: Array
    update: Array
    total_updates: Array
    rollbacks: Array
    hparams: None = None


def make_toy(env, total_updates, num_envs=4, num_steps=8):
    def act(policy, carry, ref, params, key, explore):
        logits = jnp.where(env.action_mask(ref), policy.parameters, -jnp.inf)
        return carry, jax.random.categorical(key, logits) if explore else logits.argmax(-1), None

    def init(key, params):
        worlds = (*reset_all(env, key, params, num_envs), jnp.ones(num_envs, bool), None)
        return ToyState(
            jnp.zeros(env.num_actions),
            worlds,
            key,
            jnp.int32(0),
            jnp.int32(total_updates),
            jnp.int32(0),
        )

    def update(state, params, inputs=None):
        key = jax.random.fold_in(state.key, state.update)
        worlds, seen, _ = unroll(
            env,
            lambda carry, ref, key: act(Policy(state.logits), carry, ref, params, key, True),
            *state.worlds,
            params=params,
            key=key,
            num_steps=num_steps,
        )
        gain = (seen.reward - seen.reward.mean())[..., None] * jax.nn.one_hot(
            seen.action, env.num_actions
        )
        logits, finite = state.logits + gain.mean((0, 1)), jnp.isfinite(gain).all()
        return state.replace(logits=logits, worlds=worlds, update=state.update + 1), {
            "finite": finite
        }

    return Learner(
        init, update, act, lambda state: Policy(state.logits), LearnerInfo(num_envs * num_steps)
    )
