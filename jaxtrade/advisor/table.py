"""Advice on the device: a table keyed by market bar, read by one gather, whose latency is simulated in bars.

Advice is a function of the bar, never of an environment: thousands of them at one bar read one row. A row is written
when an answer has come and may be read `lag` bars after its own bar, where the lag is drawn for each bar from a list of
equally likely ones by a hash: the same in every environment, run and compilation. It is never read across a session's
border (which no contract roll crosses either), and nowhere once it is older than `max_age`. All that is known before a
run: which bar's advice is read at each bar is worked out once (`AdviceView.source`).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.types import Array

COLUMNS = ("hold", "buy", "sell", "confidence", "risk", "horizon")
SEEN = (*COLUMNS[:5], "age")
LAGS = 64  # entries of the list that a lag is drawn from
NOWHERE = -1  # no bar
_AGE = SEEN.index("age")
_LAG, _BAR, _EPISODE = 1, 2, 3  # streams of the hash


class AdviceTable(struct.PyTreeNode):
    """rows: float32[T, 6] by `COLUMNS` (`advisor.host.types.Advice`). version: int32[T], that of the delta which wrote
    the row, from 1 on; 0 where there is none. newest: int32[], the highest of them."""

    rows: Array
    version: Array
    newest: Array


class Delta(struct.PyTreeNode):
    """Rows that become visible together: bars int32[M], each once, those >= T being padding; rows float32[M, 6];
    version int32[], above the table's newest where there is any row."""

    bars: Array | np.ndarray
    rows: Array | np.ndarray
    version: Array | np.ndarray


class AdviceView(struct.PyTreeNode):
    """The table and how it is seen. source: int32[T], the bar whose advice is read at each bar, `NOWHERE` where none
    may be. seed: uint32[] of what is kept back; drop_episode, drop_bar: float32[] shares of episodes and of an
    episode's bars that are shown no advice, both None (static) where none is kept back."""

    table: AdviceTable
    source: Array
    seed: Array
    drop_episode: Array | None
    drop_bar: Array | None


class AdviceSeen(struct.PyTreeNode):
    """Advice as it is acted on, stored with a reference; zeros where there is none.

    values: float32[..., 6] of `SEEN`, in one array because a rollout's step and a minibatch pay by the array. version:
    int32[...], 0: none.
    """

    values: Array
    version: Array

    @property
    def logits(self) -> Array:
        """float32[..., 3] of hold, buy, sell."""
        return self.values[..., :3]

    @property
    def confidence(self) -> Array:
        """float32[...] in [0, 1]."""
        return self.values[..., 3]

    @property
    def risk(self) -> Array:
        """float32[...] in [0, 1]."""
        return self.values[..., 4]

    @property
    def age(self) -> Array:
        """float32[...] bars."""
        return self.values[..., 5]

    @property
    def valid(self) -> Array:
        """bool[...]: there is advice."""
        return self.version > 0

    @property
    def direction(self) -> Array:
        """int32[...]: +1 buy, -1 sell, 0 hold or none; the largest logit, hold where none is above it."""
        # Where there is no advice all three are zero: whether it is valid need not be read.
        hold, buy, sell = (self.values[..., i] for i in range(3))
        return jnp.where((buy > hold) & (buy > sell), 1, jnp.where((sell > hold) & (sell > buy), -1, 0))


def empty_table(bars: int) -> AdviceTable:
    """A table over T = `bars` bars with no advice in it."""
    return AdviceTable(jnp.zeros((bars, len(COLUMNS)), jnp.float32), jnp.zeros(bars, jnp.int32), jnp.int32(0))


def directions(rows: np.ndarray) -> np.ndarray:
    """int8[n] of host rows [n, 6], as `AdviceSeen.direction`: +1 buy, -1 sell, 0 hold."""
    hold, buy, sell = (rows[:, i] for i in range(3))
    return ((buy > hold) & (buy > sell)).astype(np.int8) - ((sell > hold) & (sell > buy)).astype(np.int8)


def lag_list(latency: Sequence[int]) -> np.ndarray:
    """int32[64] out of 1 to 64 equally likely lags in bars; where their number does not divide 64, the first of them
    come once more often."""
    return np.resize(np.asarray(latency, np.int32), LAGS)


