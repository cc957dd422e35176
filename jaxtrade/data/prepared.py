"""A market on the host, between its files and the device, and how it is kept for the next start.

The prepared market of large files is kept in a cache (`storage.markets`). Its key covers everything
that it depends on: the contents of the files, the keys with which they are read, the names in its
notes, the contract, the features, the code of this package, and the versions of the libraries that
compute. So an entry is either right or not found. What a configuration only checks, and the view of
the observation, are computed at every start.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.contracts import Contract
from jaxtrade.data.features.schema import context_features
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import PRICES, Side
from jaxtrade.data.read.roll import Leg
from jaxtrade.parts import FEATURES
from jaxtrade.storage.markets import (
    VARIABLE,
    DamagedError,
    Entry,
    entry_path,
    limit_bytes,
    markets_folder,
    read_entry,
    write_entry,
)
from jaxtrade.storage.source import Source, of_command, unchanged
from jaxtrade.types import IntrabarPath, TickValue

LEAST_BYTES = 1 << 20  # smaller files are read as fast as a prepared market
OF_BARS = ("time", "volume")  # arrays of the bars that are not among `HostMarket.arrays`
PIECE = 1 << 22  # bytes hashed at once
Tell = Callable[[str], None]


@dataclass(frozen=True)
class HostMarket:
    """A market before it goes to the device. T bars, N sessions.

    bars: the bars. arrays: the arrays of the fingerprint by name, in its order: columns of T bars
        and of N sessions,
    `table`, and those of a second side (`ask.*`), of seconds (`path.*`) and of a currency (`tick_value.*`).
    fingerprint, notes, has_volume: as in `market.Market`.
    """

    bars: Bars
    arrays: dict[str, np.ndarray]
    fingerprint: str
    notes: tuple[str, ...]
    has_volume: bool

    @property
    def path(self) -> IntrabarPath | None:
        """The order of prices inside each bar, with NumPy leaves; None without seconds."""
        found = self._part("path")
        return IntrabarPath(**found) if found else None  # type: ignore[arg-type]  # host leaves

    @property
    def tick_value(self) -> TickValue | None:
        """The value of a tick in each bar, with NumPy leaves; None if profits arise in dollars."""
        found = self._part("tick_value")
        return TickValue(**found) if found else None  # type: ignore[arg-type]  # host leaves

    def _part(self, prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(f"{prefix}."): array
            for name, array in self.arrays.items()
            if name.startswith(f"{prefix}.")
        }


@dataclass(frozen=True)
class Shelf:
    """The place of one configuration's market in the cache.

    key: names the entry. limit: bytes of the whole cache. digests: sha256 of each file when the key
        was made. source:
    the source files that this process runs.
    """

    folder: Path
    key: str
    limit: int
    digests: dict[str, str]
    source: Source


def shelf_of(config: RunConfig, contract: Contract) -> Shelf | None:
    """Where the market of a configuration is kept. None if it is not kept: the cache is off, the
    bars are bundled, synthetic or few, a file is missing, or code of the user's own takes part: in
    a process that is not one of jaxtrade's commands, with modules that the configuration imports,
    or with a feature of the user's own.

    Raises ConfigError if the cache's limit is not a number.
    """
    limit, source = limit_bytes(), of_command()
    names = (*config.env.features, *context_features(config.env.task))
    files = config.data.files
    own = config.imports or any(name in FEATURES for name in names)
    if source is None or not limit or own or config.data.source != "file":
        return None
    if (
        not all(Path(path).is_file() for path in files.values())
        or sum(Path(path).stat().st_size for path in files.values()) < LEAST_BYTES
    ):
        return None
    try:
        digests, folder = digests_of(files), markets_folder()
    except (
        OSError,
        RuntimeError,
    ):  # a file that cannot be read is named where it is read; or there is no home folder
        return None
    parts = {
        "data": config.data.model_dump(mode="json"),
        "overnight": config.session.overnight,
        "window": config.env.window,
        "names": names,
        "contract": repr(contract),
        "files": digests,
        "code": source.digest,
        "python": sys.version,
        "machine": [platform.machine(), sys.byteorder],
        "libraries": {name: version(name) for name in ("jaxtrade", "numpy", "pandas", "tzdata")},
    }
    return Shelf(
        folder,
        hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest(),
        limit,
        digests,
        source,
    )


def digests_of(files: dict[str, str]) -> dict[str, str]:
    """sha256 (hex) of each file. Raises OSError if one cannot be read."""
    found = {}
    for key, path in files.items():
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        found[key] = digest.hexdigest()
    return found


def restored(shelf: Shelf, contract: Contract, tell: Tell) -> HostMarket | None:
    """The market that an earlier start prepared; None if there is none, or if the source files have
    changed since this process began. `tell` gets a line about a damaged entry."""
    if not unchanged(shelf.source):
        return None
    path = entry_path(shelf.folder, shelf.key)
    try:
        entry = read_entry(path)
    except (DamagedError, OSError) as error:
        tell(f"the prepared market {path} is not used ({error}); it is made again from the files")
        return None
    return None if entry is None else _unpacked(entry, contract)


def keep(shelf: Shelf, host: HostMarket, config: RunConfig, tell: Tell) -> None:
    """Keep a prepared market for the next start, unless a file has changed since the key was made,
    or a source file since this process began.

    `tell` gets a line if the market cannot be written.
    """
    try:
        if digests_of(config.data.files) == shelf.digests and unchanged(shelf.source):
            write_entry(shelf.folder, shelf.key, _packed(host), shelf.limit)
    except OSError as error:
        tell(
            f"the prepared market is not kept for the next run ({error}); free some space, or set "
            f"{VARIABLE}=0 to keep none"
        )


def _packed(host: HostMarket) -> Entry:
    bars = host.bars
    facts = {
        "bar_seconds": bars.bar_seconds,
        "slippage_ticks": bars.contract.slippage_ticks,
        "source": bars.source,
        "bars_notes": bars.notes,
        "legs": [astuple(leg) for leg in bars.legs],
        "fingerprint": host.fingerprint,
        "notes": host.notes,
        "has_volume": host.has_volume,
    }
    return Entry({**{name: getattr(bars, name) for name in OF_BARS}, **host.arrays}, facts)


def _unpacked(entry: Entry, contract: Contract) -> HostMarket:
    arrays, facts = dict(entry.arrays), entry.facts
    time, volume = (arrays.pop(name) for name in OF_BARS)
    ask = [arrays[f"ask.{name}"] for name in PRICES if f"ask.{name}" in arrays]
    open_, high, low, close = (arrays[name] for name in PRICES)
    bars = Bars(
        time,
        open_,
        high,
        low,
        close,
        volume,
        bar_seconds=facts["bar_seconds"],
        contract=replace(contract, slippage_ticks=facts["slippage_ticks"]),
        source=facts["source"],
        notes=tuple(facts["bars_notes"]),
        ask=Side(*ask) if ask else None,
        legs=tuple(Leg(*fields) for fields in facts["legs"]),
    )
    return HostMarket(
        bars, arrays, facts["fingerprint"], tuple(facts["notes"]), facts["has_volume"]
    )
