"""The episodes that end in a rollout: one row each, in a buffer of fixed size, and means over all
of them.

A rollout keeps six numbers of each step (`keep`), as of an episode that ends there; after the
rollout `close` picks those of the steps that ended one. Nothing is scattered inside the rollout's
loop, where a device would start a program of its own for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import chex
import jax.numpy as jnp

from jaxtrade.env import monitor
from jaxtrade.env.state import EnvParams, EpisodeStats
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.storage.monitor import COLUMNS, LOST, ROWS
from jaxtrade.types import Array, Summary, Transition

FIGURES = (
    "return",
    "length",
    "drawdown",
    "turnover",
    "sharpe",
    "max_drawdown",
)  # in the order of COLUMNS
PREFIX = "monitor/"


class Kept(NamedTuple):
    """Figures of each step's episode up to this step, all [...].

    reward: float32, undiscounted. length: int32 steps. drawdown, max_drawdown: int32 mills below
        the peak, now and at
    most. notional: float32 mills. sharpe: float32, NaN where undefined.
    """

    reward: Array
    length: Array
    drawdown: Array
    notional: Array
    sharpe: Array
    max_drawdown: Array


def kept(stats: EpisodeStats, equity: Array) -> Kept:
    """What the monitor shows of an episode. equity: int32[...] mills after the step.

    Raises ValueError if the statistics lack the monitor's part: `EnvParams.monitor` was off.
    """
    if stats.monitor is None:
        raise ValueError(
            "the episode monitor needs parameters with monitor=True: params.replace(monitor=True)"
        )
    return Kept(
        stats.reward,
        stats.length,
        stats.peak - equity,
        stats.monitor.notional,
        monitor.sharpe(stats.monitor, stats.length),
        stats.max_drawdown,
    )


def keep(seen: Transition) -> Kept:
    """`Summary.keep` of an environment whose `info` has `stats` and `equity` (`StepInfo`)."""
    return kept(seen.info.stats, seen.info.equity)


def figures_of(kept: Kept, start_balance: Array) -> Array:
    """float32[..., 6] in the order of `FIGURES`; drawdowns and turnover as shares of the start
    balance (mills).
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


def means(figures: Array, chosen: Array, prefix: str, reduce: Reduce = LOCAL) -> dict[str, Array]:
    """Means over the chosen episodes by name, float32[]. An undefined Sharpe ratio does not count;
    NaN if none is left.

    figures: float32[..., 6]. chosen: bool[...].
    """
    found = {}
    for i, name in enumerate(FIGURES):
        counts = chosen & ~jnp.isnan(figures[..., i])
        total = reduce.sum(jnp.where(counts, figures[..., i], 0.0))
        count = reduce.sum(counts, dtype=jnp.int32)
        found[f"{prefix}{name}"] = total / jnp.where(count > 0, count.astype(jnp.float32), jnp.nan)
    return found


def picked(ended: Array, size: int) -> Array:
    """int32[size]: places of the first `size` True entries of bool[T, N] in its flat order, T N
    where there is none.

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
    """float32[size, 7]: one row for each ended episode, in the order of the steps: COLUMNS, then
    the symbol's number.

    Unused rows are 0, so their length is 0. figures: float32[T, N, 6]. symbol: integer[T, N]; None:
    number 0.
    """
    places = picked(ended, size)
    used = places < ended.size
    places = jnp.where(used, places, 0)
    number = jnp.zeros(size) if symbol is None else symbol.reshape(-1)[places].astype(jnp.float32)
    rows = jnp.concatenate([figures.reshape(-1, len(COLUMNS))[places], number[:, None]], axis=1)
    return jnp.where(used[:, None], rows, 0.0)


def close(
    rows: int, symbols: Sequence[str], seen: Transition, params: EnvParams, reduce: Reduce = LOCAL
) -> dict[str, Array]:
    """`Summary.close`: means over all ended episodes (with several symbols of each one too), and
    their rows.

    Args:
        rows: size of the buffer; 0 for none. Several parts share it evenly.
        symbols: names, by the number in `params.market.symbol`. One name: the market has one
            symbol.
    Returns:
        `monitor/FIGURE` and `monitor/SYMBOL/FIGURE` (float32[]), and with a buffer ROWS float32[rows, 7] and LOST
        int32[], the number of episodes for which it had no room.
    """
    ended = seen.terminated | seen.truncated
    figures = figures_of(seen.info, params.account.start_balance)
    numbers = getattr(params.market, "symbol", None)
    symbol = None if numbers is None or len(symbols) == 1 else numbers[seen.final_ref.row[..., 0]]
    found = means(figures, ended, PREFIX, reduce)
    if symbol is not None:
        for number, name in enumerate(symbols):
            found |= means(figures, ended & (symbol == number), f"{PREFIX}{name}/", reduce)
    if rows:
        own = rows // reduce.count(1)
        lost = jnp.maximum(ended.sum(dtype=jnp.int32) - own, 0)
        every = reduce.gathered(rows_of(figures, symbol, ended, own))
        found |= {ROWS: every.reshape(-1, every.shape[-1]), LOST: reduce.sum_of_parts(lost)}
    return found


def monitored(summary: Summary, rows: int, symbols: Sequence[str]) -> Summary:
    """`summary` with the episode monitor. rows, symbols: as in `close`. Its environment needs
    `EnvParams.monitor`.
    """
    return summary._replace(keep=keep, close=partial(close, rows, tuple(symbols)))
