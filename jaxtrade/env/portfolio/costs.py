"""Costs of a fill: commission, fee, a share of the notional, and an impact that grows with the
notional's square root.

All integers; docs/semantics.md, "Several symbols in one account", points 8 and 9.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.env.money import money_of, muldiv
from jaxtrade.env.portfolio.state import CostParams
from jaxtrade.env.state import ContractParams
from jaxtrade.types import Array

PER_ONE = 1_000_000_000  # a rate of 1, in the unit of `CostParams.rate`
SHARES = 100_000_000  # a participation of 1; its square root is in units of 10^-4
MOST_BASES = 20  # the largest notional that an impact may have, in bases: 20 * SHARES fits int32


def notional(contracts: Array, price: Array, contract: ContractParams) -> Array:
    """int32 mills >= 0: value of `contracts` (any sign) at `price` (ticks), elementwise."""
    return jnp.abs(money_of(contracts * price, contract))


def root_of(value: Array) -> Array:
    """floor(sqrt(value)) of int32 0 <= value <= 20 * 10^8, exactly.

    The float32 root is less than one away from the exact root, so at most one correction is needed
    on each side.
    """
    near = jnp.sqrt(value.astype(jnp.float32)).astype(jnp.int32)
    near = near - (near * near > value)
    return near + ((near + 1) * (near + 1) <= value)


def share_of(value: Array, costs: CostParams) -> Array:
    """int32 mills: the part of a notional `value` (mills) that a fill of it pays, rounded once,
    half to even.
    """
    rate = jnp.int32(0) if costs.rate is None else costs.rate
    if costs.impact is not None:
        rate = rate + costs.impact * root_of(muldiv(value, jnp.int32(SHARES), costs.base))
    if costs.rate is None and costs.impact is None:
        return jnp.zeros_like(value)
    return muldiv(value, rate, jnp.int32(PER_ONE))


def fill_cost(contracts: Array, value: Array, contract: ContractParams, costs: CostParams) -> Array:
    """int32 mills: all costs of a fill but slippage; 0 without contracts. value: its notional
    (mills), elementwise.
    """
    size = jnp.abs(contracts)
    return jnp.where(size > 0, size * contract.commission + costs.fee + share_of(value, costs), 0)
