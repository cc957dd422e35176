"""Bars from memory for a run: they are written to a file first, so that the run can be evaluated
and resumed later.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.data.contract_file import contract_named, contract_of
from jaxtrade.data.contracts import CONTRACTS, shipped_contracts
from jaxtrade.data.read.bars import Bars, from_frame
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import read_keys
from jaxtrade.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


# Keys that say how a source is read, with their values for a file that `write_bars` wrote. The
# other keys of the section (start, end, splits, ...) say what a run makes of the bars, and keep
# their meaning.
READING = {
    "columns": {},
    "time_zone": None,
    "stamp": "open",
    "date_order": None,
    "price_scale": 1.0,
    "expiry": None,
    "roll": "off",
}


def bars_from(frame: pd.DataFrame, config: RunConfig) -> Bars:
    """The bars of a frame, read with the keys of `config.data`. Raises DataError with every fault,
    ConfigError.
    """
    keys = read_keys(config, quotes=False)
    return from_frame(frame, contract_of(config.data), **{name: keys[name] for name in READING})


def with_bars(config: RunConfig, bars: Bars, folder: Path) -> RunConfig:
    """`config` with `bars` as its data: writes them to a file in `folder`, named by its content,
    and states how to read it.

    Raises:
        ConfigError: the bars are synthetic or spliced, or their contract is not that of the
            configuration.
    """
    _check(config, bars)
    path = write_bars(bars, folder)
    read = {"source": "file", "file": str(path.resolve()), **READING}
    symbol = bars.contract.symbol
    if config.data.contract is None:
        read |= {"market": symbol} if symbol in CONTRACTS else {"contract": symbol}
    return changed_config(config, {f"data.{key}": value for key, value in read.items()})


def _check(config: RunConfig, bars: Bars) -> None:
    if bars.synthetic:
        raise ConfigError(
            "data=: these bars are synthetic, and a run from them would be reported as one of real bars; "
            "generate them in the run: data={'source': 'synthetic', ...}"
        )
    if bars.legs:
        raise ConfigError(
            "data=: these bars are spliced from several contracts; give their file and the roll: "
            "data='FILE', roll=..."
        )
    own, symbol = config.data.contract is not None, bars.contract.symbol
    known = (
        contract_of(config.data)
        if own
        else contract_named(symbol)
        if symbol in (*CONTRACTS, *shipped_contracts())
        else None
    )
    if known is None or replace(known, slippage_ticks=0) != replace(
        bars.contract, slippage_ticks=0
    ):
        hint = (
            f"contract={config.data.contract!r} is another"
            if own
            else "it is not a market of jaxtrade"
        )
        raise ConfigError(
            f"data=: the contract of these bars is {bars.contract.symbol}, and {hint}; give "
            "contract='FILE' with its figures"
        )


def write_bars(bars: Bars, folder: Path) -> Path:
    """Write one-sided or two-sided bars as CSV.gz -> the path `<symbol>-<sha256>.csv.gz`. A file
    that is there stays.

    `load_bars(path, contract, stamp="open")` reads equal bars back. Raises OSError (disk).
    """
    text = _text(bars).encode("ascii")
    path = folder / f"{bars.contract.symbol}-{hashlib.sha256(text).hexdigest()[:16]}.csv.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(gzip.compress(text, compresslevel=1, mtime=0))
        temporary.replace(path)
    return path


def _text(bars: Bars) -> str:
    contract = bars.contract

    def points(ticks: np.ndarray) -> np.ndarray:
        return np.char.mod(f"%.{contract.decimals}f", ticks * float(contract.tick_size))

    columns: dict[str, Any] = {
        "time": np.char.add(np.datetime_as_string(bars.time.astype("datetime64[s]")), "Z")
    }
    sides = {"": bars} if bars.ask is None else {"bid_": bars, "ask_": bars.ask}
    for prefix, side in sides.items():
        columns |= {f"{prefix}{name}": points(getattr(side, name)) for name in PRICES}
    columns["volume"] = map(repr, bars.volume.tolist())
    rows = map(",".join, zip(*columns.values(), strict=True))
    return "\n".join([",".join(columns), *rows]) + "\n"
