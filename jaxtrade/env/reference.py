"""What a rollout stores of an observation, and the names of its slots. Tasks and observations are
built on both.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxtrade.types import Array


class ObservationRef(struct.PyTreeNode):
    """The form in which a rollout stores an observation.

    row: int32[S] market row. legs: int32[S, 5] quantity, entry, stop, target, bars in position.
        legal:
    uint8[ceil(A / 8)], bits of the mask. account: the visible part of the task's record (an
    `AccountSeen` for
    `advised`), None (static) without a record. aux: the visible advice (`AdviceSeen`), None (static) without an
    advisor. num_actions: A (static).
    """

    row: Array
    legs: Array
    account: Any
    legal: Array
    aux: Any
    num_actions: int = struct.field(pytree_node=False)

    @property
    def mask(self) -> Array:
        """bool[..., A]: the legal actions of one reference or of stacked references."""
        return jnp.stack([self.allows(i) for i in range(self.num_actions)], axis=-1)

    def allows(self, action: int) -> Array:
        """bool[...]: whether one action is legal."""
        return ((self.legal[..., action // 8] >> (action % 8)) & 1).astype(bool)


def bits_of(mask: Array) -> Array:
    """Pack a mask bool[..., A] into uint8[..., ceil(A / 8)]. Action 8 i + j is bit j of byte i."""

    def byte(first: int) -> Array:
        bits = [
            mask[..., i].astype(jnp.uint8) << (i - first)
            for i in range(first, min(first + 8, mask.shape[-1]))
        ]
        return functools.reduce(jnp.bitwise_or, bits)

    return jnp.stack([byte(first) for first in range(0, mask.shape[-1], 8)], axis=-1)


@dataclass(frozen=True)
class Slot:
    """One entry of the observation vector. warm_up: bars of data before its first valid value."""

    name: str
    unit: str
    warm_up: int
