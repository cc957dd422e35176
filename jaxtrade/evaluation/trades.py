"""Round turns from the events of a record, on the host and in exact integers; figures of them, and
frames of trades and equity.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR, muldiv_host, tick_mills
from jaxtrade.env.state import EndReason, EnvParams, ExitReason
from jaxtrade.errors import DataError
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.notation import money
from jaxtrade.storage.monitor import FIELDS
from jaxtrade.text import several, short_repr

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Trades:
    """K round turns in order of entry, int64[K] each. Prices are ticks, money is mills, rows are
    market rows.

    session: number of the session in the set. side: +1 long, -1 short. contracts: > 0.
        decision_row: bar at whose close
    the entry was decided. entry_row, exit_row: bars of the fills. entry_price, exit_price: fill
    prices, with slippage.
    reason: ExitReason. ticks: gain per contract. commission, slippage: over both sides and all
        contracts. net: profit
    after commission. mae, mfe: largest move against and in favour of the position, in ticks per
    contract, at least 0. They are measured from the entry fill to the prices between the fills,
    without slippage. A bar with the exit counts up to the exit level.
    """

    session: np.ndarray
    side: np.ndarray
    contracts: np.ndarray
    decision_row: np.ndarray
    entry_row: np.ndarray
    entry_price: np.ndarray
    exit_row: np.ndarray
    exit_price: np.ndarray
    reason: np.ndarray
    ticks: np.ndarray
    commission: np.ndarray
    slippage: np.ndarray
    net: np.ndarray
    mae: np.ndarray
    mfe: np.ndarray

    def __len__(self) -> int:
        return len(self.side)

    def __repr__(self) -> str:
        return short_repr(
            "Trades", several(len(self), "trade"), f"net {money(self.net.sum() / 1000)}"
        )

    def where(self, keep: np.ndarray) -> Trades:
        """The selected trades. keep: bool[K]."""
        return Trades(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def joined(parts: Sequence[Trades]) -> Trades:
    """The trades of several symbols, one after the other."""
    return Trades(
        *(np.concatenate([getattr(each, of.name) for each in parts]) for of in fields(Trades))
    )


def fills(event: Any) -> np.ndarray:
    """int64[5, E]: decision bar, kind, quantity, price and reason (0 for an entry) of every fill in
    time order. Within a bar an exit by order (kind 0) comes first, then an entry (1), then another
    exit (2). event: `Event` with leaves [L].
    """
    kinds = [
        (event.order_exit_quantity, event.order_exit_price),
        (event.entry_quantity, event.entry_price),
        (event.exit_quantity, event.exit_price),
    ]
    found = []
    for kind, (quantity, price) in enumerate(kinds):
        at = np.flatnonzero(quantity)
        reason = (
            event.exit_reason[at]
            if kind == 2
            else np.full(len(at), 0 if kind else ExitReason.ORDER)
        )
        found.append(
            np.stack([at, np.full(len(at), kind), quantity[at], price[at], reason]).astype(np.int64)
        )
    every = np.concatenate(found, axis=1)
    return every[:, np.lexsort((every[1], every[0]))]


def _extremes(
    record: Record, first: int, last: int, side: int, exit_mark: int | None
) -> tuple[int, int]:
    """Best and worst price, without slippage and times the side, of a trade held in bars
    first..last (indices).

    exit_mark: price of an exit by order, else None. Such an exit leaves at the open of bar `last`,
        so the rest of this
    bar does not count.
    """
    stop = last if exit_mark is not None else last + 1
    marks = (
        np.concatenate(
            [
                record.event.favourable[first:stop],
                record.event.adverse[first:stop],
                [] if exit_mark is None else [exit_mark],
            ]
        )
        * side
    )
    return int(marks.max()), int(marks.min())


def mills_at(ticks: np.ndarray, rows: np.ndarray, params: EnvParams) -> np.ndarray:
    """int64[K] mills: value of `ticks` (price change times contracts) in bars `rows`, as `money_of`
    on the host.
    """
    value = params.market.tick_value
    if value is None:
        return ticks * int(tick_mills(params.contract))
    return muldiv_host(ticks, np.asarray(value.times)[rows], np.asarray(value.over)[rows])


def assemble_trades(record: Record, decisions: DecisionBars, params: EnvParams) -> Trades:
    """Pair every entry with the exit that follows it. Money is converted at the rate of the exit's
    bar.

    Raises RuntimeError if entries and exits do not alternate. This would be a bug, because every
    position is closed at the flat bar at the latest.
    """
    contract, found = params.contract, fills(record.event)
    entry, _, quantity, entry_price, _ = found[:, found[1] == 1]
    exit_, _, exit_quantity, exit_price, reason = found[:, found[1] != 1]
    if (
        len(entry) != len(exit_)
        or np.any(exit_ < entry)
        or not np.array_equal(quantity, exit_quantity)
    ):
        raise RuntimeError(f"{len(entry)} entries and {len(exit_)} exits do not pair")
    side, size = np.sign(quantity), np.abs(quantity)
    ticks = side * (exit_price - entry_price)
    slip = int(contract.slippage)
    by_order = reason == ExitReason.ORDER
    marks = [
        _extremes(record, int(a), int(b), int(s), int(p + s * slip) if o else None)
        for a, b, s, p, o in zip(entry, exit_, side, exit_price, by_order, strict=True)
    ]
    best, worst = (np.array(marks, np.int64).reshape(-1, 2)).T
    commission = 2 * size * int(contract.commission)
    rows = decisions.rows
    exit_row = rows[exit_] + 1
    return Trades(
        session=decisions.session[entry],
        side=side,
        contracts=size,
        decision_row=rows[entry],
        entry_row=rows[entry] + 1,
        entry_price=entry_price,
        exit_row=exit_row,
        exit_price=exit_price,
        reason=reason,
        ticks=ticks,
        commission=commission,
        slippage=mills_at(size * slip * (2 - (reason == ExitReason.TARGET)), exit_row, params),
        net=mills_at(ticks * size, exit_row, params) - commission,
        mae=np.maximum(side * entry_price - worst, 0),
        mfe=np.maximum(best - side * entry_price, 0),
    )


@dataclass(frozen=True)
class BarClock:
    """The stamps and prices of bars.

    time: int64[T] UTC seconds of each bar's open. tick_size: points. decimals: of a price. zone:
        IANA time zone of the
    exchange.
    """

    time: np.ndarray
    bar_seconds: int
    tick_size: Decimal
    decimals: int
    zone: str


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


def write_csv(path: Path, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """Write a header of `columns` and the rows as UTF-8 CSV with Unix line ends. Raises OSError
    (disk).
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


