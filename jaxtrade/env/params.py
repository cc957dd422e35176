"""The environment of a configuration (`make_env`) and its traced parameters (`make_params`).

These two and `data.markets.load_markets` know which kinds there are. `make_stages` changes the
parameters as a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig, RunConfig, StageConfig
from jaxtrade.config.accounts import check_quantity, resolve_account
from jaxtrade.config.allocate import largest_move
from jaxtrade.data.market import Market, Markets
from jaxtrade.data.members import symbols_of
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.params import make_portfolio_params
from jaxtrade.env.reward_presets import one_symbol_weights
from jaxtrade.env.rules import account_params, contract_params, largest_ticks, stack_contracts
from jaxtrade.env.state import OFF, AccountParams, BracketParams, ContractParams, EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, Metrics, SessionSet, Stage


def make_env(config: EnvConfig | RunConfig) -> Any:
    """Build the environment of a configuration.

    It is a `TradingEnv`, or with `env.task=allocate` a `PortfolioEnv`. It is static and hashable;
    the data are in its parameters (`make_params`).
    """
    if not isinstance(config, RunConfig):
        return TradingEnv(config)
    if config.env.joint:
        return PortfolioEnv(config.env, config.allocate, symbols_of(config))
    return TradingEnv(config.env, config.sampler.kind)


def make_params(market: Markets, sessions: SessionSet, config: RunConfig) -> Any:
    """Build the traced parameters of the environment of a configuration.

    They are `EnvParams`, or with `env.task=allocate` `PortfolioParams`.

    Larger orders are filled only up to the account's cap, and up to the quantity that int32 mills
    can hold; in a set each symbol has a cap of its own. Raises ConfigError if `env.quantity`
    exceeds the account's cap, the market data lack the currency conversion, money could overflow
    int32 mills, or the intrabar order needs second bars that the market does not have.
    """
    make: Any = make_portfolio_params if config.env.joint else _one_at_a_time
    return make(market, sessions, config)


def _largest_ranges(market: Market) -> tuple[int, int]:
    """Return two upper limits in ticks, for the check of int32 money.

    Returns:
        widest: the largest difference between the highest and the lowest price of a session. No
            position can move further.
        busiest: the largest sum of gaps and ranges over the bars of a session. No sequence of one
            entry per bar can gain or lose more. The range of a two-sided bar is from the low of the
            bid to the high of the ask.
    """
    sessions, (bid, ask) = market.data.sessions, market.bars.sides
    widest = busiest = 0
    for first, last in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True):
        rows = slice(int(first) + 1, int(last) + 2)  # the bars in which a position can be held
        high, low = ask.high[rows].astype(np.int64), bid.low[rows].astype(np.int64)
        opens = [side.open[rows].astype(np.int64) for side in (bid, ask)]
        before = [side.close[int(first) : int(last) + 1].astype(np.int64) for side in (bid, ask)]
        widest = max(widest, int(high.max() - low.min()) + 1)
        gaps = np.max([np.abs(at - was) for at in opens for was in before], axis=0)
        busiest = max(busiest, int((gaps + high - low).sum()))
    return widest, busiest


def _check_money(
    market: Market, account: AccountParams, contract: ContractParams, config: RunConfig
) -> int:
    """Return the largest quantity whose position int32 mills can hold.

    Raises ConfigError if an episode could overflow int32.

    If the account ends at its drawdown and at its target, these limits and one position bound its
    money. Otherwise the bound is the most that the bars of its sessions could gain or lose.
    """
    tick = int(largest_ticks(market.data, market.contract.tick_mills))
    side_cost = int(contract.commission) + int(contract.slippage) * tick
    widest, busiest = _largest_ranges(market)
    bars = (
        int(np.max(np.asarray(market.data.sessions.last) - np.asarray(market.data.sessions.first)))
        + 1
    )
    widest, busiest = widest + largest_move(config), busiest + largest_move(config) * bars
    one_position = widest * tick + 3 * side_cost
    if config.env.quantity * one_position >= OFF:
        raise ConfigError(
            f"env.quantity = {config.env.quantity}: a position of it could gain or lose more than "
            f"${OFF // 1000:,} in one session of this data, costs included (int32 mills); lower it"
        )
    ends = (
        int(account.drawdown) < OFF and int(account.target) < OFF and bool(account.stop_at_target)
    )
    if (
        ends and int(account.min_days) <= 1
    ):  # before its minimum days an account may pass its target
        worst = max(int(account.drawdown), int(account.target)) + config.env.quantity * one_position
    else:
        session = config.env.quantity * (busiest * tick + 3 * bars * side_cost)
        worst = session * min(config.episode.sessions, len(market.data.sessions.first))
    if worst >= OFF:
        raise ConfigError(
            f"episode.sessions = {config.episode.sessions}: an episode of this account could gain or "
            f"lose ${worst // 1000:,}, more than int32 mills hold (${OFF // 1000:,}); lower it or "
            "env.quantity, or let the account end (account.drawdown, account.profit_target, "
            "account.on_target)"
        )
    return (OFF - 1) // one_position


def _of_symbol(market: Market, config: RunConfig) -> tuple[ContractParams, AccountParams]:
    """Check and return the parameters of one symbol; the cap of its contracts is `max_contracts`.

    Raises ConfigError as `make_params` does.
    """
    if config.env.intrabar == "path" and market.data.path is None:
        raise ConfigError(
            "env.intrabar = path needs second bars, which this market does not have; set data.seconds "
            "(--seconds FILE), or build_market(bars, config, seconds)"
        )
    preset = resolve_account(config.account)
    if (market.contract.currency != ACCOUNT) != (market.data.tick_value is not None):
        raise ConfigError(
            f"data.market = {market.contract.symbol}: profits arise in {market.contract.currency}, and "
            "this market's data were built for another currency; build it with build_market"
        )
    account = account_params(preset, market.contract.micro)
    contract = contract_params(market.contract, config)
    check_quantity(
        config.env.quantity,
        preset,
        config.account.preset,
        market.contract.symbol,
        market.contract.micro,
    )
    largest = _check_money(market, account, contract, config)
    cap = min(int(account.max_contracts), largest)
    return contract, account.replace(max_contracts=jnp.int32(cap))


def _one_at_a_time(market: Markets, sessions: SessionSet, config: RunConfig) -> EnvParams:
    """Build the parameters of `TradingEnv`, over one symbol or a set of them."""
    symbols = [_of_symbol(member, config) for member in market.members]
    contract, account = symbols[0]
    if len(symbols) > 1:
        each = [contract.replace(cap=account.max_contracts) for contract, account in symbols]
        contract = stack_contracts(each, market.data)
        account = account.replace(max_contracts=max(own.max_contracts for _, own in symbols))
    return EnvParams(
        market=market.data,
        sessions=sessions,
        contract=contract,
        account=account,
        brackets=BracketParams(
            stop_atr=jnp.int32(config.brackets.stop_thousandths),
            target_multiple=jnp.int32(config.brackets.target_multiple),
            trail_atr=jnp.int32(config.brackets.trail_thousandths),
        ),
        reward_weights={
            name: jnp.float32(weight) for name, weight in one_symbol_weights(config.reward).items()
        },
        episode_sessions=jnp.int32(config.episode.sessions),
        max_steps=jnp.int32(config.episode.max_steps),
    )


# Stages of a training run: schedules of `EnvParams` over the fraction of the run.
#
# Only the updates of a learner apply them. Evaluation, baselines, replay and the adapters for other
# libraries use the parameters that `make_params` returns: full costs, and episodes that start flat.


def ramp(start: float, end: float, until: float, fraction: Array) -> Array:
    """Interpolate linearly from `start` at fraction 0 to `end` at fraction `until` (float32[]).

    From then on it is exactly `end`.
    """
    x = jnp.minimum(fraction / until, 1.0)
    return jnp.where(fraction < until, start * (1.0 - x) + end * x, end)


def share_of(commission: Array, share: Array) -> Array:
    """Return a share (float32[], at most 1) of the commission (int32[] mills).

    It is rounded half to even; at share 1 exactly all.
    """
    part = jnp.round(share * commission.astype(jnp.float32)).astype(jnp.int32)
    return jnp.where(share < 1.0, part, commission)


def make_stages(config: StageConfig) -> Stage | None:
    """Build the function (parameters, fraction of the run) -> (parameters at it, metrics).

    The metrics are `commission_share` and `forced_start`. A stage that is off changes nothing, has
    no metric and adds nothing to the compiled program. None without any stage.
    """
    if not (config.ramps_commission or config.forces_starts):
        return None

    def stage(params: EnvParams, fraction: Array) -> tuple[EnvParams, Metrics]:
        logged = {}
        if config.ramps_commission:
            share = logged["commission_share"] = ramp(
                config.commission_start, 1.0, config.commission_until, fraction
            )
            commission = share_of(params.contract.commission, share)
            params = params.replace(contract=params.contract.replace(commission=commission))
        if config.forces_starts:
            logged["forced_start"] = ramp(
                config.forced_start, config.forced_start_end, config.forced_start_until, fraction
            )
            params = params.replace(forced_start=logged["forced_start"])
        return params, logged

    return stage


def describe(config: StageConfig) -> Iterator[str]:
    """Describe each stage that is on, in one line."""
    if config.ramps_commission:
        yield (
            f"stage: commission starts at {_percent(config.commission_start)} and is whole after "
            f"{_percent(config.commission_until)} of the run; evaluation charges the whole"
        )
    if config.forces_starts:
        yield (
            f"stage: {_percent(config.forced_start)} of episodes start in a position where one may be opened, "
            f"{_percent(config.forced_start_end)} after {_percent(config.forced_start_until)} of the run; none in "
            "evaluation"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
