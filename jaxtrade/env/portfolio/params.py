"""Build the traced `PortfolioParams` of several symbols in one account, and check all limits.

The module also has the reward terms of joint states.

The terms follow `env.rewards`: pure functions `(prev, next, step, params) -> float32[]`.
All are shares of the start balance, or counts, so that weights can be compared. Costs count as
positive amounts: give them a negative weight. docs/features.md has the table, the sources, and what
is not built.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RewardConfig, RunConfig
from jaxtrade.config.accounts import contract_cap, resolve_account
from jaxtrade.data.contracts import whole_mills
from jaxtrade.data.markets import Portfolio
from jaxtrade.env.portfolio.dynamics import MOST_BASES
from jaxtrade.env.portfolio.state import (
    CostParams,
    LimitParams,
    PortfolioParams,
    PortfolioState,
)
from jaxtrade.env.reward_presets import OF_SEVERAL, resolve_reward
from jaxtrade.env.rules import account_params, contract_params, largest_ticks, stack_contracts
from jaxtrade.env.state import OFF
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, SessionSet

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
    """Return mills as a share of the start balance. A factor, as in `env.rewards`."""
    return mills.astype(jnp.float32) * (1.0 / params.account.start_balance)


def _change(prev: PortfolioState, next: PortfolioState, params: PortfolioParams) -> Array:
    return _share(next.account.equity - prev.account.equity, params)


def realised_return(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return booked profit of the bar less all costs, open profit left out / start balance."""
    return _share(next.account.balance - prev.account.balance, params)


