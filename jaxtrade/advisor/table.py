"""Advice on the device: a table with one row per market bar, read by one gather. Latency is
simulated in bars.

Advice is a function of the bar, never of an environment: thousands of environments at one bar read
the same row. A row is written when its answer arrives. At each bar the agent reads the row of `lag`
bars earlier. A hash draws that lag for each bar from a list of equally likely lags, so it is the
same in every environment, run and compilation. A row is never read in another session (so never
across a contract roll either), nor once it is older than `max_age`. All of this is known before a
run starts, so the bar to read at each bar is computed once (`AdviceView.source`).

A panel of A advisors has A tables, one after the other: advice of advisor i about bar b is in row i
T + b.
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
    """Advice about T bars; of a panel of A advisors, about A T rows.

    rows: float32[T, 6] by `COLUMNS` (`advisor.host.types.Advice`). version: int32[T], the version
        (1 or higher) of the
    delta that wrote the row; 0 where there is no advice. newest: int32[], the highest version.
    """

    rows: Array
    version: Array
    newest: Array


class Delta(struct.PyTreeNode):
    """Rows that become visible together.

    bars: int32[M], each bar once; entries >= T are padding. rows: float32[M, 6]. version: int32[];
        if there is any row,
    it is higher than the table's `newest`.
    """

    bars: Array | np.ndarray
    rows: Array | np.ndarray
    version: Array | np.ndarray


class AdviceView(struct.PyTreeNode):
    """The table and the rules by which environments read it.

    source: int32[T], the bar whose advice is read at each bar; `NOWHERE` where no advice may be
        read. seed: uint32[],
    seed of the advice dropout. drop_episode, drop_bar: float32[], the shares of episodes, and of
    bars within an episode, that show no advice; both None (static) without dropout.
    """

    table: AdviceTable
    source: Array
    seed: Array
    drop_episode: Array | None
    drop_bar: Array | None

    @property
    def advisors(self) -> int:
        """A: the number of advisors whose advice the table holds."""
        return self.table.version.shape[-1] // self.source.shape[-1]


class AdviceSeen(struct.PyTreeNode):
    """The advice that the agent acts on at a bar. All zeros where there is none.

    values: float32[..., 6] by `SEEN`. They are one array because every separate array costs time in
        each rollout step
    and minibatch. version: int32[...]; 0 means no advice. each: of a panel, what every advisor
    said, [..., A]; the values are then their consensus (`consensus`). None (static) for one
    advisor.
    """

    values: Array
    version: Array
    each: AdviceSeen | None = None

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
        """int32[...]: +1 buy, -1 sell, 0 hold or no advice. Buy or sell must have the strictly
        largest logit.
        """
        # Without advice all three logits are zero and the result is 0, so `valid` need not be
        # checked.
        return direction_of(self.values)


def direction_of(values: Array) -> Array:
    """int32[...]: the direction of rows float32[..., 6] by `COLUMNS` or `SEEN`, by the rule of
    `AdviceSeen.direction`.
    """
    hold, buy, sell = (values[..., i] for i in range(3))
    return jnp.where((buy > hold) & (buy > sell), 1, jnp.where((sell > hold) & (sell > buy), -1, 0))


def empty_table(bars: int) -> AdviceTable:
    """A table over T = `bars` bars with no advice in it."""
    return AdviceTable(
        jnp.zeros((bars, len(COLUMNS)), jnp.float32), jnp.zeros(bars, jnp.int32), jnp.int32(0)
    )


def directions(rows: np.ndarray) -> np.ndarray:
    """Directions of host rows [n, 6] as int8[n], by the rule of `AdviceSeen.direction`."""
    hold, buy, sell = rows[:, 0], rows[:, 1], rows[:, 2]
    rose, fell = buy > np.maximum(hold, sell), sell > np.maximum(hold, buy)
    return rose.astype(np.int8) - fell.astype(np.int8)


def stacked(parts: list[tuple[np.ndarray, np.ndarray]], bars: int) -> tuple[np.ndarray, np.ndarray]:
    """Bars int32[n] and rows float32[n, 6] of each member, as those of one table over `bars` bars
    each.
    """
    return (
        np.concatenate([found + i * bars for i, (found, _) in enumerate(parts)]).astype(np.int32),
        np.concatenate([rows for _, rows in parts]),
    )


def apart(
    found: np.ndarray, rows: np.ndarray, bars: int, members: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The inverse of `stacked`."""
    owner = found // bars
    return [(found[owner == i] - i * bars, rows[owner == i]) for i in range(members)]


def session_starts(first: np.ndarray | Array, last: np.ndarray | Array, bars: int) -> np.ndarray:
    """int32[T]: the first decision bar of each bar's session; T where the bar is in no session.

    Args:
        first, last: int[N], the first and last decision bar of each session. The flat bar `last +
            1` also belongs to the session.
    """
    starts = np.full(bars, bars, np.int32)
    for begin, end in zip(np.asarray(first), np.asarray(last), strict=True):
        starts[begin : end + 2] = begin
    return starts


