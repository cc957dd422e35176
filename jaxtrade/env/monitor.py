"""The episode monitor on the device: what an episode counts besides `EpisodeStats`, and figures
from it.

The functions know neither positions nor tasks. An environment gives them the notional of its fills
and the change of its equity in each step, so one with several legs can use them too.

Equity is int32 mills, so its changes are exact. Each change is rounded once to float32 (exact below
2^24 mills, about $16,777). Their mean and squared differences are updated by Welford's method in
float32 (B. P. Welford, "Note on a method for calculating corrected sums of squares and products",
Technometrics 4(3), 1962, eq. I). Against NumPy in float64 the Sharpe ratio differs by at most 1e-4
of itself plus 1e-5 over 2,000 steps (`tests/env/test_monitor.py`). Changes that are all equal have
a variance of exactly zero.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.env.money import tick_mills
from jaxtrade.env.state import ContractParams, EpisodeMonitor, Event
from jaxtrade.types import Array


def start() -> EpisodeMonitor:
    """The counts at the start of an episode: all 0."""
    zero = jnp.float32(0)
    return EpisodeMonitor(zero, zero, zero)


def notional_of(quantity: Array, price: Array, contract: ContractParams) -> Array:
    """float32[...] mills: value of |quantity| contracts at a price.

    quantity, price: int32[...]; the price in ticks. contract: that of the bar, so converted money
        has its rate.
    """
    value = tick_mills(contract).astype(jnp.float32)
    if contract.tick_over is not None:
        value = value / contract.tick_over.astype(jnp.float32)
    return (jnp.abs(quantity).astype(jnp.float32) * jnp.abs(price).astype(jnp.float32)) * value


def notional(event: Event, contract: ContractParams) -> Array:
    """float32[] mills: notional of all fills of a bar."""
    fills = (
        (event.order_exit_quantity, event.order_exit_price),
        (event.entry_quantity, event.entry_price),
        (event.exit_quantity, event.exit_price),
    )
    first, second, third = (notional_of(quantity, price, contract) for quantity, price in fills)
    return first + second + third


def add_traded(monitor: EpisodeMonitor, traded: Array) -> EpisodeMonitor:
    """Add the notional of a bar's fills (float32[] mills)."""
    return monitor.replace(notional=monitor.notional + traded)


def add_change(monitor: EpisodeMonitor, change: Array, steps: Array) -> EpisodeMonitor:
    """Add the change of equity in a step. change: int32[] mills. steps: int32[], this step included
    (>= 1).
    """
    value = change.astype(jnp.float32)
    away = value - monitor.mean
    mean = monitor.mean + away / steps.astype(jnp.float32)
    return monitor.replace(mean=mean, squares=monitor.squares + away * (value - mean))


def sharpe(monitor: EpisodeMonitor, steps: Array) -> Array:
    """float32[...]: mean change of equity per step over its standard deviation (ddof 1), not
    annualised.

    NaN with fewer than two steps, and where the changes do not vary. steps: int32[...] of the
    episode so far.
    """
    variance = monitor.squares / jnp.maximum(steps - 1, 1).astype(jnp.float32)
    defined = (steps >= 2) & (variance > 0)
    return jnp.where(defined, monitor.mean / jnp.sqrt(jnp.where(defined, variance, 1.0)), jnp.nan)
