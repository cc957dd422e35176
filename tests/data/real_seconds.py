"""Real minute bars with the second bars that made them: SPY trades (a week of 2013) and EURUSD bids
(May 2014).
"""

from decimal import Decimal

import pandas as pd

from jaxtrade.data.contracts import Contract, get_contract
from jaxtrade.data.read.bars import from_frame, load_bars

# An exchange-traded fund as a future of 100 shares: a cent is a dollar, half a cent per share and
# side.
SPY = Contract(
    "SPY", "future", Decimal("0.01"), 1_000, "USD", 500, 1, 5, False, 18, "cme_equity", ()
)
SPY_KEYS = {
    "columns": {"time": "ts_et"},
    "time_zone": "America/New_York",
    "stamp": "open",
    "price_scale": 1e-4,
}
BID = {"time": "ts_utc", "volume": "bid_size"} | {
    name: f"bid_{name}" for name in ("open", "high", "low", "close")
}


def spy(shared):
    """(minutes, seconds) of 2013-10-07..11; the file's one day of 2023 has prices off the cent and
    no seconds.
    """
    folder = shared / "data" / "lean_us_equity"
    frame = pd.read_csv(folder / "spy_minute_trade_x10000.csv.gz")
    frame = frame[(frame.ts_et >= "2013-10-07") & (frame.ts_et < "2013-10-12")].reset_index(
        drop=True
    )
    minutes = from_frame(frame, SPY, source="spy minutes", **SPY_KEYS)
    return minutes, load_bars(folder / "spy_second_trade_x10000.csv.gz", SPY, **SPY_KEYS)


def eurusd(shared):
    """(minutes, seconds) of the bid side, 2014-05-01..15."""
    folder = shared / "data" / "lean_fx_oanda"
    minutes, seconds = (
        load_bars(
            folder / f"eurusd_{name}_bidask.csv.gz",
            get_contract("EURUSD"),
            columns=BID,
            stamp="open",
        )
        for name in ("minute", "second")
    )
    return minutes.rows(minutes.time <= seconds.time[-1]), seconds
