"""What all learners share.

The policy that they export, new actions that open step by step, first states of environments,
running totals of episodes, and which policy acts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import ActorConfig
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.types import Array, Env, Metrics, PyTree

# A schedule that opens the new actions of a transferred policy step by step.
#
# A transfer may add actions that the policy of the source run did not have. At first the policy
# must act as the source policy did. Later it must try the new actions often enough to learn them.
# Let z be the log-sum-exp of the legal old logits. The logit l of each new action becomes
#
#     l + log eps,    log eps = (1 - fraction) (log probability + z),    fraction in [0, 1].
#
# At fraction 0 the new columns of the head are still zero. Each of n legal new actions then has the
# probability `probability / (1 + n probability)`, whatever the old logits are. At fraction 1 eps is
# 1, so the logits are those of the head. A `probability` of 0 (eps = 0) masks the new actions. The
# offset is part of the policy: sampling, log-probabilities and gradients include it.


class UnlockState(struct.PyTreeNode):
    """State of an action unlock.

    new: bool[A] actions that the source policy did not have.
    probability: float32[] start value of the formula above; 0 closes the new actions.
    fraction: float32[] in [0, 1]; 1 means fully open.
    """

    new: Array
    probability: Array
    fraction: Array


class UnlockPlan(struct.PyTreeNode):
    """Schedule of an action unlock.

    new: bool[A] and probability: float32[], as in `UnlockState`.
    until: float32[] fraction of the run at which the new actions are fully open.
    """

    new: Array
    probability: Array
    until: Array


def unlock_at(plan: UnlockPlan | None, progress: Array) -> UnlockState | None:
    """Return the action unlock at a fraction of the run (float32[] in [0, 1]).

    It is None without a plan.
    """
    if plan is None:
        return None
    return UnlockState(plan.new, plan.probability, jnp.clip(progress / plan.until, 0.0, 1.0))


def lock_actions(opening: UnlockState | None) -> UnlockState | None:
    """Return the same action unlock with eps = 0: the new actions are masked."""
    if opening is None:
        return None
    return opening.replace(
        probability=jnp.zeros_like(opening.probability), fraction=jnp.zeros_like(opening.fraction)
    )


def unlock_actions(opening: UnlockState | None, logits: Array, mask: Array) -> tuple[Array, Array]:
    """Apply an action unlock and return (logits float32[..., A], mask bool[..., A]).

    At least one old action must be legal. This always holds: HOLD is always legal and never new.
    """
    if opening is None:
        return logits, mask
    old = mask & ~opening.new
    mass = jax.nn.logsumexp(logits, axis=-1, keepdims=True, where=old)
    # The mask handles eps = 0: a logit of -inf would give a gradient of 0 * inf = NaN.
    start = jnp.log(jnp.where(opening.probability > 0.0, opening.probability, 1.0))
    offset = (1.0 - opening.fraction) * (start + mass)
    shut = opening.new & (opening.probability <= 0.0)
    return jnp.where(opening.new, logits + offset, logits), mask & ~shut


class Policy(struct.PyTreeNode):
    """The part of a learner's state that is evaluated and exported.

    parameters: network parameters.
    normaliser: observation statistics, None for a learner without them.
    fusion: state of an advice fusion (`rl.advice.Trust`), None without advice.
    opening: schedule state of actions that a transfer added. It is None if there are none, or once
        they are fully open.
    epsilon: float32[], probability of a random legal action where a Q-learner explores; None for a
        learner whose network gives a distribution.
    """

    parameters: PyTree
    normaliser: RunningStats | None = None
    fusion: Any = None
    opening: UnlockState | None = None
    epsilon: Array | None = None


class EpisodeTotals(struct.PyTreeNode):
    """Totals of the running episode of each environment.

    They are undiscounted reward float32[N] and length int32[N] in steps.
    """

    reward: Array
    length: Array


def finish_policy(policy: Policy) -> Policy:
    """Remove a completed action unlock from the policy, for export.

    It reads values, so traced arrays are not accepted.
    """
    opening = policy.opening
    done = opening is not None and bool((opening.fraction >= 1.0).all())
    return policy.replace(opening=None) if done else policy


def strong_types(tree: PyTree) -> PyTree:
    """Convert the arrays to strong types.

    A jitted update returns strongly typed arrays. With weakly typed first arguments its second call
    would compile again.
    """

    def strengthen(leaf: Array) -> Array:
        if jax.numpy.issubdtype(
            leaf.dtype, jax.dtypes.extended
        ):  # typed random keys cannot be converted
            return leaf
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(strengthen, tree)


def env_keys(key: Array, num_envs: int, first_env: int | Array = 0) -> Array:
    """Return `fold_in(key, global number of the environment)` for each environment (key[N]).

    An environment draws the same random numbers however the environments are spread over devices.
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first_env + jnp.arange(num_envs))


