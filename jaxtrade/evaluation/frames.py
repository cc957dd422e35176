"""Trades, equity and figures as pandas frames: of an evaluation in memory, or of the files that it
wrote.

Both ways give the same columns, types and values. Times are in the time zone of the exchange, money
is in dollars, prices are in points.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.errors import DataError
from jaxtrade.evaluation.trades import AT_CLOSE, EQUITY_COLUMNS, TRADE_COLUMNS, BarClock, Trades
from jaxtrade.storage.monitor import FIELDS

if TYPE_CHECKING:
    import pandas as pd

    from jaxtrade.evaluation.record import DecisionBars, Record

TRADE_TIMES = ("decision_time", "entry_time", "exit_time")
WORDS = {
    "side": ("long", "short"),
    "exit_reason": tuple(reason.name.lower() for reason in ExitReason if reason),
    "account_end": tuple(reason.name.lower() for reason in EndReason if reason),
}
WHOLE = (
    "contracts",
    "ticks",
    "mae_ticks",
    "mfe_ticks",
    "strategy_position",
    "account",
    "account_position",
)


def trades_frame(
    trades: Trades, decisions: DecisionBars, clock: BarClock, close: np.ndarray, fill: str
) -> pd.DataFrame:
    """The trades of one agent, one row each, with the columns of `trades.csv`.

    session: the trade date. decision_time, decision_price: close of the decision bar. entry_time,
    exit_time: *open* time of the bar with the fill. Exits at the flat bar or at the end of data fill
    at the close of that bar and have its *close* time. With `fill=close`, entries and exits by order
    fill at the close of the decision bar and have its time.

    Args:
        close: int[T] ticks, close of each market row.
        fill: `env.fill` of the evaluation.
    """
    at_close = np.isin(trades.reason, [int(reason) for reason in AT_CLOSE])
    opened = clock.time
    entered, left = (
        opened[trades.entry_row],
        np.where(at_close, clock.bar_seconds, 0) + opened[trades.exit_row],
    )
    if fill == "close":
        entered = opened[trades.decision_row] + clock.bar_seconds
        ordered = trades.reason == int(ExitReason.ORDER)
        left = np.where(ordered, opened[trades.exit_row - 1] + clock.bar_seconds, left)
    values = (
        decisions.date[trades.session],
        np.where(trades.side > 0, "long", "short"),
        trades.contracts,
        opened[trades.decision_row] + clock.bar_seconds,
        _points(close[trades.decision_row], clock),
        entered,
        _points(trades.entry_price, clock),
        left,
        _points(trades.exit_price, clock),
        _names(trades.reason, "exit_reason"),
        trades.ticks,
        trades.commission / 1000,
        trades.slippage / 1000,
        trades.net / 1000,
        trades.mae,
        trades.mfe,
    )
    return _typed(dict(zip(TRADE_COLUMNS, values, strict=True)), TRADE_TIMES, clock.zone)


def equity_frame(
    strategy: Record,
    account: Record,
    decisions: DecisionBars,
    clock: BarClock,
    start_balance: float,
) -> pd.DataFrame:
    """The equity of one agent, one row per decision bar, with the columns of `equity.csv`: the
    state at the close of the bar after it.

    Equity, floor and high-water mark are dollars of balance. The floor is missing if there is none.
    Floor and high-water mark are missing after the end of the account. account_end is the reason of
    this end, in the bar in which it happens.
    """
    start = round(start_balance * 1000)
    floor, active = np.asarray(account.event.floor, np.int64), np.asarray(account.active)
    values = (
        clock.time[decisions.rows + 1] + clock.bar_seconds,
        decisions.date[decisions.session],
        (start + strategy.equity) / 1000,
        strategy.quantity,
        account.account + 1,
        (start + account.equity) / 1000,
        account.quantity,
        np.where(active & (floor != NO_FLOOR), (start + floor) / 1000, np.nan),
        np.where(active, (start + account.high_water) / 1000, np.nan),
        _names(account.end, "account_end"),
    )
    found = _typed(dict(zip(EQUITY_COLUMNS, values, strict=True)), ("time",), clock.zone)
    return found.set_index("time")


def write_frame(frame: pd.DataFrame, path: Path, decimals: int) -> None:
    """Write `trades_frame` or `equity_frame` as UTF-8 CSV with Unix line ends: times in ISO 8601
    with an offset, exact decimals. decimals: of a price. Raises OSError (disk)."""
    import pandas as pd

    texts = frame.reset_index() if frame.index.name else frame.copy()
    for name, column in texts.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            texts[name] = [each.isoformat() for each in column]
        elif column.dtype == np.float64:
            digits = decimals if str(name).endswith("_price") else 3
            texts[name] = column.map(f"{{:.{digits}f}}".format, na_action="ignore")
    texts.to_csv(path, index=False, lineterminator="\n", date_format="%Y-%m-%d")


def read_trades(path: Path, zone: str) -> pd.DataFrame:
    """`trades_frame` of a `trades.csv`. zone: IANA zone of the exchange. Raises DataError if it
    cannot be read.
    """
    return _typed(_columns(path, TRADE_COLUMNS), TRADE_TIMES, zone)


def read_equity(path: Path, zone: str) -> pd.DataFrame:
    """`equity_frame` of an `equity.csv`. zone: IANA zone of the exchange. Raises DataError if it
    cannot be read.
    """
    return _typed(_columns(path, EQUITY_COLUMNS), ("time",), zone).set_index("time")


def read_episodes(path: Path) -> pd.DataFrame:
    """The episodes in a `monitor.csv`, without a torn last line. Raises DataError if it cannot be
    read.
    """
    import pandas as pd

    try:
        lines = path.read_bytes().split(b"\n")[
            1:-1
        ]  # without the line of JSON, and what follows the last newline
        frame = pd.read_csv(io.BytesIO(b"\n".join([*lines, b""])))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); restore the file") from None
    if tuple(frame.columns) != FIELDS:
        raise DataError(
            f"{path}: its columns are {', '.join(map(str, frame.columns))}; expected {', '.join(FIELDS)}; "
            "restore the file"
        )
    return frame.astype(
        {"l": "int64", "agent": "int64", "update": "int64"}
        | dict.fromkeys(("r", "t", *FIELDS[3:7]), "float64")
    )


def figures_frame(agents: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> pd.DataFrame:
    """The figures of a report: one row per (pass, figure), one column per agent. NaN where a figure
    is undefined.

    agents: name -> pass (`strategy`, `account`) -> figure -> value.
    """
    import pandas as pd

    columns = {
        name: {
            (which, figure): value
            for which in ("strategy", "account")
            for figure, value in passes[which].items()
        }
        for name, passes in agents.items()
    }
    found = pd.DataFrame(columns, dtype="float64")
    found.index = found.index.set_names(["pass", "figure"])
    return found


def by_symbol(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The frames of several symbols below each other, with a first column `symbol`, a category in
    their order.

    Times are in the time zone of the first symbol's exchange.
    """
    import pandas as pd

    zone, frames = None, []
    for symbol, part in parts.items():
        frame = part.copy()
        frame.insert(0, "symbol", symbol)
        stamps = [name for name in frame if isinstance(frame[name].dtype, pd.DatetimeTZDtype)]
        if isinstance(frame.index, pd.DatetimeIndex):
            zone = zone or frame.index.tz
            frame.index = frame.index.tz_convert(zone)
        for name in stamps:
            zone = zone or frame[name].dt.tz
            frame[name] = frame[name].dt.tz_convert(zone)
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=not isinstance(frames[0].index, pd.DatetimeIndex))
    whole["symbol"] = pd.Categorical(whole["symbol"], categories=list(parts))
    return whole


