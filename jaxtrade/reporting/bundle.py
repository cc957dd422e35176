"""Columns of integers as text that a browser unpacks quickly: differences as int16, raw deflate,
base64.

The page decodes it in `web/bundle.js`. Nothing in it depends on the clock or on the machine.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

LEVEL = 6  # of deflate; 9 takes several times as long on prices and saves about 1 %
TYPES = (np.uint8, np.int16, np.int32)  # of differences, the first that holds them all


def packed(
    columns: Mapping[str, np.ndarray], above: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The columns, all of one length, as JSON values.

    Args:
        columns: name -> int[N]. Each is stored as its first value and the N - 1 differences of its
            neighbours.
        above: name -> an earlier column; such a column is stored as N differences from that one.
    Returns:
        rows: N. columns: of each its `name`, `type` (u1, i2 or i4), `first`, and `above`, a name or
            None. data: the
        differences of all columns one after the other, little-endian, deflated without a header, as
        base64.
    Raises ValueError if differences do not fit int32.
    """
    described, parts = [], []
    size = len(next(iter(columns.values()), ()))
    for name, column in columns.items():
        values, other = np.asarray(column, np.int64), (above or {}).get(name)
        deltas = (
            np.diff(values, prepend=values[:1])
            if other is None
            else values - np.asarray(columns[other], np.int64)
        )
        kind = next(
            (
                each
                for each in TYPES
                if not len(deltas)
                or (np.iinfo(each).min <= deltas.min() and deltas.max() <= np.iinfo(each).max)
            ),
            None,
        )
        if kind is None:
            raise ValueError(
                f"{name}: neighbours differ by {np.abs(deltas).max():,}, more than 32 bits hold"
            )
        described.append(
            {
                "name": name,
                "type": f"{np.dtype(kind).kind}{np.dtype(kind).itemsize}",
                "first": int(values[0]) if size else 0,
                "above": other,
            }
        )
        parts.append(deltas.astype(np.dtype(kind).newbyteorder("<")).tobytes())
    squeeze = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    data = squeeze.compress(b"".join(parts)) + squeeze.flush()
    return {"rows": size, "columns": described, "data": base64.b64encode(data).decode("ascii")}


def unpacked(bundle: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of `packed`, int64[N] each: what the browser does."""
    raw, found, at = zlib.decompress(base64.b64decode(bundle["data"]), -15), {}, 0
    for each in bundle["columns"]:
        kind = np.dtype(f"<{each['type']}")
        deltas = np.frombuffer(raw, kind, bundle["rows"], at).astype(np.int64)
        at += bundle["rows"] * kind.itemsize
        found[each["name"]] = (
            each["first"] + np.cumsum(deltas)
            if each["above"] is None
            else found[each["above"]] + deltas
        )
    return found
