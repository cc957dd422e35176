"""Real bars, written as vendors write them. Each function returns the bytes of a file.

Shared by the tests of reading and of `jaxtrade init`. The layouts follow the vendors' own
descriptions, which
`jaxtrade.data.formats.recognise` names.
"""

import io
import zipfile
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

NEW_YORK = ZoneInfo("America/New_York")
Row = tuple[datetime, str, str, str, str, int]  # open stamp in UTC; prices; volume


def rows_of(bars):
    """Bars as text with the market's decimals."""
    tick, places = bars.contract.tick_size, bars.contract.decimals
    for i in range(len(bars)):
        open_, high, low, close = (
            f"{int(prices[i]) * tick:.{places}f}"
            for prices in (bars.open, bars.high, bars.low, bars.close)
        )
        yield (
            datetime.fromtimestamp(int(bars.time[i]), UTC),
            open_,
            high,
            low,
            close,
            int(bars.volume[i]),
        )


def lines(head, rows, end="\n"):
    """A text file. head: the header lines, with their line ends."""
    return (head.replace("\n", end) + "".join(row + end for row in rows)).encode()


def server(at):
    """The clock of most MetaTrader servers: New York and seven hours."""
    return at.astimezone(NEW_YORK).replace(tzinfo=None) + timedelta(hours=7)


def mt5(bars, real_volume=True):
    head = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n"
    return lines(
        head,
        (
            f"{server(at):%Y.%m.%d\t%H:%M:%S}\t{o}\t{h}\t{low}\t{c}\t{7 if real_volume else v}\t"
            f"{v if real_volume else 0}\t1"
            for at, o, h, low, c, v in rows_of(bars)
        ),
        "\r\n",
    )


def mt4(bars):
    return lines(
        "",
        (
            f"{server(at):%Y.%m.%d,%H:%M},{o},{h},{low},{c},{v}"
            for at, o, h, low, c, v in rows_of(bars)
        ),
    )


def ninjatrader(bars):
    """NinjaTrader 8's export: UTC, the end of the bar."""
    return lines(
        "",
        (
            f"{at + timedelta(seconds=bars.bar_seconds):%Y%m%d %H%M%S};{o};{h};{low};{c};{v}"
            for at, o, h, low, c, v in rows_of(bars)
        ),
    )


def histdata(bars):
    """The same layout from HistData: EST all year, the bar's open."""
    return lines(
        "",
        (
            f"{at - timedelta(hours=5):%Y%m%d %H%M%S};{o};{h};{low};{c};{v}"
            for at, o, h, low, c, v in rows_of(bars)
        ),
    )


def databento(bars, symbol="ESZ3", pretty=True, header=True):
    head = (
        "ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol\n"
        if header
        else ""
    )

    def row(at, prices, volume):
        if pretty:
            stamp, numbers = (
                f"{at:%Y-%m-%dT%H:%M:%S}.000000000Z",
                [f"{float(price):.9f}" for price in prices],
            )
        else:
            stamp, numbers = (
                f"{int(at.timestamp())}000000000",
                [str(round(float(price) * 1e9)) for price in prices],
            )
        return ",".join([stamp, "33", "1", "5482", *numbers, str(volume), symbol])

    return lines(head, (row(at, (o, h, low, c), v) for at, o, h, low, c, v in rows_of(bars)))


def yahoo_frame(bars, ticker="ES=F", zone="UTC"):
    """The frame of `yf.download(ticker)`: two levels of names, an index with a zone. Yahoo sends
    32-bit prices.
    """
    tick = float(bars.contract.tick_size)
    names = {"Close": bars.close, "High": bars.high, "Low": bars.low, "Open": bars.open}
    columns = {
        (name, ticker): (ticks * tick).astype(np.float32).astype(np.float64)
        for name, ticks in names.items()
    }
    frame = pd.DataFrame(
        {**columns, ("Volume", ticker): bars.volume.astype(np.int64)},
        index=pd.to_datetime(bars.time, unit="s", utc=True).tz_convert(zone).rename("Datetime"),
    )
    frame.columns = pd.MultiIndex.from_tuples(list(frame.columns), names=["Price", "Ticker"])
    return frame


def yahoo(bars, ticker="ES=F"):
    return yahoo_frame(bars, ticker).to_csv().encode()


def binance(bars, header=True, microseconds=False):
    head = (
        "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,"
        "taker_buy_quote_volume,ignore\n"
    )
    unit = 10**6 if microseconds else 10**3
    return lines(
        head if header else "",
        (
            f"{int(at.timestamp()) * unit},{o},{h},{low},{c},{v},{(int(at.timestamp()) + bars.bar_seconds) * unit - 1},"
            f"1.5,12,0.5,0.7,0"
            for at, o, h, low, c, v in rows_of(bars)
        ),
    )


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def lean_days(bars, symbol, zone="UTC", scale=1, expiry=""):
    """LEAN's files by name, one per date of the zone: trades, or quotes if the bars have two
    sides.
    """
    ask = list(rows_of(bars.sides[1]))
    days = {}
    for i, (at, *bid, volume) in enumerate(rows_of(bars)):
        local = at.astimezone(ZoneInfo(zone))
        since = (local.hour * 3600 + local.minute * 60 + local.second) * 1000
        cells = [_scaled(price, scale) for price in bid] + [str(volume)]
        if bars.ask is not None:
            cells += [_scaled(price, scale) for price in ask[i][1:5]] + ["0"]
        days.setdefault(f"{local:%Y%m%d}", []).append(",".join([str(since), *cells]))
    kind = "trade" if bars.ask is None else "quote"
    return {
        f"{day}_{symbol}_minute_{kind}{expiry}.csv": lines("", iter(rows))
        for day, rows in days.items()
    }


def _scaled(price, scale):
    return str(price) if scale == 1 else str(round(float(price) * scale))


def lean_hours(bars):
    """LEAN's hours of quotes, all in one file."""
    ask = list(rows_of(bars.sides[1]))
    return lines(
        "",
        (
            f"{at:%Y%m%d %H:%M},{o},{h},{low},{c},0,{','.join(map(str, ask[i][1:5]))},0"
            for i, (at, o, h, low, c, _) in enumerate(rows_of(bars))
        ),
    )


def fxcm(
    bars,
    header="DateTime,BidOpen,BidHigh,BidLow,BidClose,AskOpen,AskHigh,AskLow,AskClose",
    stamp=lambda at: f"{at:%m/%d/%Y %H:%M:%S}.000",
):
    ask = list(rows_of(bars.sides[1]))
    return lines(
        header + "\n",
        (
            f"{stamp(at)},{o},{h},{low},{c},{','.join(map(str, ask[i][1:5]))}"
            for i, (at, o, h, low, c, _) in enumerate(rows_of(bars))
        ),
    )


def plain(bars, head, stamp):
    """Any CSV: the stamp (of one or several columns), then prices and volume."""
    return lines(
        f"{head},open,high,low,close,volume\n",
        (f"{stamp(at)},{o},{h},{low},{c},{v}" for at, o, h, low, c, v in rows_of(bars)),
    )
