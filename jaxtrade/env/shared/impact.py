"""The pytrees of a shared market, and price impact in integers.

Prices are int32 ticks, quantities signed contracts, as in `env.state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.config import RunConfig, SharedConfig
from jaxtrade.config.allocate import PARTS, most_contracts, temporary
from jaxtrade.env.state import KEEP_STOP, NO_LEVEL, EnvParams, EnvState, Event, Order, Position
from jaxtrade.errors import ConfigError
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


# --- Price impact in integers: the offset of all later prices, the price of orders at an open,
# positions under an offset.
#
# The offset follows I <- decay I + kappa q with the net contracts q of a bar, in thousandths of a
# tick. The decayed part is rounded towards zero, so that an offset without new orders always returns
# to zero.
#
# Orders at an open fill at the offset after them: I + kappa q + eta sqrt(q), rounded once. If they
# filled without kappa q, agents that buy together would raise the mark of what they have just bought:
# a gain from impact alone, which linear permanent impact must not allow (G. Huberman and W. Stanzl,
# "Price manipulation and quasi-arbitrage", Econometrica 72(4), 2004). The temporary part grows with
# the square root (B. Toth et al., "Anomalous price impact and the critical nature of liquidity in
# financial markets", Physical Review X 1, 2011). Its table is made on the host from integer square
# roots, because a float square root may differ from one device to another.


def table_of(eta: int, most: int) -> np.ndarray:
    """int32[most + 1] thousandths: `config.allocate.temporary` of 0 to `most` contracts."""
    return np.array([temporary(eta, contracts) for contracts in range(most + 1)], np.int32)


def impact_params(config: RunConfig) -> ImpactParams:
    """The figures of a configuration with `shared.on`."""
    shared = config.shared
    return ImpactParams(
        jnp.int32(shared.kappa),
        jnp.int32(round(shared.decay * PARTS)),
        jnp.asarray(table_of(shared.eta, most_contracts(config))),
    )


def with_impact(params: EnvParams, config: RunConfig) -> EnvParams:
    """The parameters for an `env.shared.dynamics.SharedEnv`; unchanged without `shared.on`.

    Raises ConfigError for a market whose profits are converted: each account's money is rounded
    alone there, so fills would not add up with the market maker's.
    """
    if not config.shared.on:
        return params
    if params.market.tick_value is not None:
        raise ConfigError(
            f"shared.on=true: profits on {config.data.market} are converted to dollars and rounded for "
            "each agent, so money would not add up; choose a market in dollars, such as ES or EURUSD"
        )
    return params.replace(impact=impact_params(config))


def in_ticks(offset: Array) -> Array:
    """int32[] ticks: thousandths rounded to the nearest tick, a half away from zero."""
    return jnp.sign(offset) * ((jnp.abs(offset) + PARTS // 2) // PARTS)


def next_offset(world: World, impact: ImpactParams) -> Array:
    """int32[] thousandths: the offset of the next bar."""
    left = jnp.sign(world.offset) * (jnp.abs(world.offset) * impact.decay // PARTS)
    return left + impact.kappa * world.flow


def opening_ticks(offset: Array, net: Array, impact: ImpactParams) -> Array:
    """int32[] ticks above the offset (thousandths) at which orders at an open fill, if they buy
    `net` contracts.
    """
    after = offset + impact.kappa * net + jnp.sign(net) * impact.temporary[jnp.abs(net)]
    return in_ticks(after) - in_ticks(offset)


def under(position: Position, shift: Array) -> Position:
    """The same position, relative to an offset that is `shift` ticks higher."""

    def moved(level: Array) -> Array:
        exists = (position.quantity != 0) & (jnp.abs(level) < NO_LEVEL)
        return jnp.where(exists, level - shift, level)

    return position.replace(
        entry=moved(position.entry), stop=moved(position.stop), target=moved(position.target)
    )


def ordered_under(order: Order, shift: Array) -> Order:
    """The same order, relative to an offset that is `shift` ticks higher."""
    return order.replace(
        move_stop=jnp.where(order.move_stop == KEEP_STOP, order.move_stop, order.move_stop - shift)
    )


def describe(shared: SharedConfig) -> Iterator[str]:
    """One line about the market that the agents share, if they do."""
    if shared.on:
        yield (
            f"shared market: the agents trade in the same worlds. A net contract moves prices by "
            f"{shared.kappa / PARTS:g} ticks, of which {shared.decay:g} is left after each bar; n net contracts "
            f"ordered at an open fill {shared.eta / PARTS:g} sqrt(n) ticks worse besides. Evaluation is each policy "
            "alone on the historical market"
        )
