"""Which policy acts: the one that learns, or one that is `actor.delay` updates older.

Every policy has a version, the number of updates that made it. Update u learns from the policy of
version u. Without a delay that policy acts too, and the lag, u minus the version that acted, is 0.
With a delay of d updates, the policy of version max(u - d, 0) acts: its parameters and its
observation statistics. Schedules (epsilon, opened actions, trust in advice) are those of update u
for both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import ActorConfig
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree


class Delayed(struct.PyTreeNode):
    """The policies of the last d updates, oldest first (`TrainState.actor`). The newest is in the
    state itself, so a run holds d + 1.

    parameters, normaliser: as of `Policy`, [d, ...]. version: int32[d], that of each policy; at
        first all are 0.
    """

    parameters: PyTree
    normaliser: PyTree
    version: Array


class Acting(NamedTuple):
    """Who acts in an update. policy: the policy. version: int32[], its version. kept: the older
    policies after it.
    """

    policy: Policy
    version: Array
    kept: Delayed | None


def first_delayed(config: ActorConfig, parameters: PyTree, normaliser: PyTree) -> Delayed | None:
    """The older policies before the first update, or None without a delay."""
    if not config.delay:
        return None
    d = config.delay
    parameters, normaliser = jax.tree.map(
        lambda x: jnp.repeat(x[None], d, axis=0), (parameters, normaliser)
    )
    return Delayed(parameters, normaliser, jnp.zeros(d, jnp.int32))


def acting(delayed: Delayed | None, policy: Policy, update: Array) -> Acting:
    """Who acts in update `update` int32[]. policy: the policy that learns, not packed
    (`rl.acting.ready`).

    The oldest policy acts and leaves, and the one that learns joins. They move up by one place,
    which costs a copy of d policies in each update: a ring with a moving place would look up and
    write by index, which XLA compiles badly for several agents (on a CPU it aborts).
    """
    if delayed is None:
        return Acting(policy, update, None)
    newest = Delayed(policy.parameters, policy.normaliser, update)
    # A run that begins from another run's policy changes the parameters of its first state alone.
    older = jax.tree.map(lambda kept, new: jnp.where(update == 0, new, kept), delayed, newest)
    oldest: Any = jax.tree.map(lambda x: x[0], older)
    kept = jax.tree.map(lambda x, new: jnp.concatenate([x[1:], new[None]]), older, newest)
    return Acting(
        policy.replace(parameters=oldest.parameters, normaliser=oldest.normaliser),
        oldest.version,
        kept,
    )


def lag_metrics(update: Array, version: Array) -> dict[str, Array]:
    """`lag_min` and `lag_max`, int32[]: by how many updates the policies that acted are older than
    the one that learns.

    update: int32[], the version that learns. version: int32[...], the versions that acted.
    """
    chex.assert_type([update, version], int)
    lag = update - version
    return {"lag_min": lag.min(), "lag_max": lag.max()}
