"""What is known of a run's bars before they are read.

The symbols of a set, `data.markets`, with one configuration for each, and how many sessions there
can be.

Imports neither JAX nor NumPy, so that a run that cannot be is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from jaxtrade.config import DataConfig, RunConfig, SplitConfig, WalkConfig, changed_config
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.config.run import split_of
from jaxtrade.data.contracts import BUNDLED, contract_of, require_bundled
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError

COMMON = "all symbols"  # name of the one group of statistics of a set with network.normalise_per_symbol=false
ENDINGS = (".csv", ".csv.gz", ".csv.zip", ".zip", ".txt", ".txt.gz", ".parquet")
NAMED = 4  # symbols that a set's name spells out
SHOWN = 12  # files of a folder that an error names


def symbols_of(config: RunConfig) -> tuple[str, ...]:
    """Return the symbols that a configuration trains on, in order; one without `data.markets`.

    Looks for no file of bars.
    """
    return config.data.markets or (contract_of(config.data).symbol,)


def require_one(config: RunConfig, what: str) -> None:
    """Raise ConfigError if the configuration names several symbols.

    what: a sentence's subject, for the message.
    """
    symbols = symbols_of(config)
    if len(symbols) > 1:
        raise ConfigError(
            f"data.markets = {', '.join(symbols)}: {what} works on one symbol; set data.market instead "
            "(--market), and data.markets=[]"
        )


def set_name(symbols: Sequence[str]) -> str:
    """Make a short name for folders and titles: EURUSD+USDJPY.

    Of more than four symbols it is FIRST+N.
    """
    return "+".join(symbols) if len(symbols) <= NAMED else f"{symbols[0]}+{len(symbols) - 1}"


def groups_of(config: RunConfig) -> tuple[str, ...]:
    """Return the names of the groups of observation statistics, in order.

    They are the symbols, or one name where they are common. `allocate` observes all symbols
    together, so they share their statistics.
    """
    symbols = symbols_of(config)
    own = config.network.normalise_per_symbol and not config.env.joint
    return symbols if len(symbols) == 1 or own else (COMMON,)


def member_configs(config: RunConfig) -> tuple[RunConfig, ...]:
    """Return the configuration of each symbol alone, in the order of `data.markets`.

    It is `config` itself where that is empty. A member's `data.market` is its symbol, and its
    `data.per_market` entries have taken the place of the common keys. With `data.folder`, a
    symbol's file is the one that is named after it, unless `data.per_market` names another.

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
    """Return the names that a symbol's file in a folder may have, as patterns."""
    return f"{symbol}*{{{','.join(ENDINGS)}}}"


def file_of(folder: Path, symbol: str) -> Path:
    """Find the file of bars in `folder` that is named after a symbol.

    It is called e.g. EURUSD.csv or eurusd_h1.csv.gz. Raises DataError if there is none, ConfigError
    if there are several.
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
    """List the files in a folder whose endings are those of bars, by name."""
    return sorted(
        path for path in folder.iterdir() if path.is_file() and path.name.lower().endswith(ENDINGS)
    )


def is_of(symbol: str, path: Path) -> bool:
    """Return whether a file is named after a symbol."""
    return re.match(rf"{re.escape(symbol)}(?![A-Z0-9])", path.name, re.IGNORECASE) is not None


# How many sessions a configuration's bars can have, and whether they suffice for its splits: known
# before reading.

ES_WEEK = ("2013-10-07", "2013-10-11")
ES_EXPIRY = (
    "201312"  # the contract of ES that is read unless data.expiry or data.roll says otherwise
)
ES_CONTRACT = ("2013-10-07", "2013-12-20")


def bundled_dates(symbol: str, data: DataConfig) -> tuple[str, str]:
    """Return the first and last trade date (ISO) of the bundled bars that `data` selects.

    These are the dates before data.start and data.end apply.
    """
    if bundled_expiry(symbol, data) is None:
        return BUNDLED[symbol]
    return ES_WEEK if (data.expiry, data.start, data.end) == (None, None, None) else ES_CONTRACT


def bundled_expiry(symbol: str, data: DataConfig) -> str | None:
    """Return `ES_EXPIRY` if the bundled bars that `data` selects are of it alone, else None."""
    one = symbol == "ES" and data.roll == "off" and data.expiry in (None, ES_EXPIRY)
    return ES_EXPIRY if one else None


def date_range(data: DataConfig, symbol: str) -> tuple[str, str] | None:
    """Return the first and last trade date (ISO) that the bars can have.

    None unless both are known before reading.
    """
    first, last = None, None
    if _is_copied(data) and data.source != "file" and symbol in BUNDLED:
        first, last = bundled_dates(symbol, data)
    # ISO dates compare as text.
    starts, ends = (
        [day for day in days if day is not None] for days in ((first, data.start), (last, data.end))
    )
    return (max(starts), min(ends)) if starts and ends else None


def _is_copied(data: DataConfig) -> bool:
    """Return whether the bars are bundled ones, or synthetic ones like them."""
    return data.source == "bundled" or data.synthetic in ("phase_randomised", "planted")


def most_sessions(data: DataConfig, symbol: str) -> int | None:
    """Return an upper limit of the number of sessions of the bars: their weekdays.

    None where only reading a file shows it.
    symbol: of the contract.
    Raises ConfigError if the bars are bundled ones, and there are none for it.
    """
    if data.source == "file":
        return None
    if _is_copied(data):
        require_bundled(symbol)
    limits = [] if data.source == "bundled" else [data.synthetic_sessions]
    if days := date_range(data, symbol):
        limits.append(weekdays(*map(date.fromisoformat, days)))
    return min(limits)


def weekdays(first: date, last: date) -> int:
    """Count the days from Monday to Friday among first..last."""
    days = range((last - first).days + 1)
    return sum((first + timedelta(days=i)).weekday() < 5 for i in days)


def check_split(sessions: int, config: SplitConfig, at_most: bool = False) -> None:
    """Check that a training session is left.

    at_most: whether `sessions` is an upper limit.
    Raises ConfigError with the number that is needed.
    """
    known = split_of(config, sessions)
    test, validation, embargo = (
        known.test_sessions or 0,
        known.validation_sessions or 0,
        known.embargo_sessions or 0,
    )
    need = test + validation + ((test > 0) + (validation > 0)) * embargo + 1
    if sessions >= need:
        return
    asked = f"split.test_sessions = {test}, split.validation_sessions = {validation}" + (
        f", and split.embargo_sessions = {embargo} before each" if embargo else ""
    )
    raise ConfigError(
        f"split: {asked}: with one training session that takes {need} sessions, and the data have "
        f"{'at most ' if at_most else ''}{sessions}; lower them, or give more data"
    )


def check_walk_length(most: int, walk: WalkConfig, episode: int) -> None:
    """Check that one fold can be made of at most `most` sessions.

    Checks this as far as it is known before reading.
    episode: sessions of an episode.
    Raises ConfigError with the number that is needed.
    """
    if walk.mode == "cpcv":
        need, keys = walk.groups, f"walk.groups={walk.groups} (--groups)"
    else:
        need = walk.train + walk.embargo_of(most) + episode - 1 + walk.test
        keys = f"walk.train={walk.train} (--train), walk.test={walk.test} (--test)"
    if most < need:
        raise ConfigError(
            f"{keys}: one fold takes at least {need} sessions, embargo and purge included, and the data "
            f"have at most {most}: lower them, or give more data"
        )
