"""Types that all learners share: the policy that they export, and running totals of episodes."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct

from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.opening import Opening, settled
from jaxtrade.types import Array, PyTree


class Policy(struct.PyTreeNode):
    """The part of a learner's state that is evaluated and exported.

    parameters: network parameters. normaliser: observation statistics, None for a learner without
        them. fusion: state
    of an advice fusion (`rl.listening.fusion.Trust`), None without advice. opening: schedule state
    of actions that a transfer added. It is None if there are none, or once they are fully open.
    epsilon: float32[], probability of a random legal action where a Q-learner explores; None for a
    learner whose network gives a distribution.
    """

    parameters: PyTree
    normaliser: RunningStats | None = None
    fusion: Any = None
    opening: Opening | None = None
    epsilon: Array | None = None


class EpisodeTotals(struct.PyTreeNode):
    """Totals of the running episode of each environment: undiscounted reward float32[N], length
    int32[N] in steps.
    """

    reward: Array
    length: Array


def finished(policy: Policy) -> Policy:
    """The policy for export: a completed opening is removed. It reads values, so traced arrays are
    not accepted.
    """
    return policy.replace(opening=settled(policy.opening))


def strong_types(tree: PyTree) -> PyTree:
    """The same arrays with strong types.

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
