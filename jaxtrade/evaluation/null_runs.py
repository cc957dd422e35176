"""Run a test against null markets: make them one after the other, measure each, and stop when all
is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.nulls.market import null_markets, null_named
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.backtest import Lane, Steps, decision_bars, run_lanes
from jaxtrade.evaluation.evaluate import agent_key, standard_agents
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.null_test import (
    EXCEEDANCES,
    NullResult,
    is_decided,
    null_test,
    pooled_statistic,
)
from jaxtrade.evaluation.record import Record
from jaxtrade.storage.null_journal import NullJournal
from jaxtrade.types import SessionSet

if TYPE_CHECKING:
    from jaxtrade.data.market import Market

Statistics = Mapping[str, float]  # by the name of the agent, larger is better
Measure = Callable[["Market"], Statistics]  # what was done on the real market, done on another one
AgentsOf = Callable[["Market"], Sequence[Agent]]
Step = Callable[[str], None]


def _silent(text: str) -> None:
    del text


def run_nulls(
    measure: Measure,
    markets: Callable[[int], Market],
    real: Statistics,
    spec: NullSpec,
    seed: int,
    journal: NullJournal | None = None,
    stop: int | None = EXCEEDANCES,
    step: Step = _silent,
) -> dict[str, NullResult]:
    """Test the real statistics against null markets.

    Args:
        measure: null market -> statistics with the names of `real`. For a trained policy it trains
            again, by the executable that trained it: the market is a traced argument.
        markets: number of the draw -> null market (`data.nulls.market.NullMarkets`).
        real: the statistics on the real market.
        seed: of the draws, for the results.
        journal: holds finished draws, and receives each new one. None: nothing is kept.
        stop: end when each agent has that many nulls that reach its real value. None: make every
            draw.
        step: receives a line before each draw.
    Raises:
        DataError: a null market cannot be used, or `measure` refuses it (ConfigError or DataError).
        ConfigError: the journal has statistics of other names.
        ValueError: `measure` returns other names than those of `real`.
    """
    found = [dict(each) for each in journal.known] if journal is not None else []
    for draw, each in enumerate(found):
        if set(each) != set(real):
            assert journal is not None
            raise ConfigError(
                f"{journal.path}: null market {draw} has statistics of {', '.join(sorted(each))}, and "
                f"those of {', '.join(sorted(real))} are tested. Fix: move the file away to begin again"
            )
    while len(found) < spec.draws:
        if all(
            is_decided(value, [each[name] for each in found], stop) for name, value in real.items()
        ):
            break
        draw = len(found)
        step(f"null market {draw + 1} of at most {spec.draws} ({spec.kind})")
        market = markets(draw)
        with null_named(spec.kind, seed, draw):
            statistics = {name: float(value) for name, value in measure(market).items()}
        if set(statistics) != set(real):
            raise ValueError(
                f"measure returned {sorted(statistics)}, and the real statistics are {sorted(real)}"
            )
        found.append(statistics)
        if journal is not None:
            journal.append(statistics)
    return {
        name: null_test(name, value, [each[name] for each in found], spec, seed, stop)
        for name, value in real.items()
    }


def rule_agents(env: TradingEnv, config: RunConfig) -> AgentsOf:
    """The rule-based agents of an evaluation, made for each market anew: one of them reads the
    closes beforehand.
    """
    return lambda market: standard_agents(env, market, config)


def with_market(
    params: EnvParams, market: Market, sessions: SessionSet, config: RunConfig
) -> EnvParams:
    """The parameters on a null market: its bars, and everything else as it was.

    The limits of int32 money are checked as for a real market, and larger orders are cut to what
    int32 mills can hold there; `rule_nulls` refuses a null on which that happened. Entries of
    `env.quantity` contracts are never cut. Raises ConfigError if the quantity of an entry cannot be
    held, or an episode could overflow.
    """
    checked = make_params(market, sessions, config)
    cap = jnp.minimum(checked.account.max_contracts, params.account.max_contracts)
    return params.replace(
        market=market.data, sessions=sessions, account=params.account.replace(max_contracts=cap)
    )


def daily_net(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent],
    steps: Steps | None = None,
    largest: int | None = None,
) -> dict[str, np.ndarray]:
    """Dollars of each agent by session in the strategy pass (account rules off), float64[D] by
    name.

    They are those of `evaluation.evaluate`: the same program, keys and costs. params: on this
    market. largest: the most contracts of an entry on the real market; None if this is it. Raises
    DataError if an order was cut to fewer here, because its profit could not be compared.
    """
    decisions = decision_bars(market.data, sessions, steps)
    key, params = jax.random.key(config.seed), params.replace(sessions=sessions)
    lanes = [Lane(agent, params, decisions, agent_key(key, agent.name)) for agent in agents]
    records = run_lanes(env, lanes, "strategy")
    if largest is not None:
        for lane, record in zip(lanes, records, strict=True):
            _check_uncut(lane.agent.name, record, int(params.account.max_contracts), largest)
    return {
        lane.agent.name: session_pnl(record.equity, decisions.last) / 1000
        for lane, record in zip(lanes, records, strict=True)
    }


def _check_uncut(name: str, record: Record, cap: int, largest: int) -> None:
    """Check that no order was cut to fewer contracts than the real market allows.

    A record marks an order beyond the cap as illegal; of illegal orders, those alone open a
    position.
    """
    if cap < largest and np.any(
        ~np.asarray(record.legal) & (np.asarray(record.event.entry_quantity) != 0)
    ):
        raise DataError(
            f"agent {name}: an order was cut to {cap:,} contracts, the most whose money int32 mills can "
            f"hold on this market, and the real one allows {largest:,}; order fewer, or set "
            f"account.max_contracts to {cap:,} or less"
        )


def rule_nulls(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    spec: NullSpec,
    seed: int,
    *,
    agents: AgentsOf | None = None,
    pool: Callable[[str], str] = str,
    after: int = 0,
    steps: Steps | None = None,
    stop: int | None = EXCEEDANCES,
    step: Step = _silent,
) -> dict[str, NullResult]:
    """Test agents that need no training against null markets. Statistic: `pooled_statistic`, in
    dollars a day.

    Every null market passes through the executable of the real one: only the first call compiles.

    Args:
        params, sessions, steps: as in `evaluate`.
        seed: of the draws.
        agents: market -> agents, with the same names for every market. Default: the rule-based
            ones. A policy may be among them if `after` leaves the bars that it was trained on as
            they are.
        pool: name of an agent -> name of its result. Agents of one result are the seeds of one
            policy. Default: each agent has a result of its own.
        after: rows before it stay real.
        stop, step: as in `run_nulls`.
    Raises:
        ConfigError: this kind of null does not fit the configuration. DataError: a null market
            cannot be used, or does
        not hold the orders of an agent.
    """
    largest = int(params.account.max_contracts)
    made = rule_agents(env, config) if agents is None else agents
    nulls = null_markets(market, config, spec.kind, seed, after)

    def measure(each: Market, shown: EnvParams) -> dict[str, float]:
        pools: dict[str, list[np.ndarray]] = {}
        for name, net in daily_net(
            env, shown, each, sessions, config, made(each), steps, largest
        ).items():
            pools.setdefault(pool(name), []).append(net)
        return {name: pooled_statistic(np.stack(nets)) for name, nets in pools.items()}

    return run_nulls(
        lambda each: measure(each, with_market(params, each, sessions, config)),
        nulls,
        measure(market, params),
        spec,
        seed,
        stop=stop,
        step=step,
    )
