"""The evaluation of `allocate`: its result, its table, and its files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import resolve_account
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.market import Portfolio
from jaxtrade.env.portfolio.state import PortfolioParams
from jaxtrade.env.state import ExitReason
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.evaluate import agent_key, data_labels
from jaxtrade.evaluation.joint_backtest import (
    JointAgent,
    JointRecord,
    backtest,
    strategy_figures,
)
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.openings import SplitHistory, history_json, history_lines
from jaxtrade.evaluation.record import DecisionBars, decision_bars
from jaxtrade.evaluation.recorded import NOTHING, Also, joint_records
from jaxtrade.evaluation.records import RECORDS, write_records
from jaxtrade.evaluation.report import (
    NOT_AVAILABLE,
    Result,
    Standing,
    count,
    key_of,
    money,
    ratio,
    share,
    write_texts,
)
from jaxtrade.evaluation.trades import account_outcome, write_csv
from jaxtrade.storage.staged import staged
from jaxtrade.text import aligned, several, short_repr
from jaxtrade.types import SessionSet

if TYPE_CHECKING:
    import pandas as pd


FORMAT = 1
FILES = ("evaluation.json", "evaluation.txt", "trades.csv", "equity.csv", RECORDS)
NO_VOLUMES = "bars without volume: the volume features of their symbols are constant"
TEXTS = ("symbol", "reason")
FILL_COLUMNS = ("time", "symbol", "quantity", "price", "position", "reason", "cost", "booked")
Form = Callable[[Any], str]


@dataclass(frozen=True)
class JointAgentResult:
    """The two passes of one agent. Figures by name."""

    name: str
    about: str
    strategy: JointRecord
    account: JointRecord
    strategy_figures: dict[str, Any]
    account_figures: dict[str, Any]


@dataclass(frozen=True, repr=False)
class JointResult(Result):
    """Results of several agents of `allocate` over the same decision bars. settings, labels,
    provenance, history: as in `evaluation.report.EvaluationResult`."""

    agents: tuple[JointAgentResult, ...]
    decisions: DecisionBars
    market: Portfolio
    start_balance: float
    settings: dict[str, Any]
    labels: tuple[str, ...]
    provenance: dict[str, Any]
    history: SplitHistory | None = None

    def table(self) -> str:
        """The console table: agents as columns."""
        symbols = self.market.symbols
        lines = [["", *(each.name for each in self.agents)]]
        for title, rows, which in (
            ("Strategy (account rules off)", strategy_rows(symbols), "strategy_figures"),
            ("Account (rules on)", ACCOUNT_ROWS, "account_figures"),
        ):
            lines.append([title, *[""] * len(self.agents)])
            for label, key, form in rows:
                values = [getattr(each, which)[key] for each in self.agents]
                lines.append(
                    [f"  {label}", *(NOT_AVAILABLE if v is None else form(v) for v in values)]
                )
        s = self.settings
        return "\n".join(
            [
                f"{s['market']} held jointly, {several(s['sessions'], 'session')} {s['first_session']} .. "
                f"{s['last_session']}, {s['decision_bars']:,} decisions; {s['costs']}; account {s['account']}",
                *(f"note: {label}" for label in self.labels),
                "",
                *aligned(lines),
                "",
                self.verdict(),
                *history_lines(self.history),
            ]
        )

    def verdict(self) -> str:
        """One sentence: the first agent against the baselines, by net profit with the account rules
        off, and whether it can be luck (`evaluation.report`)."""
        standings = [
            Standing(
                each.name,
                each.strategy_figures["net_profit"],
                each.strategy_figures["orders"],
                session_pnl(each.strategy.equity, self.decisions.last),
            )
            for each in self.agents
        ]
        return self.compare(standings, key=key_of(self.provenance.get("split")))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None."""
        return {
            "format": FORMAT,
            "task": "allocate",
            "settings": self.settings,
            "labels": list(self.labels),
            "provenance": self.provenance,
            "verdict": self.verdict(),
            **history_json(self.history),
            "agents": self.agents_json(),
        }

    def trades_of(self, name: str) -> pd.DataFrame:
        return as_frame(FILL_COLUMNS, fill_rows(self, self.agent(name)))

    def equity_of(self, name: str) -> pd.DataFrame:
        return as_frame(equity_columns(self), equity_rows(self, self.agent(name)))

    def plot(self, name: str | None = None) -> Any:
        """Not built. Raises ConfigError."""
        raise no_picture()

    def __repr__(self) -> str:
        return short_repr(
            "JointResult", "-".join(self.market.symbols), *(each.name for each in self.agents)
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.table())}</pre>"