# The named figures of an agent, from records and trades. Money is in dollars; an undefined figure
# is None.


@dataclass(frozen=True)
class AgentResult:
    """The two passes of one agent. trades: those of the strategy pass; their net sums to its final
    equity, in mills.
    """

    name: str
    about: str
    strategy: Record
    account: Record
    trades: Trades
    strategy_figures: Figures
    account_figures: Figures

    def __repr__(self) -> str:
        return short_repr(
            "AgentResult",
            self.name,
            several(len(self.trades), "trade"),
            f"net {money(self.strategy_figures['net_profit'])}",
            f"about: {self.about}",
        )


Figures = dict[str, Any]
ACCOUNT_ORDER = (  # of the files
    "accounts",
    "passed",
    "bust",
    "failed_daily_loss",
    "open_at_end",
    "reached_target",
    "breaches",
    "trades",
    "net_profit",
    "best_session_share",
    "illegal_actions",
    "idle_bars",
)


def strategy_figures(
    pnl: np.ndarray, equity: np.ndarray, trades: Trades, start_balance: float, **own: Any
) -> Figures:
    """Figures of the strategy pass (account rules off).

    Profits and costs are dollars over the whole session set. return_pct is net_profit over the
    start balance in percent. turnover is the number of contract sides filled per session.

    pnl: mills by session. equity: mills at each mark. own: `average_trade`, `exposure` (a share of
    the decision bars) and `illegal_actions`.
    """
    net_profit = int(equity[-1]) / 1000
    return {
        "net_profit": net_profit,
        "return_pct": 100 * net_profit / start_balance,
        "sharpe_daily": metrics.daily_sharpe(pnl),
        "max_drawdown": metrics.max_drawdown(equity) / 1000,
        "best_session": int(pnl.max()) / 1000,
        "worst_session": int(pnl.min()) / 1000,
        "trades": len(trades),
        "win_rate": metrics.win_rate(trades.net),
        "profit_factor": metrics.profit_factor(trades.net),
        "average_trade": own["average_trade"],
        "average_mae_ticks": metrics.average(trades.mae),
        "average_mfe_ticks": metrics.average(trades.mfe),
        "turnover": int(2 * trades.contracts.sum()) / len(pnl),
        "exposure": own["exposure"],
        "commission": int(trades.commission.sum()) / 1000,
        "slippage": int(trades.slippage.sum()) / 1000,
        "illegal_actions": own["illegal_actions"],
    }