def reset_all(
    env: Env, key: Array, params: PyTree, num_envs: int, first_env: int | Array = 0
) -> tuple[PyTree, PyTree]:
    """Reset N environments and return (state, ref), each with a leading axis N.

    `first_env` is the first global number.
    """
    return jax.vmap(env.reset, (0, None))(env_keys(key, num_envs, first_env), params)


# An actor that is `actor.delay` updates older than the policy that learns.
#
# Every policy has a version, the number of updates that made it. Update u learns from the policy of
# version u. Without a delay that policy acts too, and the lag, u minus the version that acted, is
# 0. With a delay of d updates, the policy of version max(u - d, 0) acts: its parameters and its
# observation statistics. Schedules (epsilon, opened actions, trust in advice) are those of update u
# for both.


class PastPolicies(struct.PyTreeNode):
    """The policies of the last d updates, oldest first (`TrainState.actor`).

    The newest is in the state itself, so a run holds d + 1.

    parameters, normaliser: as of `Policy`, [d, ...].
    version: int32[d], that of each policy; at first all are 0.
    """

    parameters: PyTree
    normaliser: PyTree
    version: Array


class Acting(NamedTuple):
    """The policy that acts in an update.

    policy: the policy.
    version: int32[], its version.
    kept: the older policies after it.
    """

    policy: Policy
    version: Array
    kept: PastPolicies | None


def first_delayed(config: ActorConfig, parameters: PyTree, normaliser: PyTree) -> PastPolicies:
    """Return the older policies before the first update."""
    d = config.delay
    parameters, normaliser = jax.tree.map(
        lambda x: jnp.repeat(x[None], d, axis=0), (parameters, normaliser)
    )
    return PastPolicies(parameters, normaliser, jnp.zeros(d, jnp.int32))


def acting(delayed: PastPolicies | None, policy: Policy, update: Array) -> Acting:
    """Select the policy that acts in update `update` int32[].

    The oldest policy acts and leaves, and the one that learns joins. They move up by one place,
    which costs a copy of d policies in each update: a ring with a moving place would look up and
    write by index, which XLA compiles badly for several agents (on a CPU it aborts).

    Args:
        policy: the policy that learns, not packed (`rl.acting.prepare_policy`).
    """
    if delayed is None:
        return Acting(policy, update, None)
    newest = PastPolicies(policy.parameters, policy.normaliser, update)
    # A run that begins from another run's policy changes the parameters of its first state alone.
    older = jax.tree.map(lambda kept, new: jnp.where(update == 0, new, kept), delayed, newest)
    oldest: Any = jax.tree.map(lambda x: x[0], older)
    kept = jax.tree.map(lambda x, new: jnp.concatenate([x[1:], new[None]]), older, newest)
    return Acting(
        policy.replace(parameters=oldest.parameters, normaliser=oldest.normaliser),
        oldest.version,
        kept,
    )


def lag_metrics(update: Array, version: Array) -> Metrics:
    """Compute `lag_min` and `lag_max` (int32[]).

    They say by how many updates the policies that acted are older than the one that learns.

    Args:
        update: int32[], the version that learns.
        version: int32[...], the versions that acted.
    """
    chex.assert_type([update, version], int)
    lag = update - version
    return {"lag_min": lag.min(), "lag_max": lag.max()}