def no_picture() -> ConfigError:
    """The error of `plot`."""
    return ConfigError(
        "env.task=allocate: no picture is built for several symbols; use `equity`, one column per "
        "symbol"
    )


def as_frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """The rows of `trades.csv` or `equity.csv` as a frame: times in UTC, numbers as numbers, names
    as text.
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(columns))
    for name in frame.columns:
        if name == "time":
            frame[name] = pd.to_datetime(frame[name], utc=True)
        elif name not in TEXTS:
            frame[name] = pd.to_numeric(frame[name])
    return frame


def read_frame(path: Path) -> pd.DataFrame:
    """`as_frame` of a file. Raises DataError if it is not there."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; evaluate the run again: jaxtrade evaluate RUN")
    with path.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    return as_frame(columns, rows)


def strategy_rows(symbols: tuple[str, ...]) -> tuple[tuple[str, str, Form], ...]:
    """(label, figure, form) of the strategy block."""
    return (
        ("net profit ($)", "net_profit", money),
        *((f"  of {s} ($)", f"profit.{s}", money) for s in symbols),
        ("return (% of start)", "return_pct", ratio),
        ("Sharpe (daily, x sqrt 252)", "sharpe_daily", ratio),
        ("max drawdown ($)", "max_drawdown", money),
        ("round turns", "trades", count),
        ("win rate", "win_rate", share),
        ("orders", "orders", count),
        ("turnover (x start balance)", "turnover", ratio),
        ("costs ($)", "costs", money),
        ("exposure", "exposure", share),
        ("illegal actions", "illegal_actions", count),
    )


ACCOUNT_ROWS: tuple[tuple[str, str, Form], ...] = (
    ("accounts", "accounts", count),
    ("passed", "passed", count),
    ("bust", "bust", count),
    ("failed by daily loss", "failed_daily_loss", count),
    ("open at end", "open_at_end", count),
    ("net profit ($)", "net_profit", money),
    ("best session / total", "best_session_share", share),
)


def evaluate_joint(
    env: PortfolioEnv,
    params: PortfolioParams,
    market: Portfolio,
    sessions: SessionSet,
    config: RunConfig,
    agents: list[JointAgent],
    provenance: Mapping[str, Any],
    trained_on: SessionSet | None = None,
    begun: Callable[[str], None] | None = None,
    notes: Sequence[str] = (),
) -> JointResult:
    """Run every agent over all decision bars of `sessions`, with account rules off and on.

    Raises DataError if the set is empty. begun: called before each pass of each agent. notes:
    further labels.
    """
    decisions: Any = decision_bars(params.market, sessions)  # type: ignore[arg-type]  # reads its sessions alone
    params, balance = (
        params.replace(sessions=sessions),
        resolve_account(config.account).start_balance,
    )
    results = []
    for agent in agents:
        key, records = agent_key(jax.random.key(config.seed), agent.name), {}
        for which in ("account", "strategy"):
            if begun is not None:
                begun(f"{agent.name}, {which} pass")
            records[which] = backtest(env, agent, params, decisions, which == "account", key)
        results.append(
            JointAgentResult(
                agent.name,
                agent.about,
                records["strategy"],
                records["account"],
                strategy_figures(records["strategy"], decisions, market.symbols, balance),
                account_outcome(records["account"], decisions),
            )
        )
    return JointResult(
        tuple(results),
        decisions,
        market,
        balance,
        _settings(env, market, decisions, config),
        (
            *data_labels(market, decisions, trained_on),
            *([] if market.has_volume else [NO_VOLUMES]),
            *notes,
        ),
        dict(provenance),
    )