def figures_of(
    record: Record, trades: Trades, decisions: DecisionBars, start_balance: float
) -> Figures:
    """`strategy_figures` of one symbol."""
    event, average = record.event, metrics.average(trades.net)
    return strategy_figures(
        metrics.session_pnl(record.equity, decisions.last),
        record.equity,
        trades,
        start_balance,
        average_trade=None if average is None else average / 1000,
        exposure=metrics.exposure(record.carried, event.order_exit_quantity, event.entry_quantity),
        illegal_actions=int(np.sum(~record.legal)),
    )


def account_outcome(record: Any, decisions: DecisionBars) -> Figures:
    """Figures of the account pass (account rules on) that `allocate` has too.

    accounts = passed + bust + failed_daily_loss + open_at_end. breaches: bars in which an open
    account reached a drawdown or daily-loss floor. net_profit: sum over all accounts.
    best_session_share: the figure that consistency rules of prop firms limit. It is reported but
    not enforced, and None without a profit.
    """
    count = int(record.account.max()) + 1
    passed, bust, daily = (
        int(np.sum(record.end == reason))
        for reason in (EndReason.TARGET, EndReason.BUST, EndReason.DAILY_LOSS)
    )
    closing = np.append(np.flatnonzero(np.diff(record.account)), len(record.account) - 1)
    return {
        "accounts": count,
        "passed": passed,
        "bust": bust,
        "failed_daily_loss": daily,
        "open_at_end": count - passed - bust - daily,
        "breaches": int(np.sum(record.event.breach & record.active)),
        "net_profit": int(record.equity[closing].astype(np.int64).sum()) / 1000,
        "best_session_share": metrics.best_session_share(
            metrics.account_session_pnl(record.equity, record.account, decisions.last)
        ),
        "idle_bars": int(np.sum(~record.active)),
    }


def account_figures(record: Record, decisions: DecisionBars) -> Figures:
    """`account_outcome`, and figures of one symbol.

    reached_target: accounts whose realised profit reached the target at some bar; with
    `on_target=continue` such an account goes on.
    """
    found = account_outcome(record, decisions) | {
        "reached_target": len(np.unique(record.account[record.target])),
        "trades": int(np.sum(record.event.entry_quantity != 0)),
        "illegal_actions": int(np.sum(~record.legal)),
    }
    return {name: found[name] for name in ACCOUNT_ORDER}


def coverage(record: Record, decisions: DecisionBars) -> float:
    """Number of visited decision bars over the number of all decision bars of the set."""
    return len(np.intersect1d(record.row, decisions.rows)) / len(decisions.rows)


# Trades, equity and figures as pandas frames: of an evaluation in memory, or of the files that it
# wrote.
#
# Both ways give the same columns, types and values. Times are in the time zone of the exchange,
# money
# is in dollars, prices are in points.

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


def _typed(values: Any, times: tuple[str, ...], zone: str) -> pd.DataFrame:
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
