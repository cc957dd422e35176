"""Trades, equity and metrics as pandas frames, of an evaluation in memory or of its files.

Both ways give the same columns, types and values. Times are in the time zone of the exchange, of
`allocate` in UTC; money is in dollars, prices are in points.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.errors import DataError
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.evaluation.trades import BarClock, Trades, joint_fills
from jaxtrade.storage.monitor import FIELDS

if TYPE_CHECKING:
    import pandas as pd

TRADE_COLUMNS = (
    "session",
    "side",
    "contracts",
    "decision_time",
    "decision_price",
    "entry_time",
    "entry_price",
    "exit_time",
    "exit_price",
    "exit_reason",
    "ticks",
    "commission",
    "slippage",
    "net_pnl",
    "mae_ticks",
    "mfe_ticks",
)


EQUITY_COLUMNS = (
    "time",
    "session",
    "strategy_equity",
    "strategy_position",
    "account",
    "account_equity",
    "account_position",
    "drawdown_floor",
    "high_water",
    "account_end",
)


# Of `allocate`: the fills, and the equity with the cumulative profit of each symbol.
DECIMALS = "decimals"  # attribute of a frame of fills: those of each price
FILL_COLUMNS = ("time", "symbol", "quantity", "price", "position", "reason", "cost", "booked")


def joint_columns(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the equity of `allocate`."""
    profits = (f"profit_{symbol}" for symbol in symbols)
    return ("time", "equity", *profits, "account_equity", "account")


TIMES = ("time", "decision_time", "entry_time", "exit_time")
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
    "quantity",
    "position",
)
TEXTS = ("symbol", "reason")


def trades_frame(
    trades: Trades, decisions: DecisionBars, clock: BarClock, close: np.ndarray, fill: str
) -> pd.DataFrame:
    """Make a frame of the trades of one agent, one row each, with the columns of `trades.csv`.

    session: the trade date. decision_time, decision_price: close of the decision bar. entry_time,
    exit_time: *open* time of the bar with the fill. Exits at the flat bar or at the end of data
    fill at the close of that bar and have its *close* time. With `fill=close`, entries and exits by
    order fill at the close of the decision bar and have its time.

    Args:
        close: int[T] ticks, close of each market row.
        fill: `env.fill` of the evaluation.
    """
    at_close = np.isin(trades.reason, [ExitReason.FLAT, ExitReason.END_OF_DATA])
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
    return _convert_type(dict(zip(TRADE_COLUMNS, values, strict=True)), clock.zone)


