"""Advice on the device: a table with one row per market bar, read by one gather.

Latency is simulated in bars. Below: snapshots, which keep advice in a file.

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

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.data.bars import PRICES
from jaxtrade.errors import DataError, JournalError
from jaxtrade.storage.archives import FAULTS, read_arrays
from jaxtrade.types import Array

if TYPE_CHECKING:
    from jaxtrade.advisor.host.journal import LoadedJournal
    from jaxtrade.data.bars import Bars
    from jaxtrade.data.market import Market


COLUMNS = ("hold", "buy", "sell", "confidence", "risk", "horizon")
WIDTH = len(COLUMNS)
SEEN = (*COLUMNS[:5], "age")
LAGS = 64  # entries of the list that a lag is drawn from
NOWHERE = -1  # no bar
_AGE = SEEN.index("age")
_LAG, _BAR, _EPISODE = 1, 2, 3  # streams of the hash


class AdviceTable(struct.PyTreeNode):
    """Advice about T bars; of a panel of A advisors, about A T rows.

    rows: float32[T, 6] by `COLUMNS` (`advisor.host.types.Advice`).
    version: int32[T], the version (1 or higher) of the delta that wrote the row; 0 where there is
        no advice.
    newest: int32[], the highest version.
    """

    rows: Array
    version: Array
    newest: Array


class Delta(struct.PyTreeNode):
    """Rows that become visible together.

    bars: int32[M], each bar once; entries >= T are padding.
    rows: float32[M, 6].
    version: int32[]; if there is any row, it is higher than the table's `newest`.
    """

    bars: Array | np.ndarray
    rows: Array | np.ndarray
    version: Array | np.ndarray


class AdviceView(struct.PyTreeNode):
    """The table and the rules by which environments read it.

    source: int32[T], the bar whose advice is read at each bar; `NOWHERE` where no
        advice may be read.
    seed: uint32[], seed of the advice dropout.
    drop_episode, drop_bar: float32[], the shares of episodes, and of bars within an episode, that
        show no advice; both None (static) without dropout.
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
        each rollout step and minibatch.
    version: int32[...]; 0 means no advice.
    each: of a panel, what every advisor said, [..., A]; the values are then their consensus
        (`consensus`). None (static) for one advisor.
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
        """int32[...]: +1 buy, -1 sell, 0 hold or no advice.

        Buy or sell must have the strictly largest logit.
        """
        # Without advice all three logits are zero and the result is 0, so `valid` need not be
        # checked.
        return direction_of(self.values)


def direction_of(values: Array) -> Array:
    """Return the direction of rows, by the rule of `AdviceSeen.direction` (int32[...]).

    The rows are float32[..., 6] by `COLUMNS` or `SEEN`.
    """
    hold, buy, sell = (values[..., i] for i in range(3))
    return jnp.where((buy > hold) & (buy > sell), 1, jnp.where((sell > hold) & (sell > buy), -1, 0))


def empty_table(bars: int) -> AdviceTable:
    """Build a table over T = `bars` bars with no advice in it."""
    return AdviceTable(
        jnp.zeros((bars, WIDTH), jnp.float32), jnp.zeros(bars, jnp.int32), jnp.int32(0)
    )


def directions(rows: np.ndarray) -> np.ndarray:
    """Return directions of host rows [n, 6], by the rule of `AdviceSeen.direction` (int8[n])."""
    hold, buy, sell = rows[:, 0], rows[:, 1], rows[:, 2]
    rose, fell = buy > np.maximum(hold, sell), sell > np.maximum(hold, buy)
    return rose.astype(np.int8) - fell.astype(np.int8)


def stack_members(
    parts: list[tuple[np.ndarray, np.ndarray]], bars: int
) -> tuple[np.ndarray, np.ndarray]:
    """Stack bars int32[n] and rows float32[n, 6] of each member.

    The result is for one table over `bars` bars each.
    """
    return (
        np.concatenate([found + i * bars for i, (found, _) in enumerate(parts)]).astype(np.int32),
        np.concatenate([rows for _, rows in parts]),
    )


