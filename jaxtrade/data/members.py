"""The symbols of a set, `data.markets`: one configuration for each. Imports neither JAX nor
NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.config.allocate import TASK, AllocateConfig
from jaxtrade.data.contracts import contract_of
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError

COMMON = "all symbols"  # name of the one group of statistics of a set with network.normalise_per_symbol=false
ENDINGS = (".csv", ".csv.gz", ".csv.zip", ".zip", ".txt", ".txt.gz", ".parquet")
NAMED = 4  # symbols that a set's name spells out
SHOWN = 12  # files of a folder that an error names


def symbols_of(config: RunConfig) -> tuple[str, ...]:
    """The symbols that a configuration trains on, in order; one without `data.markets`. Looks for
    no file of bars.
    """
    return config.data.markets or (contract_of(config.data).symbol,)


def require_one(config: RunConfig, what: str) -> None:
    """Raises ConfigError if the configuration names several symbols. what: a sentence's subject,
    for the message.
    """
    symbols = symbols_of(config)
    if len(symbols) > 1:
        raise ConfigError(
            f"data.markets = {', '.join(symbols)}: {what} works on one symbol; set data.market instead "
            "(--market), and data.markets=[]"
        )


def set_name(symbols: Sequence[str]) -> str:
    """A short name for folders and titles: EURUSD+USDJPY; of more than four symbols FIRST+N."""
    return "+".join(symbols) if len(symbols) <= NAMED else f"{symbols[0]}+{len(symbols) - 1}"


def groups_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the groups of observation statistics, in order: the symbols, or one name where they
    are common.

    `allocate` observes all symbols together, so they share their statistics.
    """
    symbols = symbols_of(config)
    own = config.network.normalise_per_symbol and config.env.task != TASK
    return symbols if len(symbols) == 1 or own else (COMMON,)


def member_configs(config: RunConfig) -> tuple[RunConfig, ...]:
    """The configuration of each symbol alone, in the order of `data.markets`; `config` itself where
    that is empty.

    A member's `data.market` is its symbol, and its `data.per_market` entries have taken the place
    of the common keys. With `data.folder`, a symbol's file is the one that is named after it,
    unless `data.per_market` names another.

    Raises:
        ConfigError: an unknown symbol, a symbol without a file, a value that `data.per_market` may
            not have, a contract of another symbol, or several files for one symbol.
        DataError: no such folder, or no file for a symbol.
    """
    if not config.data.markets:
        return (config,)
    return tuple(_member(config, symbol) for symbol in config.data.markets)


def _member(config: RunConfig, symbol: str) -> RunConfig:
    own = dict(config.data.per_market.get(symbol, {}))
    config = config.model_copy(
        update={"allocate": AllocateConfig()}
    )  # its keys are about all symbols
    if config.data.folder is not None and "file" not in own:
        own["file"] = str(file_of(Path(config.data.folder), symbol))
    common = config.data.model_dump(mode="json") | {"markets": [], "folder": None, "per_market": {}}
    try:
        member = changed_config(config, {"data": common | {"market": symbol} | own}, stored=True)
        found = contract_of(member.data).symbol
    except ConfigFaultsError as error:
        raise ConfigError(
            f"data.per_market.{symbol}: {'; '.join(text for _, text in error.faults)}"
        ) from None
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.market = ", "data.markets: ", 1)) from None
    if member.data.source == "file" and member.data.file is None:
        raise ConfigError(
            f"data.source = file: no file is given for {symbol}; name a folder in data.folder, or the "
            f"file in data.per_market, e.g. {{{symbol}: {{file: FILE}}}}"
        )
    if found != symbol:
        raise ConfigError(
            f"data.per_market.{symbol}.contract = {member.data.contract}: its symbol is {found}; name "
            f"{found} in data.markets, or give the contract of {symbol}"
        )
    return member


def expected_names(symbol: str) -> str:
    """The names that a symbol's file in a folder may have, as patterns."""
    return f"{symbol}*{{{','.join(ENDINGS)}}}"


def file_of(folder: Path, symbol: str) -> Path:
    """The file of bars in `folder` that is named after a symbol, such as EURUSD.csv or
    eurusd_h1.csv.gz.

    Raises DataError if there is none, ConfigError if there are several.
    """
    if not folder.is_dir():
        found = (
            "is a file"
            if folder.exists()
            else "there is no such folder" + ("" if folder.is_absolute() else f" in {Path.cwd()}")
        )
        raise DataError(
            f"data.folder = '{folder}': {found}; expected a folder with one file of bars for each symbol, "
            f"named after it, such as {symbol}.csv ({expected_names(symbol)}). Fix: name that folder, or "
            "take the bars of the package (data.source=bundled, without data.folder)"
        )
    bars = bars_in(folder)
    found = [path for path in bars if is_of(symbol, path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"data.folder = '{folder}': {', '.join(path.name for path in found)} are all named after "
            f"{symbol}; name one in data.per_market, e.g. {{{symbol}: {{file: {found[0]}}}}}"
        )
    names = ", ".join(path.name for path in bars[:SHOWN]) + (" ..." if len(bars) > SHOWN else "")
    raise DataError(
        f"data.folder = '{folder}': no file is named after {symbol} (files found: {names or 'none'}; "
        f"expected {expected_names(symbol)}); rename it, or name it in data.per_market, e.g. {{{symbol}: "
        "{file: FILE}}"
    )


def bars_in(folder: Path) -> list[Path]:
    """The files in a folder whose endings are those of bars, by name."""
    return sorted(
        path for path in folder.iterdir() if path.is_file() and path.name.lower().endswith(ENDINGS)
    )


def is_of(symbol: str, path: Path) -> bool:
    """Whether a file is named after a symbol."""
    return re.match(rf"{re.escape(symbol)}(?![A-Z0-9])", path.name, re.IGNORECASE) is not None
