"""`records.npz` of an evaluation: what a report or a comparison needs later.

Nothing has to run again for it.

The file holds integers in the narrowest type that fits, slowly changing columns as differences, and
no time of writing: equal evaluations give equal bytes. This module loads no JAX.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.errors import DataError
from jaxtrade.storage.archives import FAULTS, read_arrays

RECORDS = "records.npz"
FORMAT = 1
ABSENT = -(2**31)  # in a column of levels: there is none
EARLIEST = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the first date that a zip archive can hold: equal content gives equal bytes
LEVEL = 1  # of deflate; higher levels take several times as long and save little on these columns
PASSES = ("strategy", "account")
BAR_COLUMNS = ("row", "time", "session", "open", "high", "low", "close")
STEP_COLUMNS = (
    "action",
    "legal",
    "quantity",
    "stop",
    "target",
    "equity",
    "high_water",
    "floor",
    "account",
    "active",
    "end",
    "reached",
    "profit",
)
FLAGS = ("legal", "active", "reached")
EVENT_COLUMNS = ("bar", "kind", "quantity", "price", "reason")  # of one symbol
NOT_KEPT = np.empty(0, np.int64)  # for a column that an evaluation does not have
OF_ONE_SYMBOL = ("mask", "stop", "target", "high_water", "reached")  # columns that others lack
OF_SEVERAL = ("profit",)
DIFFERENCES = (
    "row",
    "time",
    "open",
    "high",
    "low",
    "close",
    "equity",
    "high_water",
    "bar",
    "decision_row",
    "entry_row",
    "exit_row",
    "entry_price",
    "exit_price",
)  # columns that are stored as differences
KINDS = (
    "order_exit",
    "entry",
    "exit",
)  # of an event, in the order in which they happen within a bar


@dataclass(frozen=True)
class PassRecords:
    """One pass of the shown agent: one entry for each of the L decision bars.

    An entry is the state after the bar that follows. Of S symbols in one account, quantity is
    [L, S], and mask, stop, target, high_water and reached have no entries.

    action: int64[L] id of the action, -1 for an order without one.
    legal: bool[L] whether it was allowed.
    mask: bool[L, A] legal actions at the decision.
    quantity: int64[L] contracts held, with sign.
    stop, target: int64[L] levels in ticks, `ABSENT` for none.
    equity, high_water: int64[L] mills from the start balance.
    floor: int64[L] mills, the drawdown floor; `ABSENT` for none.
    account: int64[L] its number, from 0.
    active: bool[L] whether it was open when the bar began.
    end: int64[L] `env.state.EndReason`.
    reached: bool[L] whether its realised profit had reached the target.
    profit: int64[L, S] mills, the share of each symbol in the change of equity; without entries for
        one symbol.
    events: int64[E] each, in time order; of several symbols as `evaluation.trades.joint_fills`.
        bar: index 0..L-1 of the decision bar, so the fill is in the bar after it.
        kind: index in `KINDS`.
        quantity: contracts with the sign of the position.
        price: ticks, slippage included.
        reason: `env.state.ExitReason`, 0 for an entry.
    """

    action: np.ndarray
    legal: np.ndarray
    mask: np.ndarray
    quantity: np.ndarray
    stop: np.ndarray
    target: np.ndarray
    equity: np.ndarray
    high_water: np.ndarray
    floor: np.ndarray
    account: np.ndarray
    active: np.ndarray
    end: np.ndarray
    reached: np.ndarray
    events: Mapping[str, np.ndarray]
    profit: np.ndarray = field(default_factory=lambda: NOT_KEPT)


@dataclass(frozen=True)
class BarRecords:
    """The B bars of the evaluated sessions: of each its decision bars, then its flat bar.

    row: int64[B] market row.
    time: int64[B] UTC seconds of the open.
    session: int64[B] number of the session, 0..D-1.
    open, high, low, close: int64[B] ticks (mid prices of two-sided bars).
    decision: int64[L] index (0..B-1) of each decision bar; its effects are in the bar after it.
    strategy, account: the shown agent's passes.
    trades: agent -> column -> int64[K], as `evaluation.trades.Trades`. Of S symbols in one account
        the bars are those that they share: prices int64[B, S], each in ticks of its symbol; trades
        are fills, as `evaluation.trades.joint_fills`.
    """

    row: np.ndarray
    time: np.ndarray
    session: np.ndarray
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    decision: np.ndarray
    strategy: PassRecords
    account: PassRecords
    trades: Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class EvaluationRecords:
    """What an evaluation leaves for later, A agents over D days.

    agents: their names.
    shown: the agent that `bars` is about, the first one by default.
    dates: datetime64[D][D] trade dates.
    daily_net, account_daily_net: float64[A, D] dollars of each day, account rules off and on.
    meta: JSON values: `settings` as in `evaluation.json`, `split`, `seed` and `agent` (index in a
        sweep, else None) of the policy; of a run's evaluation also `day_bars`, by symbol the
        digests of the dates (`evaluation.test_set_history`), and `policy_sha256`
        (`evaluation.policy`); with `bars` also `labels`, `actions` (names by id), `tick_size`
        (text, points; of several symbols one for each), `decimals`, `bar_seconds`, `zone`
        and `start_balance`.
    bars: None where days are all that is kept: of a set taken together.
    """

    agents: tuple[str, ...]
    shown: str
    dates: np.ndarray
    daily_net: np.ndarray
    account_daily_net: np.ndarray
    meta: dict[str, Any]
    bars: BarRecords | None = None


# --- writing ---------------------------------------------------------------------------------------------------------


def write_records(path: Path, records: EvaluationRecords) -> None:
    """Write the file; equal records give equal bytes. Raises OSError (disk)."""
    arrays: dict[str, np.ndarray] = {
        "dates": records.dates.astype("datetime64[D]").astype(np.int32),
        "daily_net": np.asarray(records.daily_net, np.float64),
        "account_daily_net": np.asarray(records.account_daily_net, np.float64),
    }
    if records.bars:
        arrays |= _bar_arrays(records.agents, records.bars)
    # The number of arrays: damage to the archive's directory can hide some of them.
    meta = {
        "format": FORMAT,
        "arrays": len(arrays),
        "agents": records.agents,
        "shown": records.shown,
        **records.meta,
    }
    text = json.dumps(meta, sort_keys=True, allow_nan=False)
    arrays = {"meta": np.frombuffer(text.encode(), np.uint8), **arrays}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(values), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", EARLIEST)
            archive.writestr(info, buffer.getvalue(), zipfile.ZIP_DEFLATED, LEVEL)


def _bar_arrays(agents: tuple[str, ...], bars: BarRecords) -> dict[str, np.ndarray]:
    """Return name in the file -> array, of everything but the days."""
    arrays = {f"bars.{name}": _encode_column(name, getattr(bars, name)) for name in BAR_COLUMNS}
    for which in PASSES:
        each: PassRecords = getattr(bars, which)
        columns = {name: getattr(each, name) for name in STEP_COLUMNS}
        arrays |= {
            f"{which}.{name}": _encode_column(name, values)
            for name, values in columns.items()
            if values.size
        }
        if each.mask.size:
            arrays[f"{which}.mask"] = np.packbits(each.mask, axis=1)
        arrays |= {
            f"{which}.event.{name}": _encode_column(name, values)
            for name, values in each.events.items()
        }
    for number, agent in enumerate(agents):
        arrays |= {
            f"trades.{number}.{name}": _encode_column(name, values)
            for name, values in bars.trades[agent].items()
        }
    return arrays


def _encode_column(name: str, values: np.ndarray) -> np.ndarray:
    """Encode a column as the file holds it.

    Flags are bits, differences are stored where they are smaller, and the type is the narrowest.
    """
    if name in FLAGS:
        return np.packbits(values)
    whole = np.asarray(values, np.int64)
    return _narrow(np.diff(whole, axis=0, prepend=0) if name in DIFFERENCES else whole)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Convert integers to the smallest signed type that holds all of them."""
    for kind in (np.int8, np.int16, np.int32):
        if np.array_equal(narrow := values.astype(kind), values):
            return narrow
    return values


