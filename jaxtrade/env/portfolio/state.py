"""The pytrees of the task `allocate`: parameters, state and events of S symbols in one account.

T shared bars, S symbols. Prices are int32 ticks, money is int32 mills, quantities are signed
contracts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from flax import struct

from jaxtrade.env.state import NO_LEVEL, Account, AccountParams, ContractParams, EpisodeStats
from jaxtrade.text import short_repr
from jaxtrade.types import Array, JointMarket, SessionSet

NEVER = -NO_LEVEL  # `PortfolioState.last_order` before the first order of a session


class CostParams(struct.PyTreeNode):
    """Traced costs of a fill besides commission and slippage; int32[].

    fee: mills.
    rate: 10^-9 of the notional.
    impact: tenths of a basis point at a notional of `base` mills. None (static) for a rate or an
        impact of 0, so that nothing of it is compiled.
    """

    fee: Array
    rate: Array | None
    impact: Array | None
    base: Array


class LimitParams(struct.PyTreeNode):
    """Traced limits of the orders, int32[]; a limit that is off is `OFF`.

    size: int32[S] contracts per unit.
    max_units: units in one symbol.
    max_total: units in all of them.
    cooldown: bars between two orders.
    gate: orders at every gate-th bar of a session.
    trades: changed legs per session.
    """

    size: Array
    max_units: Array
    max_total: Array
    cooldown: Array
    gate: Array
    trades: Array


class PortfolioParams(struct.PyTreeNode):
    """The traced part of the environment, as `EnvParams` is for one symbol.

    contract: parameters of the contracts, leaves [S]; `tick_size` float32[S].
    forced_start, advice, symbol_weights: always None (static).
    monitor: static; whether episodes are counted for the monitor.
    """

    market: JointMarket
    sessions: SessionSet
    contract: ContractParams
    account: AccountParams
    costs: CostParams
    limits: LimitParams
    reward_weights: dict[str, Array]
    episode_sessions: Array
    max_steps: Array
    forced_start: None = None
    advice: None = None
    symbol_weights: None = None
    monitor: bool = struct.field(pytree_node=False, default=False)

    def __repr__(self) -> str:
        return short_repr(
            "PortfolioParams",
            f"market of {self.market.close.shape[-2]:,} shared bars",
            f"{self.market.close.shape[-1]} symbols",
            f"reward: {', '.join(self.reward_weights)}",
        )


class Legs(struct.PyTreeNode):
    """The positions, int32[S] each.

    paid: sum of signed contracts times fill price, ticks.
    mark: mills, open profit at the last close.
    opened: shared row of the bar in which the leg was opened.
    net: mills booked since the leg was flat, costs included.
    """

    quantity: Array
    paid: Array
    mark: Array
    opened: Array
    net: Array

    @classmethod
    def flat(cls, count: int) -> Legs:
        """Return no position in any of `count` symbols."""
        return cls(*[jnp.zeros(count, jnp.int32)] * 5)


class Held(NamedTuple):
    """What the rules of one symbol read of a position.

    quantity: int32[] contracts of all legs, without signs.
    """

    quantity: Array


class PortfolioState(struct.PyTreeNode):
    """The whole state of one environment between two shared bars; fields as in `EnvState`.

    last_order: int32[] row at which the last order of this session was decided, `NEVER` before.
    orders: int32[] changed legs in this session.
    """

    row: Array
    slot: Array
    sessions_left: Array
    time: Array
    legs: Legs
    account: Account
    stats: EpisodeStats
    seed: Array
    episode: Array
    last_order: Array
    orders: Array

    @property
    def position(self) -> Held:
        """All legs as one position, for rules and reward terms that ask only if any is held."""
        return Held(jnp.abs(self.legs.quantity).sum())


class PortfolioEvent(struct.PyTreeNode):
    """Fills of one shared bar; int32[S] unless stated otherwise.

    Quantities are signed as the change of the position.

    close_*: what an order closed.
    open_*: what an order opened.
    exit_*: what left by liquidation or at the flat bar.
    exit_reason: `ExitReason`.
    cash: mills, realised profit less costs.
    cost: mills, all costs but slippage.
    profit: mills, cash plus the change of the open profit: the symbol's share of the
        change of equity.
    turnover: int32[] mills, notional of all fills.
    floor: int32[] mills, drawdown floor after the bar.
    breach: bool[].
    """

    close_quantity: Array
    close_price: Array
    open_quantity: Array
    open_price: Array
    exit_quantity: Array
    exit_price: Array
    exit_reason: Array
    cash: Array
    cost: Array
    profit: Array
    turnover: Array
    floor: Array
    breach: Array

    @property
    def has_order(self) -> Array:
        """bool[S]: whether an order changed the symbol's position in the bar."""
        return (self.close_quantity != 0) | (self.open_quantity != 0)

    @property
    def has_fill(self) -> Array:
        """bool[S]: whether the symbol had a fill in the bar."""
        return self.has_order | (self.exit_quantity != 0)