def session_starts(first: np.ndarray | Array, last: np.ndarray | Array, bars: int) -> np.ndarray:
    """int32[T]: the first decision bar of each bar's session, T where the bar is in none.

    Args:
        first, last: int[N] rows of each session's decision bars; the flat bar `last + 1` belongs to it too.
    """
    starts = np.full(bars, bars, np.int32)
    for begin, end in zip(np.asarray(first), np.asarray(last), strict=True):
        starts[begin:end + 2] = begin
    return starts


def make_view(table: AdviceTable, starts: np.ndarray | Array, latency: Sequence[int] = (0,), seed: int = 0,
              max_age: int = 30, drop_episode: float = 0.0, drop_bar: float = 0.0) -> AdviceView:
    """The view of a table, with `AdvisorConfig`'s figures. An evaluation keeps nothing back.

    starts: int32[T] as from `session_starts`.
    """
    rows = jnp.arange(table.version.shape[0], dtype=jnp.int32)
    lag = lags_at(jnp.asarray(lag_list(latency)), jnp.uint32(seed), rows)
    known = (rows - lag >= jnp.asarray(starts)) & (lag <= max_age)
    kept_back = drop_episode > 0 or drop_bar > 0
    return AdviceView(table, jnp.where(known, rows - lag, NOWHERE), jnp.uint32(seed),
                      jnp.float32(drop_episode) if kept_back else None, jnp.float32(drop_bar) if kept_back else None)


def received(table: AdviceTable, delta: Delta) -> AdviceTable:
    """The table with a delta's rows in it; padding is dropped."""
    rows = table.rows.at[delta.bars].set(delta.rows, mode="drop", unique_indices=True)
    version = table.version.at[delta.bars].set(delta.version, mode="drop", unique_indices=True)
    return AdviceTable(rows, version, jnp.maximum(table.newest, delta.version))


def mixed(*words: Array | int) -> Array:
    """uint32: a hash of integers (the finaliser of MurmurHash3, word by word)."""
    h = jnp.uint32(0)
    for word in words:
        h = (h ^ jnp.asarray(word).astype(jnp.uint32)) * jnp.uint32(0xCC9E2D51)
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        h = h ^ (h >> 16)
    return h


def _share(h: Array) -> Array:
    """A hash as float32 in [0, 1)."""
    return (h >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def lags_at(lags: Array, seed: Array, row: Array) -> Array:
    """int32[...]: how many bars old the advice is that may be known at bar `row`, out of `lags` int32[64]."""
    return lags[(mixed(_LAG, seed, row) >> 8) % LAGS]


def dropped(view: AdviceView, seed: Array, episode: Array, row: Array) -> Array:
    """bool[]: this environment (its seed and episode number) is shown no advice at this bar."""
    assert view.drop_episode is not None
    assert view.drop_bar is not None
    whole = _share(mixed(_EPISODE, view.seed, seed, episode)) < view.drop_episode
    return whole | (_share(mixed(_BAR, view.seed, seed, episode, row)) < view.drop_bar)


def look_up(view: AdviceView, row: Array, unseen: Array | bool = False) -> AdviceSeen:
    """The advice known at the close of bar `row`, int32[]. unseen: bool[], an environment that is shown none."""
    bar = view.source[row]
    at = jnp.where(jnp.asarray(unseen), NOWHERE, bar).astype(jnp.uint32)  # beyond every table, where the filling is
    version = view.table.version.at[at].get(mode="fill", fill_value=0)
    advice = view.table.rows.at[at].get(mode="fill", fill_value=0)
    age = jnp.where(version > 0, row - bar, 0).astype(jnp.float32)
    return AdviceSeen(jnp.where(jnp.arange(len(SEEN)) == _AGE, age, advice), version)


def demand(want: Array, askable: Array, version: Array, most: int) -> tuple[Array, Array]:
    """The bars most wanted that have no advice: (int32[most] bars, float32[most] weights; weight 0: no such bar).

    want: float32[T] visits times entropy. askable: bool[T].
    """
    weight, bars = jax.lax.top_k(jnp.where(askable & (version == 0), want, 0.0), most)
    return bars.astype(jnp.int32), weight
