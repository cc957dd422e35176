"""What learners have in common: the policy that leaves them, and running totals of episodes."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct

from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.opening import Opening, settled
from jaxtrade.types import Array, PyTree


class Policy(struct.PyTreeNode):
    """What is evaluated and exported.

    parameters: of the network. normaliser: observation statistics, None for a learner that keeps none. fusion: state
    of an advice fusion (`advisor.fusion.Trust`), None without one. opening: of actions that a transfer added, None once
    they are open and where none were added.
    """

    parameters: PyTree
    normaliser: RunningStats | None = None
    fusion: Any = None
    opening: Opening | None = None


class EpisodeTotals(struct.PyTreeNode):
    """Of the episode each environment is in: reward float32[N] (undiscounted), length int32[N] (steps)."""

    reward: Array
    length: Array


def finished(policy: Policy) -> Policy:
    """The policy as it is exported: without the opening of actions that are open. Reads values."""
    return policy.replace(opening=settled(policy.opening))


def strong_types(tree: PyTree) -> PyTree:
    """The same arrays without weak types, which would make the second call of a jitted function trace again."""

    def strengthen(leaf: Array) -> Array:
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(strengthen, tree)
