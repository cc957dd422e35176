"""The result of an evaluation: its agents in both passes, and what can be made of them.

An evaluation is its records and its plain document (`to_json`); the console table, the page of a
notebook, frames and plots are views of these two (`results_table`, `frames`, `plots`). The results are
`EvaluationResult` of an account that trades one symbol; `joint.JointResult` of an account that holds
several (`allocate`); `SetResult` of several symbols with an account each; and
`runs.stored_run.StoredEvaluation`, any of them read from its folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import NO_LEVEL
from jaxtrade.evaluation import frames, metrics, results_table
from jaxtrade.evaluation.record import PASSES, DecisionBars, Pass, Record
from jaxtrade.evaluation.records import (
    ABSENT,
    BarRecords,
    EvaluationRecords,
)
from jaxtrade.evaluation.test_set_history import SplitHistory, history_json
from jaxtrade.evaluation.trades import (
    BarClock,
    Figures,
    Trades,
    concatenate_trades,
    fills,
    strategy_metrics,
)
from jaxtrade.formatting import money
from jaxtrade.text import several, short_repr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


Also = Mapping[str, Any]  # entries of the records' `meta`, JSON values: `day_bars`, `policy_sha256`
NOTHING: Also = MappingProxyType({})
TRAINED_ON = re.compile(r"in sample: .*?(\d+) of these ")  # the label of `evaluate.data_labels`


@dataclass(frozen=True)
class AgentResult:
    """One agent in both passes.

    strategy, account: the records of the passes (`record.Record`, of `allocate`
        `joint.JointRecord`); of a set a tuple, one for each symbol.
    trades: those of the strategy pass (`trades.Trades`), whose net sums to its final equity, in
        mills; of `allocate` its fills, as a frame.
    strategy_figures, account_figures: by name.
    """

    name: str
    about: str
    strategy: Any
    account: Any
    trades: Any
    strategy_figures: Figures
    account_figures: Figures

    def __repr__(self) -> str:
        return short_repr(
            "AgentResult",
            self.name,
            several(self.strategy_figures["trades"], "trade"),
            f"net {money(self.strategy_figures['net_profit'])}",
            f"about: {self.about}",
        )


class ResultViews:
    """What is shown of any evaluation, from its document and its equity."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `json.dumps`; undefined metrics are None."""
        raise NotImplementedError

    def equity_of(self, name: str) -> pd.DataFrame:
        """Return the `equity` of the agent `name`. Raises KeyError."""
        raise NotImplementedError

    @property
    def figures(self) -> pd.DataFrame:
        """All figures: one row per (pass, figure), one column per agent."""
        return frames.metrics_frame(self.to_json()["agents"])

    def plot(self, name: str | None = None) -> Figure:
        """Plot equity and drawdown of an agent in the strategy pass, as a matplotlib figure.

        Of a set, it is the sum of all symbols' equities.

        name: of the agent; default: the first.
        """
        from jaxtrade.evaluation.plots.result import draw_equity

        document = self.to_json()
        chosen = name or next(iter(document["agents"]))
        equity = frames.collect_equity_plot(document, self.equity_of(chosen))
        return draw_equity(equity, results_table.title_of(document["settings"], chosen))

    def __repr__(self) -> str:
        return results_table.repr_of(type(self).__name__, self.to_json())

    def _repr_html_(self) -> str:
        return results_table.to_html(self.to_json())