# --- reading ---------------------------------------------------------------------------------------------------------


def read_records(path: Path) -> EvaluationRecords:
    """Read a `records.npz`.

    Runs of earlier versions have no such file; an evaluation makes it. Raises DataError, which
    names the file, where it is absent, damaged or of another format.
    """
    try:
        arrays = read_arrays(path)
        meta = json.loads(arrays["meta"].tobytes())
        found = meta.pop("format")
        if found != FORMAT:
            raise DataError(
                f"{path}: format {found}, this version reads {FORMAT}; evaluate the run again: jaxtrade "
                "evaluate RUN"
            )
        if (count := meta.pop("arrays")) != len(arrays) - 1:
            raise ValueError(f"it holds {len(arrays) - 1} of {count} arrays")
        return _records(meta, arrays)
    except FileNotFoundError:
        raise DataError(
            f"{path}: there is no such file; runs of earlier versions have none. Make it: jaxtrade "
            "evaluate RUN (and --split NAME for another split than test)"
        ) from None
    except FAULTS as error:
        raise DataError(
            f"{path}: cannot be read ({str(error)[:120]}); make it anew: jaxtrade evaluate RUN"
        ) from None


def _records(meta: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> EvaluationRecords:
    """Decode the content of a file.

    Raises KeyError and ValueError where parts are missing or do not fit together.
    """
    agents, shown = tuple(meta.pop("agents")), meta.pop("shown")
    dates = arrays["dates"].astype("datetime64[D]")
    nets = [np.asarray(arrays[name], np.float64) for name in ("daily_net", "account_daily_net")]
    for net in nets:
        if net.shape != (len(agents), len(dates)):
            raise ValueError(
                f"{len(agents)} agents, {len(dates)} days, but a daily net of shape {net.shape}"
            )
    bars = _bars(agents, meta, arrays) if "bars.row" in arrays else None
    return EvaluationRecords(agents, shown, dates, nets[0], nets[1], meta, bars)


def _bars(
    agents: tuple[str, ...], meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> BarRecords:
    columns: dict[str, Any] = {name: _whole(name, arrays[f"bars.{name}"]) for name in BAR_COLUMNS}
    session = columns["session"]
    decision = np.flatnonzero(
        session[1:] == session[:-1]
    )  # every bar of a session but its last, the flat bar
    strategy, account = (
        _pass(which, len(decision), len(meta["actions"]), arrays) for which in PASSES
    )
    trades = {agent: _group(f"trades.{number}.", arrays) for number, agent in enumerate(agents)}
    if fault := [name for name, values in columns.items() if len(values) != len(session)]:
        raise ValueError(
            f"column '{fault[0]}' has {len(columns[fault[0]])} bars, 'session' {len(session)}"
        )
    return BarRecords(
        **columns, decision=decision, strategy=strategy, account=account, trades=trades
    )


def _pass(which: str, length: int, actions: int, arrays: Mapping[str, np.ndarray]) -> PassRecords:
    several = f"{which}.profit" in arrays
    absent = dict.fromkeys(OF_ONE_SYMBOL if several else OF_SEVERAL, NOT_KEPT)
    columns = {
        name: _whole(name, arrays[f"{which}.{name}"], length)
        for name in STEP_COLUMNS
        if name not in absent
    }
    if not several:
        masks = np.unpackbits(arrays[f"{which}.mask"], axis=1, count=actions)
        columns["mask"] = masks.astype(bool)
    if fault := [name for name, values in columns.items() if len(values) != length]:
        raise ValueError(
            f"{which} '{fault[0]}' has {len(columns[fault[0]])} entries for {length} decision bars"
        )
    events = _group(f"{which}.event.", arrays)
    if not several and (lost := set(EVENT_COLUMNS) - set(events)):
        raise ValueError(f"{which} lacks the fills' {', '.join(sorted(lost))}")
    return PassRecords(**absent, **columns, events=events)


def _group(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Select the columns whose names begin with `prefix`, by the rest of their names."""
    names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    return {name: _whole(name, arrays[f"{prefix}{name}"]) for name in names}


def _whole(name: str, stored: np.ndarray, length: int | None = None) -> np.ndarray:
    """Unpack the column that `_encode_column` has packed.

    length: number of entries of a column of flags.
    """
    if name in FLAGS:
        return np.unpackbits(stored, count=length).astype(bool)
    values = stored.astype(np.int64)
    return np.cumsum(values, axis=0) if name in DIFFERENCES else values
