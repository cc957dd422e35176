"""The episode monitor on the device, and the trading metrics of a rollout.

It is what an episode counts besides `EpisodeStats`, and metrics from it.

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

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp

from jaxtrade.env.rules import tick_mills
from jaxtrade.env.state import (
    ContractParams,
    EndReason,
    EnvParams,
    EpisodeMonitor,
    EpisodeStats,
    Event,
    StepInfo,
)
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.storage.monitor import COLUMNS, LOST, ROWS
from jaxtrade.types import Array, Metrics, Summary, Transition


def start() -> EpisodeMonitor:
    """Return the counts at the start of an episode: all 0."""
    return EpisodeMonitor(*[jnp.float32(0)] * 3)


def notional_of(quantity: Array, price: Array, contract: ContractParams) -> Array:
    """Return the value of |quantity| contracts at a price (float32[...] mills).

    Args:
        quantity, price: int32[...]; the price in ticks.
        contract: that of the bar, so converted money has its rate.
    """
    value = tick_mills(contract).astype(jnp.float32)
    if contract.tick_over is not None:
        value = value / contract.tick_over.astype(jnp.float32)
    return (jnp.abs(quantity).astype(jnp.float32) * jnp.abs(price).astype(jnp.float32)) * value


def notional(event: Event, contract: ContractParams) -> Array:
    """Return the notional of all fills of a bar (float32[] mills)."""
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
    """Add the change of equity in a step.

    Args:
        change: int32[] mills.
        steps: int32[], this step included (>= 1).
    """
    value = change.astype(jnp.float32)
    away = value - monitor.mean
    mean = monitor.mean + away / steps.astype(jnp.float32)
    return monitor.replace(mean=mean, squares=monitor.squares + away * (value - mean))


def sharpe(monitor: EpisodeMonitor, steps: Array) -> Array:
    """Return the Sharpe ratio of an episode (float32[...]), not annualised.

    It is the mean change of equity per step over its standard deviation (ddof 1).

    It is NaN with fewer than two steps, and where the changes do not vary.

    Args:
        steps: int32[...] of the episode so far.
    """
    variance = monitor.squares / jnp.maximum(steps - 1, 1).astype(jnp.float32)
    defined = (steps >= 2) & (variance > 0)
    return jnp.where(defined, monitor.mean / jnp.sqrt(jnp.where(defined, variance, 1.0)), jnp.nan)


# --- The episodes that end in a rollout: one row each, in a buffer of fixed size, and means over
# all of them.
#
# A rollout keeps six numbers of each step (`keep`), as of an episode that ends there; after the
# rollout `close` picks those of the steps that ended one. Nothing is scattered inside the rollout's
# loop, where a device would start a program of its own for it.


FIGURES = (
    "return",
    "length",
    "drawdown",
    "turnover",
    "sharpe",
    "max_drawdown",
)  # in the order of COLUMNS
PREFIX = "monitor/"


class MonitorView(NamedTuple):
    """Metrics of each step's episode up to this step, all [...].

    reward: float32, undiscounted.
    length: int32 steps.
    drawdown, max_drawdown: int32 mills below the peak, now and at most.
    notional: float32 mills.
    sharpe: float32, NaN where undefined.
    """

    reward: Array
    length: Array
    drawdown: Array
    notional: Array
    sharpe: Array
    max_drawdown: Array


def select_monitored(stats: EpisodeStats, equity: Array) -> MonitorView:
    """Select what the monitor shows of an episode.

    Raises ValueError if the statistics lack the monitor's part: `EnvParams.monitor` was off.

    Args:
        equity: int32[...] mills after the step.
    """
    if stats.monitor is None:
        raise ValueError(
            "the episode monitor needs parameters with monitor=True: params.replace(monitor=True)"
        )
    return MonitorView(
        stats.reward,
        stats.length,
        stats.peak - equity,
        stats.monitor.notional,
        sharpe(stats.monitor, stats.length),
        stats.max_drawdown,
    )


def keep(seen: Transition) -> MonitorView:
    """Implement `Summary.keep` where `info` has `stats` and `equity` (`StepInfo`)."""
    return select_monitored(seen.info.stats, seen.info.equity)


def metrics_of(kept: MonitorView, start_balance: Array) -> Array:
    """Return the metrics of episodes in the order of `FIGURES` (float32[..., 6]).

    Drawdowns and turnover are shares of the start balance (mills).
    """

    def share(mills: Array) -> Array:
        return mills.astype(jnp.float32) / start_balance

    return jnp.stack(
        [
            kept.reward,
            kept.length.astype(jnp.float32),
            share(kept.drawdown),
            share(kept.notional),
            kept.sharpe,
            share(kept.max_drawdown),
        ],
        axis=-1,
    )


def means(figures: Array, chosen: Array, prefix: str, reduce: Reduce = LOCAL) -> Metrics:
    """Return means over the chosen episodes by name (float32[]).

    An undefined Sharpe ratio does not count; NaN if none is left.

    Args:
        figures: float32[..., 6].
        chosen: bool[...].
    """
    found = {}
    for i, name in enumerate(FIGURES):
        counts = chosen & ~jnp.isnan(figures[..., i])
        total = reduce.sum(jnp.where(counts, figures[..., i], 0.0))
        count = reduce.sum(counts, dtype=jnp.int32)
        found[f"{prefix}{name}"] = total / jnp.where(count > 0, count.astype(jnp.float32), jnp.nan)
    return found


def pick_places(ended: Array, size: int) -> Array:
    """Return places of the first `size` True entries of bool[T, N] in its flat order (int32[size]).

    A place is T N where there is none.

    Two cumulative sums, of each step's environments and of the steps, are several times as fast as
    one over all.
    """
    chex.assert_rank(ended, 2)
    within = jnp.cumsum(ended.astype(jnp.int32), axis=1)
    before = jnp.cumsum(within[:, -1]) - within[:, -1]
    return jnp.searchsorted((within + before[:, None]).reshape(-1), jnp.arange(1, size + 1)).astype(
        jnp.int32
    )


def rows_of(figures: Array, symbol: Array | None, ended: Array, size: int) -> Array:
    """Return one row for each ended episode, in the order of the steps (float32[size, 7]).

    A row is COLUMNS, then the symbol's number. Unused rows are 0, so their length is 0.

    Args:
        figures: float32[T, N, 6].
        symbol: integer[T, N]; None: number 0.
    """
    places = pick_places(ended, size)
    used = places < ended.size
    places = jnp.where(used, places, 0)
    number = jnp.zeros(size) if symbol is None else symbol.reshape(-1)[places].astype(jnp.float32)
    rows = jnp.concatenate([figures.reshape(-1, len(COLUMNS))[places], number[:, None]], axis=1)
    return jnp.where(used[:, None], rows, 0.0)


def close(
    rows: int, symbols: Sequence[str], seen: Transition, params: EnvParams, reduce: Reduce = LOCAL
) -> Metrics:
    """Implement `Summary.close`: means over all ended episodes, and their rows.

    With several symbols there are also means of each one.

    Args:
        rows: size of the buffer; 0 for none. Several parts share it evenly.
        symbols: names, by the number in `params.market.symbol`. One name: the
            market has one symbol.

    Returns:
        `monitor/FIGURE` and `monitor/SYMBOL/FIGURE` (float32[]), and with a buffer ROWS
        float32[rows, 7] and LOST int32[], the number of episodes for which it had no room.
    """
    ended = seen.terminated | seen.truncated
    figures = metrics_of(seen.info, params.account.start_balance)
    found, symbol = means(figures, ended, PREFIX, reduce), None
    if len(symbols) > 1:
        market: Any = params.market
        symbol = market.symbol[seen.final_ref.row[..., 0]]
        for number, name in enumerate(symbols):
            found |= means(figures, ended & (symbol == number), f"{PREFIX}{name}/", reduce)
    if rows:
        own = rows // reduce.count(1)
        lost = jnp.maximum(ended.sum(dtype=jnp.int32) - own, 0)
        every = reduce.gather(rows_of(figures, symbol, ended, own))
        found |= {ROWS: every.reshape(-1, every.shape[-1]), LOST: reduce.sum_of_parts(lost)}
    return found


def add_monitor(summary: Summary, rows: int, symbols: Sequence[str]) -> Summary:
    """Add the episode monitor to `summary`. Its environment needs `EnvParams.monitor`.

    Args:
        rows, symbols: as in `close`.
    """
    return summary._replace(keep=keep, close=partial(close, rows, tuple(symbols)))


# Trading figures of a rollout, which the learner logs together with its own metrics.


def first_sums(params: EnvParams) -> dict[str, Any]:
    """Return zeros of the sums of one environment."""
    none, zero = jnp.int32(0), jnp.float32(0)
    return {
        "breaches": none,
        "illegal": none,
        "ends": jnp.zeros(len(EndReason), jnp.int32),
        "equity": zero,
        "trades": none,
        "wins": none,
        "terms": dict.fromkeys(params.reward_weights, zero),
        **({} if params.forced_start is None else {"forced": none}),
    }


def collect(seen: Transition) -> dict[str, Any]:
    """Return the numbers of one step [N].

    They are counts int32, and the metrics of the episodes that ended in it.
    """
    info: StepInfo = seen.info
    ended = info.end != EndReason.NONE

    def at_end(values: Array) -> Array:
        return jnp.where(ended, values, jnp.zeros_like(values))

    return {
        "breaches": info.event.breach.astype(jnp.int32),
        "illegal": info.illegal.astype(jnp.int32),
        "ends": (info.end[:, None] == jnp.arange(len(EndReason))).astype(jnp.int32),
        "equity": at_end(info.equity).astype(jnp.float32),
        "trades": at_end(info.stats.trades),
        "wins": at_end(info.stats.wins),
        "terms": {name: at_end(sums) for name, sums in info.stats.terms.items()},
        **({} if info.forced is None else {"forced": info.forced.astype(jnp.int32)}),
    }


def metrics(sums: dict[str, Any], steps: int) -> Metrics:
    """Compute metrics of a rollout, float32[] unless stated otherwise.

    Args:
        sums: of `collect` over all steps and environments.

    Returns:
        About the episodes that ended in the rollout; NaN if none ended (win_rate: if none
        of them traded):
        episode_profit: mean profit in dollars.
        episode_trades: mean number of round turns.
        win_rate: share of round turns with a net profit.
        end_share: float32[7], share of episodes by `EndReason`.
        reward_NAME: mean sum of each weighted reward term, if there are several (a single one
            equals the episode's reward).
        forced_share: share of new episodes with a forced entry, if these are
            on (`EnvParams.forced_start`).
        About all steps:
        breaches: floors reached per 1000 steps.
        illegal_executed: int32[], number of actions that were illegal by the
            environment's own mask.
    """
    ends = sums["ends"].astype(jnp.float32).at[EndReason.NONE].set(0.0)
    count, trades = ends.sum(), sums["trades"].astype(jnp.float32)
    terms = sums["terms"] if len(sums["terms"]) > 1 else {}
    forced = {"forced_share": sums["forced"] / count} if "forced" in sums else {}
    return {
        **{f"reward_{name}": total / count for name, total in terms.items()},
        **forced,
        "episode_profit": sums["equity"] / count / 1000.0,
        "episode_trades": trades / count,
        "win_rate": sums["wins"] / trades,
        "illegal_executed": sums["illegal"],
        "breaches": sums["breaches"].astype(jnp.float32) / steps * 1000.0,
        "end_share": ends / count,
    }


summarise = Summary(first_sums, collect, metrics)