class Result(ResultViews):
    """What the results in memory have in common."""

    agents: Any
    decisions: Any
    settings: Any
    labels: Any
    provenance: dict[str, Any]
    history: SplitHistory | None
    tables: Mapping[str, str] = MappingProxyType({})  # files that a command names below the table
    pictures: tuple[str, ...] = ("prices", "day")  # of `evaluation.plots.equity.PICTURES`

    def agent(self, name: str) -> AgentResult:
        """Return the result of the agent `name`.

        Raises KeyError, which lists the names of this evaluation.
        """
        for result in self.agents:
            if result.name == name:
                return result
        raise KeyError(
            f"no agent '{name}' in this evaluation (there are: {', '.join(a.name for a in self.agents)})"
        )

    @property
    def dates(self) -> np.ndarray:
        """`datetime64[D][n]`: the trade dates that were evaluated."""
        return self.decisions.date

    def daily_pnl(self, agent: AgentResult, which: Pass = "strategy") -> np.ndarray:
        """Return the profit of one of `agents` in a pass, by session (int64[n], mills)."""
        record = getattr(agent, which)
        return metrics.account_session_pnl(record.equity, record.account, self.decisions.last)

    def to_records(self, shown: AgentResult, also: Also = NOTHING) -> EvaluationRecords:
        """Return what the evaluation leaves for later.

        Its split and agent are None where the caller named none.

        Args:
            shown: the agent whose bars are kept.
            also: further entries of `meta`.
        """
        net, account_net = (
            np.array([self.daily_pnl(agent, which) / 1000 for agent in self.agents])
            for which in PASSES
        )
        about = self.provenance
        meta = {
            "settings": self.settings,
            "split": about.get("split"),
            "agent": about.get("agent"),
            "seed": about.get("trained_seed", self.settings["seed"]),
            **also,
        }
        names = tuple(agent.name for agent in self.agents)
        return EvaluationRecords(names, shown.name, self.dates, net, account_net, meta)

    def trades_of(self, name: str) -> pd.DataFrame:
        """Return the `trades` of the agent `name`. Raises KeyError."""
        raise NotImplementedError

    @property
    def trades(self) -> pd.DataFrame:
        """The trades of the first agent, one row each.

        Times of the exchange, prices in points, money in dollars. Of a set with a column `symbol`;
        of `allocate` its fills, as in `trades.csv`.
        """
        return self.trades_of(self.agents[0].name)

    @property
    def equity(self) -> pd.DataFrame:
        """Equity of the first agent in both passes, one row per decision bar.

        It is indexed by the time of its close. Of a set with a column `symbol`; of `allocate` as in
        `equity.csv`.
        """
        return self.equity_of(self.agents[0].name)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": results_table.FORMAT,
            "settings": self.settings,
            "labels": list(self.labels),
            "passes": results_table.PASSES,
            "agents": {
                agent.name: {
                    "about": agent.about,
                    "strategy": agent.strategy_figures,
                    "account": agent.account_figures,
                }
                for agent in self.agents
            },
            "verdict": self.verdict(),
            **history_json(self.history),
            **self._parts(),
            "provenance": self.provenance,
        }

    def _parts(self) -> dict[str, Any]:
        """Return what only this kind of result has in its document."""
        return {}

    def header(self) -> list[str]:
        """Return the lines above the table.

        They are sessions, conventions, costs (of each symbol) and labels.
        """
        return results_table.header(self.to_json())

    def table(self, brief: bool = False) -> str:
        """Format the console table.

        It has the verdict in one line, the header, both passes with agents as columns (of a set after
        a block for each symbol), then the registered sections. brief: as `results_table.table`.
        """
        lines = results_table.table(self.to_json(), self.history, brief)
        return "\n".join([*lines, *self._sections()])

    def _sections(self) -> list[str]:
        return []

    def verdict(self) -> str:
        """Say how the first agent compares with the baselines, and how its accounts ended.

        The first sentence also says on which sessions, and whether it can be luck.
        """
        raise NotImplementedError

    def compare(
        self, unit: str = "session", of: str = "", hint: bool = False, orders: str = "trades"
    ) -> str:
        """Return the verdict (`results_table.compare_agents`), and the habit of a first agent that has one.

        Args:
            unit: as there.
            of: which market, after the number of sessions.
            hint: name the key to raise where they are too few.
            orders: the metric that counts the trades.
        """
        split, count = self.provenance.get("split"), self.settings["sessions"]
        key = results_table.split_size_key(split)
        trained = [TRAINED_ON.match(label) for label in self.labels]
        seen = next((int(each[1]) for each in trained if each), 0)
        kind = "training" if seen else "held-out" if key else ""
        span = several(count, f"{kind} {unit}".strip())
        if 0 < seen < count:
            span = f"{several(count, unit)}{of}, {seen} of them trained on"
            span, of = f"{'all ' if split == 'all' else ''}{span}", ""
        standings = [
            results_table.AgentStanding(
                agent.name,
                agent.strategy_figures["net_profit"],
                agent.strategy_figures[orders],
                self.daily_pnl(agent),
            )
            for agent in self.agents
        ]
        best, first = self.settings.get(results_table.BEST), self.agents[0]
        habit = ""
        if isinstance(first.trades, Trades):
            exposure = first.strategy_figures["exposure"]
            habit = results_table.describe_habit(first.trades.side, exposure)
        ended = results_table.describe_accounts(self.settings, [first.account_figures])
        comma = "," if 0 < seen < count else ""
        off = f"{comma} with account rules off" if ended else ""
        compared = results_table.compare_agents(
            standings, f"{span}{of}{off}", unit, key if hint else "", best, bool(seen)
        )
        return " ".join(filter(None, (compared, habit, ended)))


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """Results of several agents over the same decision bars, in the order given.

    open, high, low, close: int[T] ticks of each market row (mid prices of two-sided bars); of
        `JointResult` int[T, S].
    start_balance: dollars.
    settings: conventions and costs.
    labels: notes for the reader.
    provenance: versions, device and digests.
    actions: names of the actions by id.
    history: how often these days were looked at; None where nobody counted.
    """

    agents: tuple[AgentResult, ...]
    decisions: DecisionBars
    clock: BarClock
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    start_balance: float
    settings: dict[str, Any]
    labels: tuple[str, ...]
    provenance: dict[str, Any]
    actions: tuple[str, ...] = ()
    history: SplitHistory | None = None

    def _sections(self) -> list[str]:
        return results_table.sections(self)

    def verdict(self) -> str:
        return self.compare()

    def trades_of(self, name: str) -> pd.DataFrame:
        return frames.trades_frame(
            self.agent(name).trades, self.decisions, self.clock, self.close, self.settings["fill"]
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        agent = self.agent(name)
        return frames.equity_frame(
            agent.strategy, agent.account, self.decisions, self.clock, self.start_balance
        )

    def to_records(self, shown: AgentResult, also: Also = NOTHING) -> EvaluationRecords:
        """Return the days, and the bars with what the agent `shown` did there."""
        decisions, clock = self.decisions, self.clock
        # All decision bars, with the flat bar of each session after its last one.
        after, last = decisions.last + 1, decisions.last
        rows = np.insert(decisions.rows, after, decisions.rows[last] + 1)
        session = np.insert(decisions.session, after, decisions.session[last])
        prices = {
            name: np.asarray(getattr(self, name), np.int64)[rows]
            for name in ("open", "high", "low", "close")
        }
        bars = BarRecords(
            row=rows,
            time=np.asarray(clock.time, np.int64)[rows],
            session=session,
            **prices,
            decision=np.flatnonzero(session[1:] == session[:-1]),
            strategy=self._pass(shown.strategy),
            account=self._pass(shown.account),
            trades={agent.name: self._trade_columns(agent) for agent in self.agents},
        )
        meta = {
            **also,
            "labels": list(self.labels),
            # A result that was made without names of its actions has numbers instead.
            "actions": list(self.actions) or [str(i) for i in range(shown.strategy.mask.shape[1])],
            "tick_size": self._tick_size(),
            "decimals": clock.decimals,
            "bar_seconds": clock.bar_seconds,
            "zone": clock.zone,
            "start_balance": self.start_balance,
        }
        return replace(super().to_records(shown, meta), bars=bars)

    def _tick_size(self) -> Any:
        return str(self.clock.tick_size)

    def _trade_columns(self, agent: AgentResult) -> dict[str, np.ndarray]:
        return {each.name: getattr(agent.trades, each.name) for each in fields(Trades)}

    def _pass(self, record: Record) -> dict[str, np.ndarray]:
        events = zip(
            ("bar", "kind", "quantity", "price", "reason"), fills(record.event), strict=True
        )
        return {
            "action": record.action,
            "legal": record.legal,
            "quantity": record.quantity,
            "stop": _level(record.stop, record.quantity),
            "target": _level(record.target_level, record.quantity),
            "equity": record.equity,
            "high_water": record.high_water,
            "floor": floor_of(record),
            "account": record.account,
            "active": record.active,
            "end": record.end,
            "reached": record.target,
            "mask": np.asarray(record.mask, bool),
            **{f"event.{name}": values for name, values in events},
        }


def floor_of(record: Any) -> np.ndarray:
    """Return the drawdown floor after each bar, `ABSENT` for none (int64[L], mills)."""
    floor = np.asarray(record.event.floor, np.int64)
    return np.where(floor == NO_FLOOR, ABSENT, floor)


def _level(level: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return a level in ticks (int64[L]).

    It is `ABSENT` without a position, and where the position has no such level.
    """
    whole = np.asarray(level, np.int64)
    return np.where((quantity == 0) | (np.abs(whole) >= NO_LEVEL), ABSENT, whole)


SAME = (
    "task",
    "contracts_per_entry",
    "intrabar",
    "fill",
    "mark",
    "start_balance",
    "account",
    "rules",
    "seed",
)  # settings that all symbols of a set have in common


@dataclass(frozen=True, repr=False)
class SetResult(Result):
    """The evaluations of a set's symbols over the same split, by symbol, with the same agents.

    Every symbol trades an account of its own, under the same rules.

    provenance: versions, device and digests.
    digests: sha256 of the run's configuration and of all data.
    history: how often these days were looked at; None where nobody counted.
    """

    symbols: dict[str, EvaluationResult]
    provenance: dict[str, Any]
    digests: dict[str, str]
    history: SplitHistory | None = None

    @cached_property
    def agents(self) -> tuple[AgentResult, ...]:
        """The agents over all symbols, in the order given."""
        return pool_results(list(self.symbols.values()))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was evaluated. sessions: number of trade dates."""
        each = [result.settings for result in self.symbols.values()]
        return (
            {
                "market": ", ".join(self.symbols),
                "symbols": list(self.symbols),
                **metrics.sessions_of(self.dates),
                "decision_bars": sum(own["decision_bars"] for own in each),
                "coverage": min(own["coverage"] for own in each),
            }
            | {name: each[0][name] for name in SAME}
            | self.digests
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Notes for the reader.

        A note that does not hold for every symbol begins with those for which it does.
        """
        found: dict[str, list[str]] = {}
        for symbol, result in self.symbols.items():
            for label in result.labels:
                found.setdefault(label, []).append(symbol)
        return tuple(
            label if len(symbols) == len(self.symbols) else f"{', '.join(symbols)}: {label}"
            for label, symbols in found.items()
        )

    def _parts(self) -> dict[str, Any]:
        return {"symbols": {symbol: own.to_json() for symbol, own in self.symbols.items()}}

    @property
    def dates(self) -> np.ndarray:
        return trade_dates(list(self.symbols.values()))

    def daily_pnl(self, agent: AgentResult, which: Pass = "strategy") -> np.ndarray:
        """Return the profit of one of `agents` in a pass, by trade date (int64[n], mills)."""
        each = list(self.symbols.values())
        return by_date(each, [own.daily_pnl(own.agent(agent.name), which) for own in each])

    def verdict(self) -> str:
        return self.compare("trade date", f" of {several(len(self.symbols), 'symbol')}", hint=True)

    def trades_of(self, name: str) -> pd.DataFrame:
        return frames.by_symbol(
            {symbol: own.trades_of(name) for symbol, own in self.symbols.items()}
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        return frames.by_symbol(
            {symbol: own.equity_of(name) for symbol, own in self.symbols.items()}
        )


# The agents of a set, over all symbols: sums of their accounts. Money is integer mills until the
# figures, which are dollars. A figure that is undefined is None.

SUMS = (
    "accounts",
    "passed",
    "bust",
    "failed_daily_loss",
    "open_at_end",
    "reached_target",
    "breaches",
    "trades",
    "illegal_actions",
    "idle_bars",
)


def pool_results(results: Sequence[EvaluationResult]) -> tuple[AgentResult, ...]:
    """Pool each agent over all symbols, in the order of the agents.

    results: one for each symbol, with the same agents. Raises ValueError if their agents differ.
    """
    names = [[agent.name for agent in result.agents] for result in results]
    if any(each != names[0] for each in names):
        raise ValueError(f"the symbols were evaluated with different agents: {names}")
    every = zip(*(result.agents for result in results), strict=True)
    return tuple(_pooled_agent(results, agents) for agents in every)


def trade_dates(results: Sequence[EvaluationResult]) -> np.ndarray:
    """Return every trade date of any symbol, in order (datetime64[D][n])."""
    return np.unique(np.concatenate([result.decisions.date for result in results]))


def by_date(results: Sequence[EvaluationResult], pnl: Sequence[np.ndarray]) -> np.ndarray:
    """Sum by trade date each symbol's P&L by session (int64[n])."""
    dates = trade_dates(results)
    total = np.zeros(len(dates), np.int64)
    for result, each in zip(results, pnl, strict=True):
        total[np.searchsorted(dates, result.decisions.date)] += each
    return total


def total_equity(results: Sequence[EvaluationResult], equity: Sequence[np.ndarray]) -> np.ndarray:
    """Sum the symbols' equities at each of the K times at which any is marked (int64[K], mills).

    Between its own marks, a symbol keeps its latest one; before the first it has made nothing.

    equity: int64[L] of each symbol, at the close of the bar after each decision.
    """
    times = [
        result.clock.time[result.decisions.rows + 1] + result.clock.bar_seconds
        for result in results
    ]
    union = np.unique(np.concatenate(times))
    total = np.zeros(len(union), np.int64)
    for own, marks in zip(times, equity, strict=True):
        known = np.searchsorted(own, union, side="right")
        total += np.append(0, marks)[known]
    return total


def _pooled_agent(
    results: Sequence[EvaluationResult], agents: Sequence[AgentResult]
) -> AgentResult:
    """Compute the metrics of an agent over all symbols of a set.

    They are those of `trades.strategy_metrics` and `trades.account_metrics`, with these meanings.

    Strategy:
        return_pct: of the sum of all start balances.
        sharpe_daily, best_session, worst_session: of the P&L by trade date.
        max_drawdown: of the total equity.
        turnover: sides of all symbols per trade date.
        exposure: share of all decision bars.
        Metrics of trades are over the trades of all symbols.
    Account: sums over the accounts of all symbols.
        best_session_share: of the accounts' P&L by trade date.
    """
    pnl, total = (
        by_date(
            results,
            [result.daily_pnl(own, which) for result, own in zip(results, agents, strict=True)],
        )
        for which in PASSES
    )
    strategy = [agent.strategy_figures for agent in agents]
    account = [agent.account_figures for agent in agents]
    bars = [len(result.decisions.rows) for result in results]
    trades = concatenate_trades([agent.trades for agent in agents])
    return AgentResult(
        agents[0].name,
        agents[0].about,
        tuple(agent.strategy for agent in agents),
        tuple(agent.account for agent in agents),
        trades,
        strategy_metrics(
            pnl,
            total_equity(results, [agent.strategy.equity for agent in agents]),
            trades,
            sum(result.start_balance for result in results),
            average_trade=metrics.average(trades.net / 1000),
            exposure=sum(
                each["exposure"] * count for each, count in zip(strategy, bars, strict=True)
            )
            / sum(bars),
            illegal_actions=sum(each["illegal_actions"] for each in strategy),
        ),
        {name: sum(each[name] for each in account) for name in SUMS}
        | {
            "net_profit": int(total.sum()) / 1000,
            "best_session_share": metrics.best_session_share(total),
        },
    )