def _settings(
    env: PortfolioEnv, market: Portfolio, decisions: DecisionBars, config: RunConfig
) -> dict[str, Any]:
    chosen = config.allocate
    costs = [f"{chosen.cost_bp:g} bp"] if chosen.cost_bp else []
    costs += (
        [f"impact {chosen.impact_bp:g} bp per ${chosen.impact_base:,.0f}"]
        if chosen.impact_bp
        else []
    )
    costs += [f"${chosen.fee:g} a fill"] if chosen.fee else []
    each = [contract.under(config) for contract in market.contracts]
    costs += [
        f"{c.symbol} ${c.commission_mills / 1000:g} and {c.slippage_ticks} ticks a side"
        for c in each
    ]
    return {
        "market": "-".join(market.symbols),
        "symbols": list(market.symbols),
        "sessions": len(decisions.ids),
        "first_session": str(decisions.date[0]),
        "last_session": str(decisions.date[-1]),
        "decision_bars": len(decisions.rows),
        "task": env.config.task,
        "allocate": chosen.model_dump(mode="json"),
        "costs": "costs: " + ", ".join(costs),
        "start_balance": resolve_account(config.account).start_balance,
        "account": config.account.preset,
        "seed": config.seed,
        "config_sha256": config.digest(),
        "data_sha256": market.fingerprint,
    }


def _time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def fill_rows(result: JointResult, agent: JointAgentResult) -> Iterator[tuple[Any, ...]]:
    """Rows of FILL_COLUMNS. Cost and booked profit of a symbol's bar stand in the row of its last
    fill there.

    An order is filled at the open of the first bar that is joined in its symbol. A forced exit is
    at the close."""
    record, market = agent.strategy, result.market
    event, position = record.event, np.zeros(len(market.symbols), np.int64)
    length = market.bar_seconds
    for i in np.flatnonzero(
        np.any([event.close_quantity, event.open_quantity, event.exit_quantity], axis=(0, 2))
    ):
        row = int(result.decisions.rows[i]) + 1
        for s, contract in enumerate(market.contracts):
            fills = [
                (
                    kind,
                    int(getattr(event, f"{kind}_quantity")[i, s]),
                    int(getattr(event, f"{kind}_price")[i, s]),
                )
                for kind in ("close", "open", "exit")
                if getattr(event, f"{kind}_quantity")[i, s]
            ]
            for n, (kind, quantity, price) in enumerate(fills):
                reason = (
                    ExitReason(int(event.exit_reason[i, s])) if kind == "exit" else ExitReason.ORDER
                )
                position[s] += quantity
                at = market.opens[row, s] if kind != "exit" else market.times[row]
                at += length if reason in (ExitReason.FLAT, ExitReason.END_OF_DATA) else 0
                money = (
                    (int(event.cost[i, s]) / 1000, int(event.cash[i, s]) / 1000)
                    if n + 1 == len(fills)
                    else (0, 0)
                )
                yield (
                    _time(at),
                    contract.symbol,
                    quantity,
                    f"{price * contract.tick_size:.{contract.decimals}f}",
                    int(position[s]),
                    reason.name.lower(),
                    *(f"{x:.3f}" for x in money),
                )


def equity_columns(result: JointResult) -> tuple[str, ...]:
    """Columns of `equity.csv`; the profit of each symbol is cumulative."""
    return (
        "time",
        "equity",
        *(f"profit_{symbol}" for symbol in result.market.symbols),
        "account_equity",
        "account",
    )


def equity_rows(result: JointResult, agent: JointAgentResult) -> Iterator[tuple[Any, ...]]:
    """One row for each bar after a decision, at its close, in dollars."""
    profit = np.cumsum(agent.strategy.event.profit.astype(np.int64), axis=0)
    for i, row in enumerate(result.decisions.rows):
        at = result.market.times[int(row) + 1] + result.market.bar_seconds
        yield (
            _time(at),
            f"{int(agent.strategy.equity[i]) / 1000:.3f}",
            *(f"{int(p) / 1000:.3f}" for p in profit[i]),
            f"{int(agent.account.equity[i]) / 1000:.3f}",
            int(agent.account.account[i]),
        )


def write(result: JointResult, directory: Path, also: Also = NOTHING) -> None:
    """Write `FILES`: those of the first agent, and of all agents the table and the document. also:
    further entries of the records' `meta`."""
    shown = result.agents[0]
    with staged(directory) as new:
        write_texts(new, "evaluation", result.to_json(), result.table())
        write_csv(new / "trades.csv", FILL_COLUMNS, fill_rows(result, shown))
        write_csv(new / "equity.csv", equity_columns(result), equity_rows(result, shown))
        write_records(new / RECORDS, joint_records(result, also))
