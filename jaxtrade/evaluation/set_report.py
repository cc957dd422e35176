"""The result of evaluating a set of symbols: each symbol's own evaluation, and all of them
together.

Every symbol trades an account of its own, under the same rules. What is pooled adds these accounts
up (`pooled`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtrade.evaluation import frames, html, report
from jaxtrade.evaluation.openings import SplitHistory, history_json, history_lines
from jaxtrade.evaluation.pooled import PooledAgent, pooled, trade_dates
from jaxtrade.evaluation.report import (
    ACCOUNT_ROWS,
    STRATEGY_ROWS,
    EvaluationResult,
    FigureRow,
    block,
)
from jaxtrade.evaluation.verdict import Standing, compared, key_of
from jaxtrade.text import aligned, ruled, several

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Rows of a symbol's block: enough to see where the result comes from. The symbol's own table has
# all of them.
SHORT = ("net_profit", "sharpe_daily", "max_drawdown", "trades", "win_rate")
SYMBOL_ROWS: tuple[FigureRow, ...] = tuple(row for row in STRATEGY_ROWS if row[1] in SHORT)
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
)


@dataclass(frozen=True)
class SetResult:
    """The evaluations of a set's symbols over the same split, by symbol, with the same agents.

    provenance: versions, device and digests. digests: sha256 of the run's configuration and of all
        data. history: how
    often these days were opened; None where nobody counted.
    """

    symbols: dict[str, EvaluationResult]
    provenance: dict[str, Any]
    digests: dict[str, str]
    history: SplitHistory | None = None

    @cached_property
    def agents(self) -> tuple[PooledAgent, ...]:
        """The agents over all symbols, in the order given."""
        return pooled(list(self.symbols.values()))

    @property
    def first(self) -> EvaluationResult:
        """The evaluation of the first symbol."""
        return next(iter(self.symbols.values()))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was evaluated. sessions: number of trade dates."""
        dates, each = (
            trade_dates(list(self.symbols.values())),
            [result.settings for result in self.symbols.values()],
        )
        return (
            {
                "market": ", ".join(self.symbols),
                "symbols": list(self.symbols),
                "sessions": len(dates),
                "first_session": str(dates[0]),
                "last_session": str(dates[-1]),
                "decision_bars": sum(own["decision_bars"] for own in each),
                "coverage": min(own["coverage"] for own in each),
            }
            | {name: each[0][name] for name in SAME}
            | self.digests
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Notes for the reader. A note that does not hold for every symbol begins with those for
        which it does.
        """
        found: dict[str, list[str]] = {}
        for symbol, result in self.symbols.items():
            for label in result.labels:
                found.setdefault(label, []).append(symbol)
        return tuple(
            label if len(symbols) == len(self.symbols) else f"{', '.join(symbols)}: {label}"
            for label, symbols in found.items()
        )

    def agent(self, name: str) -> PooledAgent:
        """The agent `name` over all symbols. Raises KeyError, which lists the names of this
        evaluation.
        """
        for agent in self.agents:
            if agent.name == name:
                return agent
        raise KeyError(
            f"no agent '{name}' in this evaluation (there are: {', '.join(a.name for a in self.agents)})"
        )

    def header(self) -> list[str]:
        """The lines above the table: sessions, conventions, costs of each symbol, and labels."""
        return header(self)

    def table(self) -> str:
        """The console table: a block for each symbol, then all of them together, and a verdict of
        one line.
        """
        return table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None."""
        return to_json(self)

    @property
    def trades(self) -> pd.DataFrame:
        """The trades of the first agent on every symbol, with a column `symbol`. See
        `EvaluationResult.trades`.
        """
        return self.trades_of(self.agents[0].name)

    @property
    def equity(self) -> pd.DataFrame:
        """Equity of the first agent on every symbol, with a column `symbol`. See
        `EvaluationResult.equity`.
        """
        return self.equity_of(self.agents[0].name)

    @property
    def figures(self) -> pd.DataFrame:
        """All figures over all symbols: one row per (pass, figure), one column per agent."""
        return frames.figures_frame(to_json(self)["agents"])

    def trades_of(self, name: str) -> pd.DataFrame:
        """`trades` of the agent `name`. Raises KeyError."""
        return frames.by_symbol(
            {symbol: result.trades_of(name) for symbol, result in self.symbols.items()}
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        """`equity` of the agent `name`. Raises KeyError."""
        return frames.by_symbol(
            {symbol: result.equity_of(name) for symbol, result in self.symbols.items()}
        )

    def plot(self, name: str | None = None) -> Figure:
        """A matplotlib figure: the sum of all symbols' equities and its drawdown, strategy pass
        (default: first agent).
        """
        from jaxtrade.evaluation.plot import draw_equity

        chosen = self.agents[0].name if name is None else name
        total = frames.summed_equity(self.equity_of(chosen), self.settings["start_balance"])
        return draw_equity(total, report.title_of(self.settings, chosen))

    def __repr__(self) -> str:
        return report.repr_of("SetResult", to_json(self))

    def _repr_html_(self) -> str:
        return to_html(to_json(self))


def header(result: SetResult) -> list[str]:
    """Header lines of a set."""
    return header_of(
        {symbol: each.settings for symbol, each in result.symbols.items()},
        result.settings,
        result.labels,
    )


def header_of(
    each: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], labels: Sequence[str]
) -> list[str]:
    """`header` from the settings of each symbol, those of the set, and its labels."""
    wide = max(map(len, each))
    costs = [f"  {symbol:<{wide}}  {report.costs_text(own)}" for symbol, own in each.items()]
    return [
        f"Evaluation on {several(len(each), 'symbol')} ({settings['market']}), "
        f"{several(settings['sessions'], 'trade date')} ({report.span_of(settings)}), "
        f"{settings['decision_bars']:,} decision bars, coverage {100 * settings['coverage']:.0f} %",
        "costs:",
        *costs,
        f"fills: {settings['fill'].replace('_', ' ')}; intrabar order: {settings['intrabar']}; marks: "
        f"{settings['mark']}; {several(settings['contracts_per_entry'], 'contract')} per entry",
    ] + [f"NOTE: {label}" for label in labels]


def verdict(result: SetResult) -> str:
    """One sentence about all symbols together: the first agent and the baselines, and whether it
    can be luck.
    """
    split = result.provenance.get("split")
    kind = report.kind_of(split, result.labels)
    standings = [
        Standing(agent.name, agent.strategy_figures["net_profit"], agent.trades, agent.pnl)
        for agent in result.agents
    ]
    dates = several(result.settings["sessions"], f"{kind} trade date".strip())
    return compared(
        standings,
        f"{dates} of {several(len(result.symbols), 'symbol')}",
        "trade date",
        key_of(split),
    )


def _cells(document: Mapping[str, Any]) -> list[list[str]]:
    """The cells of the table: names of the agents, a block for each symbol, then two for all of
    them together.
    """
    settings, agents, alone = document["settings"], document["agents"], report.one_pass(document)
    cells, off = [["", *agents]], "" if alone else ", account rules off"
    for symbol, own in document["symbols"].items():
        sessions = own["settings"]["sessions"]
        figures = [each["strategy"] for each in own["agents"].values()]
        cells += block(
            f"{symbol} ({several(sessions, 'session')}{off})", SYMBOL_ROWS, figures, sessions
        )
        rows = (("net profit, rules on ($)", "net_profit", ACCOUNT_ROWS[0][2]),)
        if not alone:
            cells += block(
                "", rows, [each["account"] for each in own["agents"].values()], sessions
            )[1:]
    count, dates = several(len(document["symbols"]), "symbol"), settings["sessions"]
    title = report.ALONE.replace("account has", "accounts have") if alone else "account rules off"
    cells += block(
        f"All {count}, strategy ({title})",
        STRATEGY_ROWS,
        [each["strategy"] for each in agents.values()],
        dates,
    )
    return (
        cells
        if alone
        else [
            *cells,
            *block(
                f"All {count}, accounts (rules on: {settings['account']})",
                ACCOUNT_ROWS,
                [each["account"] for each in agents.values()],
                dates,
            ),
        ]
    )


def table(result: SetResult) -> str:
    """The console table of a set, with agents as columns."""
    body = ruled(aligned(_cells(to_json(result))))
    legend = [f"{agent.name}: {agent.about}" for agent in result.agents]
    rules = (
        f"one account for each symbol, start ${result.settings['start_balance']:,.0f}; account rules: "
        f"{report.rules_text(result.settings['rules'])}"
    )
    return "\n".join(
        [
            *header(result),
            rules,
            "",
            *body,
            body[1],
            *legend,
            "",
            verdict(result),
            *history_lines(result.history),
        ]
    )


def to_json(result: SetResult) -> dict[str, Any]:
    """The evaluation as plain data. agents: over all symbols. symbols: the document of each
    symbol's evaluation.
    """
    each = {symbol: own.to_json() for symbol, own in result.symbols.items()}
    return {
        "format": report.FORMAT,
        "settings": result.settings,
        "labels": list(result.labels),
        "passes": next(iter(each.values()))["passes"],
        "agents": {
            agent.name: {
                "about": agent.about,
                "strategy": agent.strategy_figures,
                "account": agent.account_figures,
            }
            for agent in result.agents
        },
        "verdict": verdict(result),
        **history_json(result.history),
        "symbols": each,
        "provenance": result.provenance,
    }


def to_html(document: Mapping[str, Any]) -> str:
    """The table for a notebook. document: as from `to_json`."""
    each = {symbol: own["settings"] for symbol, own in document["symbols"].items()}
    first, *rest = header_of(each, document["settings"], document["labels"])
    return html.block(
        first,
        html.paragraphs(rest),
        html.table(_cells(document)),
        html.paragraphs([document["verdict"]]),
    )