def cost_share(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return costs of the bar without slippage / start balance. Equity has paid them already."""
    return _share(step.event.cost.sum(), params)


def turnover(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return notional of the bar's fills / start balance."""
    return _share(step.event.turnover, params)


def turnover_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return the square of `turnover`."""
    share = turnover(prev, next, step, params)
    return share * share


def return_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return the square of `net_return`. Its sum is the realised variance of the episode."""
    change = _change(prev, next, params)
    return change * change


def loss_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return the square of `net_return` where it is negative, else 0.

    Its sum is the downside semivariance.
    """
    change = jnp.minimum(_change(prev, next, params), 0.0)
    return change * change


def drawdown(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return (highest equity at a close of the episode - equity) / start balance, in every bar.

    It is a level, not a change.
    """
    peak = jnp.maximum(next.stats.peak, next.account.equity)
    return _share(peak - next.account.equity, params)


def drawdown_squared(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return the square of `drawdown`."""
    level = drawdown(prev, next, step, params)
    return level * level


def trades_ordered(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return the number of symbols whose position an order changed in the bar."""
    return step.event.has_order.sum().astype(jnp.float32)


def position_changed(
    prev: PortfolioState, next: PortfolioState, step: JointStep, params: PortfolioParams
) -> Array:
    """Return 1 if an order changed a position in the bar, of however many symbols."""
    return step.event.has_order.any().astype(jnp.float32)


def portfolio_weights(config: RewardConfig) -> dict[str, float]:
    """Return term -> weight for several symbols.

    Raises ConfigError for a term that needs a single leg.
    """
    weights = resolve_reward(config)
    if other := [name for name in weights if name not in (*SHARED, *OF_SEVERAL)]:
        raise ConfigError(
            f"reward: {', '.join(other)}: of a position with stop and target, which env.task=allocate "
            f"does not have; choose from {', '.join((*SHARED, *OF_SEVERAL))}, or another reward.preset"
        )
    return weights


# --- `make_portfolio_params`: build the traced `PortfolioParams` of several symbols, and check all
# limits.


FARTHEST = (
    46_340  # ticks from an open to an extreme: its square fits int32 (`dynamics.liquidation`)
)


def _sizes(market: Portfolio, config: RunConfig) -> np.ndarray:
    """Return the contracts per unit (int64[S])."""
    return np.broadcast_to(np.array(config.allocate.size, np.int64), (len(market.members),)).copy()


def cost_params(config: RunConfig) -> CostParams:
    """Convert the costs of `allocate` to integers.

    A rate or an impact of 0 is left out of the program.
    """
    chosen = config.allocate
    rate, impact = round(chosen.cost_bp * 100), round(chosen.impact_bp * 10)
    return CostParams(
        fee=jnp.int32(whole_mills(chosen.fee, "allocate.fee")),
        rate=jnp.int32(1000 * rate) if rate else None,
        impact=jnp.int32(impact) if impact else None,
        base=jnp.int32(whole_mills(chosen.impact_base, "allocate.impact_base")),
    )


def limit_params(market: Portfolio, config: RunConfig) -> LimitParams:
    """Return the limits of `allocate`; those that are off are `OFF`."""
    chosen = config.allocate
    return LimitParams(
        size=jnp.array(_sizes(market, config), jnp.int32),
        max_units=jnp.int32(chosen.max_units),
        max_total=jnp.int32(chosen.max_total or OFF),
        cooldown=jnp.int32(chosen.cooldown),
        gate=jnp.int32(chosen.gate),
        trades=jnp.int32(chosen.trades_per_day or OFF),
    )


def _tick_mills(market: Portfolio) -> np.ndarray:
    """Return the largest value of one tick of each symbol (int64[S] mills)."""
    return largest_ticks(market.data, [contract.tick_mills for contract in market.contracts])


def _check(market: Portfolio, config: RunConfig) -> None:
    """Raise ConfigError if ticks, notionals or an episode's money could pass int32."""
    data, held = market.data, _sizes(market, config) * config.allocate.max_units
    bid, ask = (
        {name: np.asarray(getattr(side, name), np.int64) for name in ("open", "high", "low")}
        for side in (data, data if data.ask is None else data.ask)
    )
    keys = "lower allocate.size or allocate.max_units"
    far = max(
        int(np.maximum(side["high"] - side["open"], side["open"] - side["low"]).max())
        for side in (bid, ask)
    )
    if far > FARTHEST:
        raise ConfigError(
            f"data.markets: a bar moves {far:,} ticks from its open, more than {FARTHEST:,} (int32); "
            "give shorter bars, or a coarser tick_size in the contract file"
        )
    slip = np.array([contract.under(config).slippage_ticks for contract in market.contracts])
    price = np.maximum(np.abs(ask["high"]), np.abs(bid["low"])).max(axis=0) + slip
    value = held * price * _tick_mills(market)  # of a position of the most units
    if (held * price).max() >= 2 * OFF or 4 * int(value.sum()) >= 2 * OFF:
        worst = market.symbols[int(np.argmax(value))]
        raise ConfigError(
            f"allocate: positions of {held.tolist()} contracts are worth up to "
            f"${int(value.sum()) // 1000:,} ({worst} most), and four times that must stay below "
            f"${2 * OFF // 1000:,} (int32 mills): {keys}"
        )
    base = whole_mills(config.allocate.impact_base, "allocate.impact_base")
    if config.allocate.impact_bp and int(value.max()) > MOST_BASES * base:
        raise ConfigError(
            f"allocate.impact_base = {config.allocate.impact_base:g}: a position is worth up to "
            f"${int(value.max()) // 1000:,}, and at most {MOST_BASES} times the base is exact; raise it"
        )
    _check_episode(market, config, bid, ask, held)


def _check_episode(
    market: Portfolio,
    config: RunConfig,
    bid: dict[str, np.ndarray],
    ask: dict[str, np.ndarray],
    held: np.ndarray,
) -> None:
    """Raise ConfigError if an episode could gain or lose more than int32 mills hold.

    The bound is that of `env.params`: limits that end the account, and else the most that the bars
    could move.
    """
    ticks, sessions = _tick_mills(market), market.data.sessions
    contracts = [contract.under(config) for contract in market.contracts]
    side = np.array(
        [c.commission_mills + c.slippage_ticks * t for c, t in zip(contracts, ticks, strict=True)]
    )
    chosen = config.allocate
    share = (chosen.cost_bp + chosen.impact_bp * MOST_BASES**0.5) / 10_000
    price = np.maximum(ask["high"].max(axis=0), 1)
    bar_cost = 3 * float(
        (held * (side + share * price * ticks)).sum() + len(held) * 1000 * chosen.fee
    )
    gap = np.abs(np.diff(bid["open"], axis=0, prepend=bid["open"][:1]))
    moves = ((ask["high"] - bid["low"] + gap) * held * ticks).sum(axis=1)
    total = np.concatenate([[0], np.cumsum(moves)])
    first, last = np.asarray(sessions.first), np.asarray(sessions.last)
    busiest = float((total[last + 2] - total[first]).max()) + bar_cost * (
        int((last - first).max()) + 2
    )
    preset = resolve_account(config.account)
    worst = busiest * min(config.episode.sessions, len(first))
    if (
        preset.drawdown
        and preset.profit_target
        and preset.on_target == "terminate"
        and preset.min_days <= 1
    ):
        worst = min(worst, 1000 * max(preset.drawdown, preset.profit_target) + busiest)
    if worst >= OFF:
        raise ConfigError(
            f"allocate: an episode could gain or lose ${worst / 1000:,.0f}, more than int32 mills hold "
            f"(${OFF // 1000:,}); lower allocate.size, allocate.max_units, the costs or "
            "episode.sessions, or let the account end (account.drawdown, account.profit_target)"
        )


def make_portfolio_params(
    market: Portfolio, sessions: SessionSet, config: RunConfig
) -> PortfolioParams:
    """Build the traced parameters of the environment `PortfolioEnv`.

    Raises ConfigError if the account's cap is below one unit, a reward term does not exist for
    several symbols, or money could pass int32 mills.
    """
    preset, sizes = resolve_account(config.account), _sizes(market, config)
    cap = min(contract_cap(preset, contract.micro) for contract in market.contracts)
    if sizes.max() > cap:
        raise ConfigError(
            f"allocate.size = {sizes.tolist()}: the account ({config.account.preset}) allows {cap} "
            "contracts in all symbols together; lower it, or raise account.max_contracts"
        )
    _check(market, config)
    account = account_params(preset, False).replace(max_contracts=jnp.int32(cap))
    return PortfolioParams(
        market=market.data,
        sessions=sessions,
        contract=stack_contracts(
            [contract_params(contract, config) for contract in market.contracts], market.data
        ),
        account=account,
        costs=cost_params(config),
        limits=limit_params(market, config),
        reward_weights={
            name: jnp.float32(weight) for name, weight in portfolio_weights(config.reward).items()
        },
        episode_sessions=jnp.int32(config.episode.sessions),
        max_steps=jnp.int32(config.episode.max_steps),
    )
