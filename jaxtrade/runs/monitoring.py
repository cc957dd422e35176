"""The episode monitor of a run: what its learner reports, its file, and a warning when rows are
lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.data.market_set import MarketSet
from jaxtrade.env.monitor import monitored
from jaxtrade.env.portfolio.market import Portfolio
from jaxtrade.env.shared.figures import crowding
from jaxtrade.env.summary import summarise
from jaxtrade.storage.monitor import LOST, MONITOR, MonitorSink
from jaxtrade.types import Algorithm, Row, Summary, Warn


def market_symbols(market: Market | MarketSet | Portfolio) -> tuple[str, ...]:
    """The names of a market's symbols, by number; of symbols that are held together, one name for
    all of them.
    """
    if isinstance(market, Portfolio):
        return (market.name,)
    return tuple(member.contract.symbol for member in market.members)


def rows_of(config: RunConfig) -> int:
    """Rows of the buffer of ended episodes, per update and agent; 0 if no file is written.

    `auto` has room for episodes of eight steps on average (a day of hourly bars has more), and for two of each
    environment where a rollout is short.
    """
    if not config.monitor.csv:
        return 0
    if config.monitor.rows != "auto":
        return config.monitor.rows
    return config.rollout.num_envs * max(2, config.rollout.num_steps // 8)


def summary_of(config: RunConfig, market: Market | MarketSet) -> Summary:
    """What a learner reports about its rollouts, with the monitor if `monitor.on`.

    The environment's parameters then need `monitor=True`. In a shared market, crowding is reported
    too.
    """
    found = (
        monitored(summarise, rows_of(config), market_symbols(market))
        if config.monitor.on
        else summarise
    )
    return crowding(found) if config.shared.on else found


def lost(rows: Sequence[Row]) -> str:
    """Warn about episodes that have no row in the file. rows: the newest updates; one that lost
    some is enough.
    """
    losing = [row for row in rows if row.get(LOST, 0) > 0]
    if not losing:
        return ""
    return (
        f"{losing[0][LOST]:,.0f} episodes of update {losing[0]['update']} have no row in {MONITOR}, because more "
        "episodes ended than monitor.rows; raise it in the next run (the means in metrics.jsonl and TensorBoard "
        f"count every episode, and {LOST} counts what the file misses)"
    )


def with_warning(config: RunConfig, algorithm: Algorithm) -> Algorithm:
    """The learner with a warning about lost rows, if there can be any.

    As all warnings it is given when it begins: once, unless many updates without a loss lie in
    between.
    """
    if not (config.monitor.on and rows_of(config)):
        return algorithm
    return algorithm._replace(
        warnings=(*algorithm.warnings, Warn("monitor_rows", lost, at_once=True))
    )


def monitor_sink(
    path: Path, config: RunConfig, market: Market | MarketSet, resume_update: int | None
) -> MonitorSink:
    """The writer of a run's `monitor.csv`. path: the run's folder. Raises as `MonitorSink`."""
    symbols = market_symbols(market)
    return MonitorSink(
        path / MONITOR, f"{'+'.join(symbols)}-{config.env.task}", symbols, resume_update
    )
