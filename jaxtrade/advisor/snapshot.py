"""Snapshots of advice: a `.npz` file of bars, rows and a manifest. Using one needs no advisor.

A snapshot belongs to a set of bars, because its rows refer to positions on their time axis. It
serves every task and scaling over the same bars and is refused for other bars. One digest covers
all its content, the manifest included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.data.read.validate import PRICES
from jaxtrade.errors import DataError
from jaxtrade.storage.archives import FAULTS, read_arrays

if TYPE_CHECKING:
    from jaxtrade.data.market import Market
    from jaxtrade.data.read.bars import Bars

FORMAT = 1
WIDTH = 6  # columns of a row, `advisor.table.COLUMNS`
_ARRAYS = {"bars": (np.int32, 1), "rows": (np.float32, 2)}


class Snapshot(NamedTuple):
    """A snapshot. bars: int32[n] ascending. rows: float32[n, 6] by `table.COLUMNS`. manifest: JSON
    values.
    """

    bars: np.ndarray
    rows: np.ndarray
    manifest: dict[str, Any]


def bars_digest(bars: Bars) -> str:
    """sha256 (hex) of the bars: time stamps, prices of all sides, volume, symbol, tick size and bar
    length.

    Costs and features are left out, so a snapshot stays valid when they change.
    """
    digest = hashlib.sha256(
        f"{bars.contract.symbol}|{bars.contract.tick_size}|{bars.bar_seconds}".encode()
    )
    sides = [
        {name: getattr(bars, name) for name in ("time", *PRICES, "volume")},
        {} if bars.ask is None else bars.ask._asdict(),
    ]
    for name, values in (pair for side in sides for pair in side.items()):
        values = np.ascontiguousarray(values)
        digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def market_entries(market: Market) -> dict[str, Any]:
    """The manifest entries that identify the bars. `load_table` compares them."""
    return {
        "symbol": market.contract.symbol,
        "bars": len(market.bars),
        "bars_sha256": bars_digest(market.bars),
    }


def save_table(path: Path, bars: np.ndarray, rows: np.ndarray, manifest: Mapping[str, Any]) -> None:
    """Write a snapshot atomically: a reader never sees a partial file.

    bars: int[n], each once, in any order. rows: float[n, 6]. manifest: JSON values that include
        `market_entries`; this
    function adds `format`, `rows` and `sha256`.

    Raises ValueError where bars or rows are not valid.
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
    """Read and check a snapshot of any market. Raises DataError that says what is wrong with the
    file.
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
    for name, values in (("bars", bars), ("rows", rows)):
        dtype, rank = _ARRAYS[name]
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
    """A description of what is wrong with a snapshot's arrays; "" where nothing is."""
    if rows.shape != (len(bars), WIDTH):
        return f"rows of shape {rows.shape} for {len(bars)} bars; expected ({len(bars)}, {WIDTH})"
    if len(bars) and (bars[0] < 0 or (np.diff(bars.astype(np.int64)) <= 0).any()):
        return "bars are negative, repeated or out of order"
    if not np.isfinite(rows).all():
        return "a row holds a number that is not finite"
    return ""


def _digest(bars: np.ndarray, rows: np.ndarray, manifest: Mapping[str, Any]) -> str:
    """sha256 (hex) of bars, rows and the manifest, except for the manifest's own `sha256`."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    digest = hashlib.sha256(np.ascontiguousarray(bars, "<i4").tobytes())
    digest.update(np.ascontiguousarray(rows, "<f4").tobytes())
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()
