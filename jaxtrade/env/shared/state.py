"""The pytrees of a shared market. Prices are int32 ticks, quantities signed contracts, as in
`env.state`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxtrade.env.state import EnvState, Event
from jaxtrade.types import Array


class ImpactParams(struct.PyTreeNode):
    """Traced figures of price impact; int32.

    kappa: [] thousandths of a tick per net contract. decay: [] thousandths of the offset that are
        left after a bar.
    temporary: [M + 1] thousandths of a tick by the net number of contracts ordered at an open, 0 to
        M.
    """

    kappa: Array
    decay: Array
    temporary: Array


class World(struct.PyTreeNode):
    """What the agents have done to the market, int32[]; the same in the states of all agents of a
    world.

    offset: thousandths of a tick by which prices lay above the historical ones in the last bar.
        flow: net contracts
    that all agents bought in the last bar. inventory: contracts that the market maker holds.
    """

    offset: Array
    flow: Array
    inventory: Array

    @classmethod
    def new(cls) -> World:
        """The world at the start of a session: historical prices, and no position."""
        zero = jnp.int32(0)
        return cls(zero, zero, zero)


class SharedState(EnvState):
    """The state of one agent in a world. Its position is relative to the offset: a level of 100
    ticks under an offset of 3 is the price 103.
    """

    world: Any = None  # a `World`; `EnvState` ends with a default, so this needs one


class SharedEvent(Event):
    """An `Event` of a shared market, whose prices are relative to the offset; int32[] besides.

    offset: ticks of the offset in this bar. impact: ticks by which orders at the open filled
        higher. profit: mills,
    this agent's change of equity, from fills and marks alone. maker: mills, the market maker's
    change of equity.
    """

    offset: Array
    impact: Array
    profit: Array
    maker: Array
