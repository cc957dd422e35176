"""Reward terms of joint states. They follow `env.rewards`: pure functions `(prev, next, step,
params) -> float32[]`.

All are shares of the start balance, or counts, so that weights can be compared. Costs count as
positive amounts: give them a negative weight. docs/rewards.md has the table, the sources, and what
is not built.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtrade.config import RewardConfig
from jaxtrade.env.portfolio.state import PortfolioParams, PortfolioState
from jaxtrade.env.reward_presets import OF_SEVERAL, resolve_reward
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array

JointStep = Any  # a `rewards.StepEvent` whose event is a `PortfolioEvent`

# Terms of `env.rewards` that read nothing but the account, the counts of trades and whether
# anything is held.
SHARED = (
    "equity_change",
    "net_return",
    "win",
    "loss",
    "in_position",
    "flat",
    "floor_reached",
    "profit_level",
    "return_level",
    "illegal",
)


def _share(mills: Array, params: PortfolioParams) -> Array:
    """Mills as a share of the start balance. A factor, as in `env.rewards`."""
    return mills.astype(jnp.float32) * (1.0 / params.account.start_balance)


def _change(prev: PortfolioState, next: PortfolioState, params: PortfolioParams) -> Array:
    return _share(next.account.equity - prev.account.equity, params)


def realised_return(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Booked profit of the bar less all costs, open profit left out / start balance."""
    return _share(next.account.balance - prev.account.balance, params)


def cost_share(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Costs of the bar without slippage / start balance. Equity has paid them already."""
    return _share(step.event.cost.sum(), params)


def turnover(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Notional of the bar's fills / start balance."""
    return _share(step.event.turnover, params)


def turnover_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """The square of `turnover`."""
    share = turnover(prev, next, step, params)
    return share * share


def return_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """The square of `net_return`. Its sum is the realised variance of the episode."""
    change = _change(prev, next, params)
    return change * change


def loss_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """The square of `net_return` where it is negative, else 0. Its sum is the downside
    semivariance.
    """
    change = jnp.minimum(_change(prev, next, params), 0.0)
    return change * change


def drawdown(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """(highest equity at a close of the episode - equity) / start balance, in every bar. A level,
    not a change.
    """
    peak = jnp.maximum(next.stats.peak, next.account.equity)
    return _share(peak - next.account.equity, params)


def drawdown_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """The square of `drawdown`."""
    level = drawdown(prev, next, step, params)
    return level * level


def trades_ordered(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Number of symbols whose position an order changed in the bar."""
    event = step.event
    return ((event.close_quantity != 0) | (event.open_quantity != 0)).sum().astype(jnp.float32)


def position_changed(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """1 if an order changed a position in the bar, of however many symbols."""
    event = step.event
    return ((event.close_quantity != 0) | (event.open_quantity != 0)).any().astype(jnp.float32)


def portfolio_weights(config: RewardConfig) -> dict[str, float]:
    """Term -> weight for several symbols. Raises ConfigError for a term that needs a single leg."""
    weights = resolve_reward(config)
    if other := [name for name in weights if name not in (*SHARED, *OF_SEVERAL)]:
        raise ConfigError(
            f"reward: {', '.join(other)}: of a position with stop and target, which env.task=allocate "
            f"does not have; choose from {', '.join((*SHARED, *OF_SEVERAL))}, or another reward.preset"
        )
    return weights