def unstack_members(
    found: np.ndarray, rows: np.ndarray, bars: int, members: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Invert `stack_members`."""
    owner = found // bars
    return [(found[owner == i] - i * bars, rows[owner == i]) for i in range(members)]


def journal_rows(path: Path, recorded: LoadedJournal) -> tuple[np.ndarray, np.ndarray]:
    """Return bars int64[n] and rows float32[n, 6] of the journal at `path`.

    They are in the order in which they became visible.

    Raises JournalError where a row has another width.
    """
    rows = [row for delta in recorded.deltas for row in delta.rows]
    if any(len(row) != WIDTH for row in rows):
        raise JournalError(f"{path}: rows are not {WIDTH} wide; it is no journal of this version")
    bars = [bar for delta in recorded.deltas for bar in delta.bars]
    return np.array(bars, np.int64), np.array(rows, np.float32).reshape(-1, WIDTH)


def session_starts(first: np.ndarray | Array, last: np.ndarray | Array, bars: int) -> np.ndarray:
    """Return the first decision bar of each bar's session (int32[T]).

    It is T where the bar is in no session.

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
    """Build the view of a table, with the settings of `AdvisorConfig`.

    An evaluation uses no dropout.

    Args:
        starts: int32[T] from `session_starts`.
        latency: 1 to 64 equally likely lags in bars, from which one is drawn for each bar. Where
            their number does not divide 64, the first come once more than the others.
        max_age: in bars.
    """
    rows = jnp.arange(starts.shape[0], dtype=jnp.int32)
    lags = jnp.asarray(np.resize(np.asarray(latency, np.int32), LAGS))
    lag = lags[(hash_words(_LAG, jnp.uint32(seed), rows) >> 8) % LAGS]
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


def write_delta(table: AdviceTable, delta: Delta) -> AdviceTable:
    """Write a delta's rows into the table. Padding is dropped."""
    rows = table.rows.at[delta.bars].set(delta.rows, mode="drop", unique_indices=True)
    version = table.version.at[delta.bars].set(delta.version, mode="drop", unique_indices=True)
    return AdviceTable(rows, version, jnp.maximum(table.newest, delta.version))


def hash_words(*words: Array | int) -> Array:
    """Hash integers to uint32: the finaliser of MurmurHash3, applied word by word."""
    h = jnp.uint32(0)
    for word in words:
        h = (h ^ jnp.asarray(word).astype(jnp.uint32)) * jnp.uint32(0xCC9E2D51)
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        h = h ^ (h >> 16)
    return h


def _share(h: Array) -> Array:
    """Convert a hash to float32 in [0, 1)."""
    return (h >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def is_dropped(view: AdviceView, seed: Array, episode: Array, row: Array) -> Array:
    """Return whether dropout hides advice at this bar (bool[]).

    It hides it from the environment with this seed and episode number. Needs a view with dropout.
    """
    assert view.drop_episode is not None
    assert view.drop_bar is not None
    whole = _share(hash_words(_EPISODE, view.seed, seed, episode)) < view.drop_episode
    return whole | (_share(hash_words(_BAR, view.seed, seed, episode, row)) < view.drop_bar)


def look_up(view: AdviceView, row: Array, unseen: Array | bool = False) -> AdviceSeen:
    """Look up the advice known at the close of bar `row`, int32[].

    Args:
        unseen: bool[], True hides it from this environment.
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
    """Read the rows `at` int32[...] of a table, no advice at `NOWHERE`.

    Args:
        age: int32[] bars.
    """
    at = at.astype(jnp.uint32)  # NOWHERE wraps past every table: filled by 0
    version, advice = entries(table.version, at), entries(table.rows, at)
    age = jnp.where(version > 0, age, 0).astype(jnp.float32)
    # A row's sixth column is the horizon, which the agent does not see. Its place in `SEEN` holds
    # the age.
    return AdviceSeen(jnp.where(jnp.arange(len(SEEN)) == _AGE, age[..., None], advice), version)


def entries(values: Array, at: Array) -> Array:
    """Return the entries of an array at int[...] places of its first axis; 0 beyond its end."""
    return values.at[at].get(mode="fill", fill_value=0)


def consensus(each: AdviceSeen) -> AdviceSeen:
    """Merge what the advisors of a panel said: the mean over those that said something.

    The consensus has the mean of their logits, risks and ages, the highest version, and as
    confidence the size of the mean of direction times confidence. If the logits agree, so does
    this; if they contradict each other, it is low.

    Args:
        each: values float32[A, 6], version int32[A].
    """
    share = each.valid / jnp.maximum(each.valid.sum(), 1)
    mean = (share[:, None] * each.values).sum(axis=0)
    agreed = jnp.abs((share * each.direction * each.confidence).sum())
    values = jnp.where(jnp.arange(len(SEEN)) == SEEN.index("confidence"), agreed, mean)
    return AdviceSeen(values, each.version.max(), each)


def demand(want: Array, askable: Array, version: Array, most: int) -> tuple[Array, Array]:
    """Return the `most` most wanted bars without advice: int32[most] bars, float32[most] weights.

    Entries of weight 0 are padding and name no wanted bar. A bar lacks advice if any advisor has
    said nothing about it.

    Args:
        want: float32[T], visits times entropy.
        askable: bool[T].
        version: int32[A T] of the table.
    """
    lacks = (version.reshape(-1, want.shape[0]) == 0).any(axis=0)
    weight, bars = jax.lax.top_k(jnp.where(askable & lacks, want, 0.0), most)
    return bars.astype(jnp.int32), weight


# Snapshots of advice: a `.npz` file of bars, rows and a manifest. Using one needs no advisor.
#
# A snapshot belongs to a set of bars, because its rows refer to positions on their time axis. It
# serves every task and scaling over the same bars and is refused for other bars. One digest covers
# all its content, the manifest included.

FORMAT = 1


class Snapshot(NamedTuple):
    """A snapshot.

    bars: int32[n] ascending.
    rows: float32[n, 6] by `table.COLUMNS`.
    manifest: JSON values.
    """

    bars: np.ndarray
    rows: np.ndarray
    manifest: dict[str, Any]


def bars_digest(bars: Bars) -> str:
    """Hash the bars (sha256 hex).

    The hash covers time stamps, prices of all sides, volume, symbol, tick size and bar length.

    Costs and features are left out, so a snapshot stays valid when they change.
    """
    digest = hashlib.sha256(
        f"{bars.contract.symbol}|{bars.contract.tick_size}|{bars.bar_seconds}".encode()
    )
    sides = [
        {name: getattr(bars, name) for name in ("time", *PRICES, "volume")},
        bars.ask._asdict() if bars.ask else {},
    ]
    for name, values in (pair for side in sides for pair in side.items()):
        values = np.ascontiguousarray(values)
        digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def market_entries(market: Market) -> dict[str, Any]:
    """Return the manifest entries that identify the bars. `load_table` compares them."""
    return {
        "symbol": market.contract.symbol,
        "bars": len(market.bars),
        "bars_sha256": bars_digest(market.bars),
    }


def save_table(path: Path, bars: np.ndarray, rows: np.ndarray, manifest: Mapping[str, Any]) -> None:
    """Write a snapshot atomically: a reader never sees a partial file.

    Raises ValueError where bars or rows are not valid.

    Args:
        bars: int[n], each once, in any order.
        rows: float[n, 6].
        manifest: JSON values that include `market_entries`; this function adds `format`,
            `rows` and `sha256`.
    """
    bars, rows = np.asarray(bars, np.int32), np.asarray(rows, np.float32)
    order = np.argsort(bars, kind="stable")
    if fault := _fault(bars[order], rows[order] if len(rows) == len(bars) else rows):
        raise ValueError(fault)
    bars, rows = bars[order], rows[order]
    whole = {**manifest, "format": FORMAT, "rows": len(bars)}
    whole["sha256"] = _digest(bars, rows, whole)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            bars=bars,
            rows=rows,
            manifest=np.array(json.dumps(whole, sort_keys=True, allow_nan=False)),
        )
    temporary.replace(path)


def read_snapshot(path: Path) -> Snapshot:
    """Read and check a snapshot of any market.

    Raises DataError that says what is wrong with the file.
    """
    try:
        found = read_arrays(path)
        bars, rows, text = found["bars"], found["rows"], str(found["manifest"])
        manifest = json.loads(text)
        expected = manifest["sha256"]
    except FileNotFoundError:
        raise DataError(
            f"{path}: there is no such file; make it with 'jaxtrade advise precompute'"
        ) from None
    except FAULTS as error:
        raise DataError(
            f"{path}: not a snapshot of advice ({str(error)[:120]}); make one with 'jaxtrade advise "
            "precompute'"
        ) from None
    for name, values, dtype, rank in (("bars", bars, np.int32, 1), ("rows", rows, np.float32, 2)):
        if values.dtype != dtype or values.ndim != rank:
            raise DataError(
                f"{path}: '{name}' is {values.dtype} of rank {values.ndim}, expected {dtype.__name__} of "
                f"rank {rank}; the file was edited"
            )
    if expected != _digest(bars, rows, manifest):
        raise DataError(
            f"{path}: damaged or edited (its digest does not follow from its bars, rows and manifest); "
            "restore it, or make it anew with 'jaxtrade advise precompute'"
        )
    if manifest.get("format") != FORMAT:
        raise DataError(f"{path}: format {manifest.get('format')}, this version reads {FORMAT}")
    if fault := _fault(bars, rows):
        raise DataError(f"{path}: {fault}")
    return Snapshot(bars, rows, manifest)


def load_table(path: Path, market: Market) -> Snapshot:
    """Read a snapshot and check that it belongs to a market's bars.

    Raises DataError where the file is not a snapshot, is damaged or edited, or belongs to other
    bars; the message names what differs.
    """
    snapshot = read_snapshot(path)
    for name, found in market_entries(market).items():
        if (saved := snapshot.manifest.get(name)) != found:
            what = {
                "symbol": "market",
                "bars": "number of bars",
                "bars_sha256": "content of the bars",
            }[name]
            raise DataError(
                f"{path}: its {what} differs: {_short(saved)} there, {_short(found)} here "
                f"({market.bars.source}); give the bars it was made for, or make one for these"
            )
    advisors = int(
        snapshot.manifest.get("advisors", 1)
    )  # of a panel, each has as many rows as there are bars
    if len(snapshot.bars) and int(snapshot.bars[-1]) >= advisors * len(market.bars):
        raise DataError(
            f"{path}: bar {int(snapshot.bars[-1])} lies outside the {len(market.bars)} bars"
        )
    return snapshot


def _short(value: object) -> str:
    return ascii(value)[:20].strip("'")


def _fault(bars: np.ndarray, rows: np.ndarray) -> str:
    """Describe what is wrong with a snapshot's arrays; "" where nothing is."""
    if rows.shape != (len(bars), WIDTH):
        return f"rows of shape {rows.shape} for {len(bars)} bars; expected ({len(bars)}, {WIDTH})"
    if len(bars) and (bars[0] < 0 or (np.diff(bars.astype(np.int64)) <= 0).any()):
        return "bars are negative, repeated or out of order"
    if not np.isfinite(rows).all():
        return "a row holds a number that is not finite"
    return ""


def _digest(bars: np.ndarray, rows: np.ndarray, manifest: Mapping[str, Any]) -> str:
    """Hash bars, rows and the manifest, except for the manifest's own `sha256` (sha256 hex)."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    digest = hashlib.sha256(np.ascontiguousarray(bars, "<i4").tobytes())
    digest.update(np.ascontiguousarray(rows, "<f4").tobytes())
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()
