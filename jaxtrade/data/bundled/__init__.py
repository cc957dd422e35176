"""Real bars that the package contains. Each file comes with a SOURCE file and its licence."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

from jaxtrade.config import Roll
from jaxtrade.data.contracts import Contract, require_bundled
from jaxtrade.data.members import ES_EXPIRY, ES_WEEK
from jaxtrade.data.read.bars import Bars, load_bars


class _File(NamedTuple):
    """A bundled file: its name, what its bars are called in notes and errors, and how it is
    read.
    """

    name: str
    called: str
    keys: dict[str, Any]


def _broker(symbol: str, price_scale: float) -> _File:
    """Hours of an MT5 broker: server time is New York plus seven hours, and prices are whole
    points.
    """
    return _File(
        f"{symbol.lower()}_hour.csv.gz",
        f"bundled {symbol} bars",
        {
            "time_zone": "America/New_York+7h",
            "price_scale": price_scale,
            "columns": {"time": "Date", "volume": "tick_volume"},
        },
    )


_FILES = {
    "ES": _File("es_1m_trade.csv.gz", "bundled ES bars", {}),
    "EURUSD": _File("eurusd_hour_bidask.csv.gz", "bundled EURUSD bid and ask bars", {}),
    "GBPUSD": _broker("GBPUSD", 1e-5),
    "USDJPY": _broker("USDJPY", 1e-3),
    "USDCHF": _broker("USDCHF", 1e-5),
}


def bundled(
    contract: Contract,
    *,
    expiry: str | None = None,
    roll: Roll = "off",
    start: str | None = None,
    end: str | None = None,
) -> Bars:
    """The bundled bars of ES (1 minute), EURUSD (1 hour, bid and ask), or GBPUSD, USDJPY, USDCHF (1
    hour, one side).

    The default for ES is expiry 201312 on trade dates 2013-10-07..11. Raises ConfigError for a
    market without bundled bars, and DataError if the selection is empty.
    """
    require_bundled(contract.symbol)
    if contract.symbol == "ES":
        if expiry is None and roll == "off" and start is None and end is None:
            start, end = ES_WEEK  # the one full week in the file
        expiry = expiry or (ES_EXPIRY if roll == "off" else None)
    file = _FILES[contract.symbol]
    with resources.as_file(resources.files("jaxtrade.data.bundled") / file.name) as path:
        bars = load_bars(path, contract, stamp="open", expiry=expiry, roll=roll, **file.keys)
    return replace(bars, source=f"{file.called} ({file.name})").between(start, end)