def make_view(
    table: AdviceTable,
    starts: np.ndarray | Array,
    latency: Sequence[int] = (0,),
    seed: int = 0,
    max_age: int = 30,
    drop_episode: float = 0.0,
    drop_bar: float = 0.0,
) -> AdviceView:
    """The view of a table, with the settings of `AdvisorConfig`. An evaluation uses no dropout.

    starts: int32[T] from `session_starts`. latency: 1 to 64 equally likely lags in bars, from which one is
        drawn for each bar. Where their number does not divide 64, the first come once more than the
        others. max_age: in bars.
    """
    rows = jnp.arange(starts.shape[0], dtype=jnp.int32)
    lags = jnp.asarray(np.resize(np.asarray(latency, np.int32), LAGS))
    lag = lags[(mixed(_LAG, jnp.uint32(seed), rows) >> 8) % LAGS]
    # Bars outside all sessions have the start T, so no advice is known there.
    known = (rows - lag >= jnp.asarray(starts)) & (lag <= max_age)
    kept_back = drop_episode > 0 or drop_bar > 0
    return AdviceView(
        table,
        jnp.where(known, rows - lag, NOWHERE),
        jnp.uint32(seed),
        jnp.float32(drop_episode) if kept_back else None,
        jnp.float32(drop_bar) if kept_back else None,
    )


def received(table: AdviceTable, delta: Delta) -> AdviceTable:
    """The table with a delta's rows written into it. Padding is dropped."""
    rows = table.rows.at[delta.bars].set(delta.rows, mode="drop", unique_indices=True)
    version = table.version.at[delta.bars].set(delta.version, mode="drop", unique_indices=True)
    return AdviceTable(rows, version, jnp.maximum(table.newest, delta.version))


def mixed(*words: Array | int) -> Array:
    """uint32 hash of integers: the finaliser of MurmurHash3, applied word by word."""
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


def dropped(view: AdviceView, seed: Array, episode: Array, row: Array) -> Array:
    """bool[]: whether dropout hides advice at this bar from the environment with this seed and
    episode number.

    Needs a view with dropout.
    """
    assert view.drop_episode is not None
    assert view.drop_bar is not None
    whole = _share(mixed(_EPISODE, view.seed, seed, episode)) < view.drop_episode
    return whole | (_share(mixed(_BAR, view.seed, seed, episode, row)) < view.drop_bar)


def look_up(view: AdviceView, row: Array, unseen: Array | bool = False) -> AdviceSeen:
    """The advice known at the close of bar `row`, int32[]. unseen: bool[], True hides it from this
    environment.
    """
    bar = view.source[row]
    known = jnp.where(jnp.asarray(unseen), NOWHERE, bar)
    if view.advisors > 1:
        first = jnp.arange(view.advisors, dtype=jnp.int32) * view.source.shape[0]
        return consensus(
            _read(view.table, jnp.where(known == NOWHERE, NOWHERE, known + first), row - bar)
        )
    return _read(view.table, known, row - bar)


def _read(table: AdviceTable, at: Array, age: Array) -> AdviceSeen:
    """The rows `at` int32[...] of a table, no advice at `NOWHERE`. age: int32[] bars."""
    at = at.astype(jnp.uint32)  # NOWHERE wraps past every table: filled by 0
    version = table.version.at[at].get(mode="fill", fill_value=0)
    advice = table.rows.at[at].get(mode="fill", fill_value=0)
    age = jnp.where(version > 0, age, 0).astype(jnp.float32)
    # A row's sixth column is the horizon, which the agent does not see. Its place in `SEEN` holds
    # the age.
    return AdviceSeen(jnp.where(jnp.arange(len(SEEN)) == _AGE, age[..., None], advice), version)


def consensus(each: AdviceSeen) -> AdviceSeen:
    """What the advisors of a panel said together: the mean over those that said something.

    each: values float32[A, 6], version int32[A]. The consensus has the mean of their logits, risks
        and ages, the
    highest version, and as confidence the size of the mean of direction times confidence. If the
    logits agree, so does this; if they contradict each other, it is low.
    """
    share = each.valid / jnp.maximum(each.valid.sum(), 1)
    mean = (share[:, None] * each.values).sum(axis=0)
    agreed = jnp.abs((share * each.direction * each.confidence).sum())
    values = jnp.where(jnp.arange(len(SEEN)) == SEEN.index("confidence"), agreed, mean)
    return AdviceSeen(values, each.version.max(), each)


def demand(want: Array, askable: Array, version: Array, most: int) -> tuple[Array, Array]:
    """The `most` most wanted bars without advice: int32[most] bars and float32[most] weights.

    Entries of weight 0 are padding and name no wanted bar. want: float32[T], visits times entropy.
    askable: bool[T].
    version: int32[A T] of the table. A bar lacks advice if any advisor has said nothing about it.
    """
    lacks = (version.reshape(-1, want.shape[0]) == 0).any(axis=0)
    weight, bars = jax.lax.top_k(jnp.where(askable & lacks, want, 0.0), most)
    return bars.astype(jnp.int32), weight
