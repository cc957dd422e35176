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
from dataclasses import dataclass
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
FLAGS = ("legal", "active", "reached", "mask")
DIFFERENCES = (
    "row",
    "time",
    "open",
    "high",
    "low",
    "close",
    "equity",
    "high_water",
    "event.bar",
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


Columns = Mapping[str, np.ndarray]

# The columns of a pass of the shown agent: one entry for each of the L decision bars, the state
# after the bar that follows. Of S symbols in one account, quantity is [L, S].
#
# action: int64[L] id of the action, -1 for an order without one.
# legal: bool[L] whether it was allowed.
# mask: bool[L, A] legal actions at the decision; of one symbol.
# quantity: int64[L] contracts held, with sign.
# stop, target: int64[L] levels in ticks, `ABSENT` for none; of one symbol.
# equity, high_water: int64[L] mills from the start balance; high_water of one symbol.
# floor: int64[L] mills, the drawdown floor; `ABSENT` for none.
# account: int64[L] its number, from 0.
# active: bool[L] whether it was open when the bar began.
# end: int64[L] `env.state.EndReason`.
# reached: bool[L] whether its realised profit had reached the target; of one symbol.
# profit: int64[L, S] mills, the share of each symbol in the change of equity; of several.
# event.NAME: int64[E] of each fill, in time order; of several symbols as
#     `evaluation.trades.joint_fills`, else:
#     bar: index 0..L-1 of the decision bar, so the fill is in the bar after it.
#     kind: index in `KINDS`.
#     quantity: contracts with the sign of the position.
#     price: ticks, slippage included.
#     reason: `env.state.ExitReason`, 0 for an entry.


@dataclass(frozen=True)
class BarRecords:
    """The B bars of the evaluated sessions: of each its decision bars, then its flat bar.

    row: int64[B] market row.
    time: int64[B] UTC seconds of the open.
    session: int64[B] number of the session, 0..D-1.
    open, high, low, close: int64[B] ticks (mid prices of two-sided bars).
    decision: int64[L] index (0..B-1) of each decision bar; its effects are in the bar after it.
    strategy, account: the columns of the shown agent's passes, see above.
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
    strategy: Columns
    account: Columns
    trades: Mapping[str, Columns]


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
    groups = {"bars": {name: getattr(bars, name) for name in BAR_COLUMNS}}
    groups |= {which: getattr(bars, which) for which in PASSES}
    groups |= {f"trades.{number}": bars.trades[agent] for number, agent in enumerate(agents)}
    return {
        f"{group}.{name}": _encode_column(name, values)
        for group, columns in groups.items()
        for name, values in columns.items()
    }


def _encode_column(name: str, values: np.ndarray) -> np.ndarray:
    """Encode a column as the file holds it.

    Flags are bits, differences are stored where they are smaller, and the type is the narrowest.
    """
    if name in FLAGS:
        return np.packbits(values, axis=-1)
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
    columns: dict[str, Any] = _group("bars", arrays)
    session = columns["session"]
    decision = np.flatnonzero(
        session[1:] == session[:-1]
    )  # every bar of a session but its last, the flat bar
    strategy, account = (
        _group(which, arrays, len(decision), len(meta["actions"])) for which in PASSES
    )
    trades = {agent: _group(f"trades.{number}", arrays) for number, agent in enumerate(agents)}
    for group in (columns, strategy, account):
        length = len(session if group is columns else decision)
        for name, values in group.items():
            if not name.startswith("event.") and len(values) != length:
                raise ValueError(f"column '{name}' has {len(values)} entries for {length} bars")
    return BarRecords(
        **columns, decision=decision, strategy=strategy, account=account, trades=trades
    )


def _group(
    group: str,
    arrays: Mapping[str, np.ndarray],
    length: int | None = None,
    actions: int | None = None,
) -> dict[str, np.ndarray]:
    """Decode the columns of a group by their names.

    length, actions: entries on the last axis of columns of flags, and of the mask.
    """
    names = [name.removeprefix(f"{group}.") for name in arrays if name.startswith(f"{group}.")]
    return {
        name: _whole(name, arrays[f"{group}.{name}"], actions if name == "mask" else length)
        for name in names
    }


def _whole(name: str, stored: np.ndarray, count: int | None = None) -> np.ndarray:
    """Unpack the column that `_encode_column` has packed.

    count: number of entries on the last axis of a column of flags.
    """
    if name in FLAGS:
        return np.unpackbits(stored, axis=-1, count=count).astype(bool)
    values = stored.astype(np.int64)
    return np.cumsum(values, axis=0) if name in DIFFERENCES else values
