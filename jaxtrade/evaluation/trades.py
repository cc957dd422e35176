"""Round turns from the events of a record, on the host and in exact integers.

Also their metrics, and frames of trades and equity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

import numpy as np

from jaxtrade.env.rules import muldiv_host, tick_mills
from jaxtrade.env.state import EndReason, EnvParams, ExitReason
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.formatting import money
from jaxtrade.text import several, short_repr


@dataclass(frozen=True)
class Trades:
    """K round turns in order of entry, int64[K] each.

    Prices are ticks, money is mills, rows are market rows.

    session: number of the session in the set.
    side: +1 long, -1 short.
    contracts: > 0.
    decision_row: bar at whose close the entry was decided.
    entry_row, exit_row: bars of the fills.
    entry_price, exit_price: fill prices, with slippage.
    reason: ExitReason.
    ticks: gain per contract.
    commission, slippage: over both sides and all contracts.
    net: profit after commission.
    mae, mfe: largest move against and in favour of the position, in ticks per contract, at least 0.
        They are measured from the entry fill to the prices between the fills, without slippage. A
        bar with the exit counts up to the exit level.
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
        """Select trades. keep: bool[K]."""
        return Trades(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def concatenate_trades(parts: Sequence[Trades]) -> Trades:
    """Concatenate the trades of several symbols, one after the other."""
    return Trades(
        *(np.concatenate([getattr(each, of.name) for each in parts]) for of in fields(Trades))
    )


def fills(event: Any) -> np.ndarray:
    """List every fill in time order (int64[5, E]).

    The rows are decision bar, kind, quantity, price and reason (0 for an entry). Within a bar an
    exit by order (kind 0) comes first, then an entry (1), then another exit (2).

    event: `Event` with leaves [L].
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


def joint_fills(event: Any) -> dict[str, np.ndarray]:
    """List the fills of several symbols in time order, then by symbol and kind (int64[E] each).

    Within a bar an order closes (kind 0), then opens (1); a forced exit comes last (2).

    bar: index of the decision bar.
    symbol: its index.
    quantity: contracts, signed as the change of the position.
    price: ticks.
    reason: ExitReason, `ORDER` for every fill of an order.
    cost, booked: mills of the symbol's bar, at its last fill there.

    event: `PortfolioEvent` with leaves [L, S].
    """
    kinds = ("close", "open", "exit")
    quantity, price = (
        np.stack([getattr(event, f"{kind}_{name}") for kind in kinds], axis=2)
        for name in ("quantity", "price")
    )
    bar, symbol, kind = np.nonzero(quantity)
    last = np.append(np.any([np.diff(bar), np.diff(symbol)], axis=0), True)[: len(bar)]
    found = {
        "bar": bar,
        "symbol": symbol,
        "kind": kind,
        "quantity": quantity[bar, symbol, kind],
        "price": price[bar, symbol, kind],
        "reason": np.where(kind == 2, event.exit_reason[bar, symbol], int(ExitReason.ORDER)),
        "cost": np.where(last, event.cost[bar, symbol], 0),
        "booked": np.where(last, event.cash[bar, symbol], 0),
    }
    return {name: values.astype(np.int64) for name, values in found.items()}


def _extremes(
    record: Record, first: int, last: int, side: int, exit_marks: Sequence[int]
) -> tuple[int, int]:
    """Return best and worst price of a trade, without slippage and times the side.

    The trade is held in bars first..last (indices).

    exit_marks: the price of an exit by order, else none. Such an exit leaves at the open of bar
        `last`, so the rest of this bar does not count.
    """
    stop = last + 1 - len(exit_marks)
    marks = (
        np.concatenate(
            [
                record.event.favourable[first:stop],
                record.event.adverse[first:stop],
                exit_marks,
            ]
        )
        * side
    )
    return int(marks.max()), int(marks.min())


def mills_at(ticks: np.ndarray, rows: np.ndarray, params: EnvParams) -> np.ndarray:
    """Return the value of `ticks` in bars `rows`, as `money_of` on the host (int64[K], mills).

    ticks: price change times contracts.
    """
    value = params.market.tick_value
    if not value:
        return ticks * int(tick_mills(params.contract))
    return muldiv_host(ticks, np.asarray(value.times)[rows], np.asarray(value.over)[rows])


def assemble_trades(record: Record, decisions: DecisionBars, params: EnvParams) -> Trades:
    """Pair every entry with the exit that follows it.

    Money is converted at the rate of the exit's bar. Raises RuntimeError if entries and exits do
    not alternate. This would be a bug, because every position is closed at the flat bar at
    the latest.
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
        _extremes(record, int(a), int(b), int(s), [int(p + s * slip)] if o else [])
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

    time: int64[T] UTC seconds of each bar's open.
    tick_size: points.
    decimals: of a price.
    zone: IANA time zone of the exchange.
    """

    time: np.ndarray
    bar_seconds: int
    tick_size: Decimal
    decimals: int
    zone: str


# The named figures of an agent, from records and trades. Money is in dollars; an undefined figure
# is None.


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


def strategy_metrics(
    pnl: np.ndarray, equity: np.ndarray, trades: Trades, start_balance: float, **own: Any
) -> Figures:
    """Compute metrics of the strategy pass (account rules off).

    Profits and costs are dollars over the whole session set. return_pct is net_profit over the
    start balance in percent. turnover is the number of contract sides filled per session.

    Args:
        pnl: mills by session.
        equity: mills at each mark.
        own: `average_trade`, `exposure` (a share of the decision bars) and `illegal_actions`.
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


def metrics_of(
    record: Record, trades: Trades, decisions: DecisionBars, start_balance: float
) -> Figures:
    """Compute the `strategy_metrics` of one symbol."""
    event, average = record.event, metrics.average(trades.net)
    return strategy_metrics(
        metrics.session_pnl(record.equity, decisions.last),
        record.equity,
        trades,
        start_balance,
        average_trade=None if average is None else average / 1000,
        exposure=metrics.exposure(record.carried, event.order_exit_quantity, event.entry_quantity),
        illegal_actions=int(np.sum(~record.legal)),
    )


def account_outcome(record: Any, decisions: DecisionBars) -> Figures:
    """Compute metrics of the account pass (account rules on) that `allocate` has too.

    accounts: passed + bust + failed_daily_loss + open_at_end.
    breaches: bars in which an open account reached a drawdown or daily-loss floor.
    net_profit: sum over all accounts.
    best_session_share: the metric that consistency rules of prop firms limit. It is reported but
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


def account_metrics(record: Record, decisions: DecisionBars) -> Figures:
    """Compute `account_outcome`, and metrics of one symbol.

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
    """Return the number of visited decision bars over that of all decision bars of the set."""
    return len(np.intersect1d(record.row, decisions.rows)) / len(decisions.rows)
