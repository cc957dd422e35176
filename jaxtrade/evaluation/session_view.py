"""One session of an account pass as plain data: price, trades, equity and floor, for a page that
draws it.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EnvParams, ExitReason
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.evaluation.trades import assemble_trades

if TYPE_CHECKING:
    from jaxtrade.data.market import Market


def last_session(
    record: Record, decisions: DecisionBars, market: Market, params: EnvParams
) -> dict[str, Any]:
    """The last session of a record, for `json.dumps`.

    Args:
        record: of an account pass over `decisions`. params: those of the pass.
    Returns:
        symbol, date (trade date, ISO), decimals of a price; lists by bar: time ("HH:MM", exchange
        time of the bar's open), open, high, low, close (points, mid prices of two-sided bars),
        equity and floor (dollars of profit of the account after the bar; floor None where there is
        none or the account has ended), position (contracts). trades: side, contracts, entry and
        exit (indices of bars), entry_price, exit_price (points), reason, net (dollars).
    """
    chosen = np.flatnonzero(decisions.session == len(decisions.ids) - 1)
    rows = (
        decisions.rows[chosen] + 1
    )  # an action at the close of a bar takes effect in the next one
    bars, contract = market.bars.mid, market.contract
    zone, tick = ZoneInfo(contract.zone), float(contract.tick_size)
    floor, active = record.event.floor[chosen], record.active[chosen]
    trades = assemble_trades(record, decisions, params)
    trades = trades.where(trades.session == len(decisions.ids) - 1)

    def points(ticks: Any) -> float:
        return round(float(ticks) * tick, contract.decimals)

    return {
        "symbol": contract.symbol,
        "date": str(decisions.date[-1]),
        "decimals": contract.decimals,
        "time": [
            datetime.datetime.fromtimestamp(int(t), zone).strftime("%H:%M")
            for t in market.bars.time[rows]
        ],
        **{
            name: [points(x) for x in np.asarray(getattr(bars, name))[rows]]
            for name in ("open", "high", "low", "close")
        },
        "equity": [int(x) / 1000 for x in record.equity[chosen]],
        "floor": [
            int(x) / 1000 if on and x != NO_FLOOR else None
            for x, on in zip(floor, active, strict=True)
        ],
        "position": [int(x) for x in record.quantity[chosen]],
        "trades": [
            {
                "side": "long" if trades.side[k] > 0 else "short",
                "contracts": int(trades.contracts[k]),
                "entry": int(trades.entry_row[k] - rows[0]),
                "exit": int(trades.exit_row[k] - rows[0]),
                "entry_price": points(trades.entry_price[k]),
                "exit_price": points(trades.exit_price[k]),
                "reason": ExitReason(int(trades.reason[k])).name.lower().replace("_", " "),
                "net": int(trades.net[k]) / 1000,
            }
            for k in range(len(trades))
        ],
    }
