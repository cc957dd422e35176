"""Real bars that the package contains. Each file comes with a SOURCE file and its licence."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

from jaxtrade.config import Roll
from jaxtrade.data.contracts import Contract, require_bundled
from jaxtrade.data.expected import ES_EXPIRY, ES_WEEK
from jaxtrade.data.read.bars import Bars, load_bars


def bundled(contract: Contract, *, expiry: str | None = None, roll: Roll = "off", start: str | None = None,
            end: str | None = None) -> Bars:
    """The bundled bars of ES (1 minute) or EURUSD (1 hour, bid and ask).

    The default for ES is expiry 201312 on trade dates 2013-10-07..11. Raises ConfigError for a market without bundled
    bars, and DataError if the selection is empty.
    """
    require_bundled(contract.symbol)
    files = resources.files("jaxtrade.data.bundled")
    if contract.symbol == "ES":
        if expiry is None and roll == "off" and start is None and end is None:
            start, end = ES_WEEK  # the one full week in the file
        with resources.as_file(files / "es_1m_trade.csv.gz") as path:
            bars = load_bars(path, contract, stamp="open", roll=roll,
                             expiry=expiry or (ES_EXPIRY if roll == "off" else None))
        return replace(bars, source="bundled ES bars (es_1m_trade.csv.gz)").between(start, end)
    with resources.as_file(files / "eurusd_hour_bidask.csv.gz") as path:
        bars = load_bars(path, contract, stamp="open", expiry=expiry, roll=roll)
    return replace(bars, source="bundled EURUSD bid and ask bars (eurusd_hour_bidask.csv.gz)").between(start, end)