def equity_frame(
    strategy: Record,
    account: Record,
    decisions: DecisionBars,
    clock: BarClock,
    start_balance: float,
) -> pd.DataFrame:
    """Make a frame of the equity of one agent, with the columns of `equity.csv`.

    It has one row per decision bar: the state at the close of the bar after it. Equity, floor and
    high-water mark are dollars of balance. The floor is missing if there is none. Floor and
    high-water mark are missing after the end of the account. account_end is the reason of this end,
    in the bar in which it happens.
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
    found = _convert_type(dict(zip(EQUITY_COLUMNS, values, strict=True)), clock.zone)
    return found.set_index("time")


def fills_frame(record: Any, decisions: DecisionBars, market: Any) -> pd.DataFrame:
    """Make a frame of the fills of an agent of `allocate`, with FILL_COLUMNS.

    Cost and booked profit of a symbol's bar stand in the row of its last fill there. An order is
    filled at the open of the first bar that is joined in its symbol. A forced exit is at the close.

    Args:
        record: `joint.JointRecord`.
        market: `env.portfolio.params.Portfolio`.
    """
    import pandas as pd

    fills = joint_fills(record.event)
    symbol, row, reason = fills["symbol"], decisions.rows[fills["bar"]] + 1, fills["reason"]
    at_close = np.isin(reason, [ExitReason.FLAT, ExitReason.END_OF_DATA])
    times = np.where(reason == ExitReason.ORDER, market.opens[row, symbol], market.times[row])
    names = np.array(market.symbols, object)[symbol]
    ticks = np.array([float(each.tick_size) for each in market.contracts])[symbol]
    decimals = np.array([each.decimals for each in market.contracts], int)[symbol]
    values = (
        times + np.where(at_close, market.bar_seconds, 0),
        names,
        fills["quantity"],
        fills["price"] * ticks,
        pd.Series(fills["quantity"]).groupby(symbol).cumsum(),
        _names(reason, "exit_reason"),
        fills["cost"] / 1000,
        fills["booked"] / 1000,
    )
    found = _convert_type(dict(zip(FILL_COLUMNS, values, strict=True)), "UTC")
    found["price"] = [round(*each) for each in zip(found["price"], decimals.tolist(), strict=True)]
    found.attrs[DECIMALS] = decimals.tolist()
    return found


def joint_frame(
    strategy: Any, account: Any, decisions: DecisionBars, clock: BarClock, symbols: Sequence[str]
) -> pd.DataFrame:
    """Make a frame of the equity of an agent of `allocate`, with `joint_columns`.

    It has one row for each bar after a decision, at its close, in dollars from the start.
    """
    profit = np.cumsum(strategy.event.profit.astype(np.int64), axis=0) / 1000
    values = (
        clock.time[decisions.rows + 1] + clock.bar_seconds,
        strategy.equity / 1000,
        *profit.T,
        account.equity / 1000,
        account.account,
    )
    return _convert_type(dict(zip(joint_columns(symbols), values, strict=True)), clock.zone)


def collect_equity_plot(document: Mapping[str, Any], equity: pd.DataFrame) -> pd.DataFrame:
    """Collect what a plot of the equity draws, by time; of a set, the sum over its symbols.

    The columns are `strategy_equity` in dollars of balance, and `session`.

    document: of the evaluation.
    """
    start = document["settings"]["start_balance"]
    if "symbols" in document:
        return summed_equity(equity, start)
    if "strategy_equity" in equity:
        return equity
    found = equity.set_index("time")
    session = found.index.tz_localize(None).normalize()  # type: ignore[union-attr]
    return found.assign(strategy_equity=start + found["equity"], session=session)


def write_frame(frame: pd.DataFrame, path: Path, decimals: int) -> None:
    """Write a frame as UTF-8 CSV with Unix line ends and exact decimals.

    Times are in ISO 8601 with an offset, of `allocate` with a Z. Raises OSError (disk).

    decimals: of a price.
    """
    import pandas as pd

    texts = frame.reset_index() if frame.index.name else frame.copy()
    for name, column in texts.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            zulu = name == "time" and name in frame  # a column, of `allocate`
            stamps = [each.isoformat() for each in column]
            texts[name] = [each.replace("+00:00", "Z") if zulu else each for each in stamps]
        elif column.dtype == np.float64:
            digits = decimals if str(name).endswith("_price") else 3
            texts[name] = column.map(f"{{:.{digits}f}}".format, na_action="ignore")
    if DECIMALS in frame.attrs:
        each = zip(frame["price"], frame.attrs[DECIMALS], strict=True)
        texts["price"] = [f"{price:.{digits}f}" for price, digits in each]
    texts.to_csv(path, index=False, lineterminator="\n", date_format="%Y-%m-%d")


def read_trades(path: Path, zone: str) -> pd.DataFrame:
    """Read the `trades_frame` of a `trades.csv`. Raises DataError if it cannot be read.

    zone: IANA zone of the exchange.
    """
    return _convert_type(_columns(path, TRADE_COLUMNS), zone)


def read_equity(path: Path, zone: str) -> pd.DataFrame:
    """Read the `equity_frame` of an `equity.csv`. Raises DataError if it cannot be read.

    zone: IANA zone of the exchange.
    """
    return _convert_type(_columns(path, EQUITY_COLUMNS), zone).set_index("time")


def read_fills(path: Path) -> pd.DataFrame:
    """Read the `fills_frame` of a `trades.csv` of `allocate`. Raises DataError as `read_trades`."""
    return _convert_type(_columns(path, FILL_COLUMNS), "UTC")


def read_joint(path: Path, symbols: Sequence[str]) -> pd.DataFrame:
    """Read the `joint_frame` of an `equity.csv` of `allocate`.

    Raises DataError as `read_equity`.
    """
    return _convert_type(_columns(path, joint_columns(symbols)), "UTC")


def read_episodes(path: Path) -> pd.DataFrame:
    """Read the episodes in a `monitor.csv`, without a torn last line.

    Raises DataError if it cannot be read.
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


def metrics_frame(agents: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> pd.DataFrame:
    """Make a frame of the metrics of a report: one row per (pass, metric), one column per agent.

    NaN where a metric is undefined.

    agents: name -> pass (`strategy`, `account`) -> metric -> value.
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
    """Stack the frames of several symbols, with a first column `symbol`, a category in their order.

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
    """Sum the symbols' equities in the strategy pass.

    Returns `strategy_equity` and `session` at each time at which any symbol is marked. Between its
    own marks a symbol keeps its latest one.

    Args:
        equity: from `by_symbol`.
        start_balance: dollars of each symbol's account, its equity before its first mark.
    """
    wide = equity.set_index("symbol", append=True)["strategy_equity"].unstack("symbol")
    total = wide.ffill().fillna(start_balance).sum(axis=1)
    session = equity.groupby(level=0)["session"].last()
    return total.to_frame("strategy_equity").assign(session=session)


def _columns(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
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
    return frame


def _convert_type(values: Any, zone: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(values)
    for name in frame:
        column = frame[name]
        if name in TIMES:  # seconds since 1970, or ISO 8601 text with an offset
            unit = "s" if pd.api.types.is_numeric_dtype(column) and len(frame) else None
            stamps = pd.to_datetime(column, unit=unit, utc=True)
            frame[name] = stamps.dt.tz_convert(zone).dt.as_unit("s")
        elif name == "session":
            frame[name] = pd.to_datetime(column).dt.as_unit("s")
        elif name in WORDS:
            frame[name] = pd.Categorical(column, categories=list(WORDS[str(name)]))
        elif name not in TEXTS:
            frame[name] = column.astype("int64" if name in WHOLE else "float64")
    return frame


def _names(codes: np.ndarray, column: str) -> np.ndarray:
    """Name the reasons; None for NONE, which is missing in a frame."""
    return np.array([None, *WORDS[column]], object)[np.asarray(codes, np.int64)]


def _points(ticks: np.ndarray, clock: BarClock) -> np.ndarray:
    return np.round(np.asarray(ticks, np.int64) * float(clock.tick_size), clock.decimals)