def summed_equity(equity: pd.DataFrame, start_balance: float) -> pd.DataFrame:
    """The sum of the symbols' equities in the strategy pass: `strategy_equity` and `session` at
    each time at which any symbol is marked. Between its own marks a symbol keeps its latest one.

    equity: from `by_symbol`. start_balance: dollars of each symbol's account, its equity before its
        first mark.
    """
    wide = equity.set_index("symbol", append=True)["strategy_equity"].unstack("symbol")
    total = wide.ffill().fillna(start_balance).sum(axis=1)
    session = equity.groupby(level=0)["session"].last()
    return total.to_frame("strategy_equity").assign(session=session)


def _columns(path: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    import pandas as pd

    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in columns})
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); evaluate the run again: jaxtrade evaluate RUN"
        ) from None
    if tuple(frame.columns) != columns:
        raise DataError(
            f"{path}: its columns are {', '.join(frame.columns)}; expected {', '.join(columns)}; evaluate "
            "the run again: jaxtrade evaluate RUN"
        )
    return {name: frame[name] for name in columns}


def _typed(values: dict[str, Any], times: tuple[str, ...], zone: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(values)
    for name in times:  # seconds since 1970, or ISO 8601 text with an offset
        unit = "s" if pd.api.types.is_numeric_dtype(frame[name]) and len(frame) else None
        stamps = pd.to_datetime(frame[name], unit=unit, utc=True)
        frame[name] = stamps.dt.tz_convert(zone).dt.as_unit("s")
    frame["session"] = pd.to_datetime(frame["session"]).dt.as_unit("s")
    for name, words in WORDS.items():
        if name in frame:
            frame[name] = pd.Categorical(frame[name], categories=list(words))
    for name in frame:
        if name not in (*times, "session", *WORDS):
            frame[name] = frame[name].astype("int64" if name in WHOLE else "float64")
    return frame


def _names(codes: np.ndarray, column: str) -> np.ndarray:
    """Names of reasons; None for NONE, which is missing in a frame."""
    return np.array([None, *WORDS[column]], object)[np.asarray(codes, np.int64)]


def _points(ticks: np.ndarray, clock: BarClock) -> np.ndarray:
    return np.round(np.asarray(ticks, np.int64) * float(clock.tick_size), clock.decimals)
