"""The bundled week as two contracts: its last two days moved up by 100 points, under another
symbol.

The splice lies between neighbouring trade dates, so no hole would restart anything there, and a
lift of 400 ticks shows in whatever looks across it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read.bars import from_frame, load_bundled

ES = get_contract("ES")
SPLICE = "2013-10-10"
LIFT = 100.0  # points
PRICES = ("open", "high", "low", "close")


def lifted_bars():
    bars = load_bundled(ES)
    later = trade_dates(bars.time, ES) >= np.datetime64(SPLICE)
    prices: dict[str, Any] = {name: getattr(bars, name) * 0.25 + LIFT * later for name in PRICES}
    frame = pd.DataFrame(
        {
            "time": pd.to_datetime(bars.time, unit="s", utc=True),
            **prices,
            "volume": bars.volume,
            "symbol": np.where(later, "ESH4", "ESZ3"),
        }
    )
    return from_frame(frame, ES, stamp="open", roll={"ESZ3": "start", "ESH4": SPLICE})
