"""The result of an evaluation, as a console table and as a JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.evaluation import frames, html
from jaxtrade.evaluation.backtest import DecisionBars
from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.openings import SplitHistory, history_json, history_lines
from jaxtrade.evaluation.result import AgentResult
from jaxtrade.evaluation.trades import BarClock
from jaxtrade.evaluation.verdict import sentence
from jaxtrade.parts import REPORT_SECTIONS
from jaxtrade.text import aligned, in_dollars, in_mills, ruled, several, short_repr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NOT_AVAILABLE = "n/a"
FORMAT = 1


@dataclass(frozen=True)
class EvaluationResult:
    """Results of several agents over the same decision bars, in the order given.

    open, high, low, close: int[T] ticks of each market row (mid prices of two-sided bars).
        start_balance: dollars.
    settings: conventions and costs. labels: notes for the reader. provenance: versions, device and
        digests. actions:
    names of the actions by id. history: how often these days were opened; None where nobody
    counted.
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

    def table(self) -> str:
        """The console table: header, both passes with agents as columns, and a verdict of one
        line.
        """
        return table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None."""
        return to_json(self)

    def header(self) -> list[str]:
        """The lines above the table: sessions, conventions, costs and labels."""
        return header(self)

    def agent(self, name: str) -> AgentResult:
        """The result of the agent `name`. Raises KeyError, which lists the names of this
        evaluation.
        """
        for result in self.agents:
            if result.name == name:
                return result
        raise KeyError(
            f"no agent '{name}' in this evaluation (there are: {', '.join(a.name for a in self.agents)})"
        )

    @property
    def trades(self) -> pd.DataFrame:
        """The trades of the first agent, one row each: times of the exchange, prices in points,
        money in dollars.
        """
        return self.trades_of(self.agents[0].name)

    @property
    def equity(self) -> pd.DataFrame:
        """Equity of the first agent in both passes, one row per decision bar, indexed by the time
        of its close.
        """
        return self.equity_of(self.agents[0].name)

    @property
    def figures(self) -> pd.DataFrame:
        """All figures: one row per (pass, figure), one column per agent."""
        return frames.figures_frame(to_json(self)["agents"])

    def trades_of(self, name: str) -> pd.DataFrame:
        """`trades` of the agent `name`. Raises KeyError."""
        return frames.trades_frame(
            self.agent(name).trades, self.decisions, self.clock, self.close, self.settings["fill"]
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        """`equity` of the agent `name`. Raises KeyError."""
        agent = self.agent(name)
        return frames.equity_frame(
            agent.strategy, agent.account, self.decisions, self.clock, self.start_balance
        )

    def plot(self, name: str | None = None) -> Figure:
        """A matplotlib figure: equity and drawdown of the agent `name` (default: the first) in the
        strategy pass.
        """
        from jaxtrade.evaluation.plot import draw_equity

        chosen = self.agents[0].name if name is None else name
        return draw_equity(self.equity_of(chosen), title_of(self.settings, chosen))

    def __repr__(self) -> str:
        return repr_of("EvaluationResult", to_json(self))

    def _repr_html_(self) -> str:
        return to_html(to_json(self))


def _money(value: float) -> str:
    return f"{value:,.2f}"


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


FigureRow = tuple[str, str, Callable[[Any], str]]
NO_LIMITS = "no limits"
ALONE = "the account has no limits: one pass"  # in the title of a table that shows one pass
STRATEGY_ROWS: tuple[FigureRow, ...] = (
    ("net profit ($)", "net_profit", _money),
    ("return", "return_pct", _percent),
    ("daily Sharpe", "sharpe_daily", _ratio),
    ("max drawdown ($)", "max_drawdown", _money),
    ("trades", "trades", _count),
    ("win rate", "win_rate", _share),
    ("profit factor", "profit_factor", _ratio),
    ("average trade ($)", "average_trade", _money),
    ("sides per session", "turnover", _ratio),
    ("time in market", "exposure", _share),
    ("commission ($)", "commission", _money),
    ("slippage ($)", "slippage", _money),
)
ACCOUNT_ROWS: tuple[FigureRow, ...] = (
    ("net profit ($)", "net_profit", _money),
    ("accounts opened", "accounts", _count),
    ("  passed", "passed", _count),
    ("  bust", "bust", _count),
    ("  failed, daily loss", "failed_daily_loss", _count),
    ("  open at end", "open_at_end", _count),
    ("breaches", "breaches", _count),
    ("best session share", "best_session_share", _share),
)


def block(
    title: str, rows: tuple[FigureRow, ...], figures: Sequence[Mapping[str, Any]], sessions: int
) -> list[list[str]]:
    """Rows of cells for one pass. A row with fewer cells than agents is text that spans the
    columns.

    figures: those of each agent.
    """
    lines = [[title]]
    for label, key, form in rows:
        if key == "sharpe_daily" and sessions < MIN_SESSIONS:
            lines.append([f"  {label}", f"{NOT_AVAILABLE} ({several(sessions, 'session')})"])
            continue
        values = [each[key] for each in figures]
        lines.append(
            [f"  {label}", *(NOT_AVAILABLE if value is None else form(value) for value in values)]
        )
    return lines


def rules_text(rules: dict[str, Any]) -> str:
    limits = [
        f"{name.replace('_', ' ')} ${rules[name]:,.0f}"
        for name in ("drawdown", "daily_loss", "profit_target")
        if rules[name] is not None
    ]
    if rules["drawdown"] is not None:
        how = {
            "intraday": "trails live equity",
            "end_of_day": "trails closing equity",
            "static": "never trails",
        }
        limits[0] += f" ({how[rules['trailing']]})"
    return ", ".join(limits) or NO_LIMITS


def one_pass(document: Mapping[str, Any]) -> bool:
    """Whether the account has no limits, so that both passes are the same and a table shows one of
    them.
    """
    rules, agents = document["settings"].get("rules"), document["agents"].values()
    return (
        rules is not None
        and rules_text(rules) == NO_LIMITS
        and all(each["strategy"]["net_profit"] == each["account"]["net_profit"] for each in agents)
    )


def costs_text(settings: Mapping[str, Any]) -> str:
    """The costs of an evaluation in words, money first. A target fills at its own price, so it pays
    no slippage.
    """
    ticks, each = settings["slippage_ticks"], settings["tick_value"]
    rate = "" if settings["currency"] == "USD" else " at the median rate"
    size = several(ticks, "tick") + (
        f", {in_mills(each)} per tick{rate}" if ticks != 1 or rate else ""
    )
    return (
        f"commission {in_mills(settings['commission_per_side'])} per side, slippage {in_mills(ticks * each)} per "
        f"market or stop fill ({size}), per contract"
    )


def span_of(settings: Mapping[str, Any]) -> str:
    first, last = settings["first_session"], settings["last_session"]
    return first if settings["sessions"] == 1 else f"{first} .. {last}"


def title_of(settings: Mapping[str, Any], agent: str) -> str:
    """The title of a figure: agent, market and sessions."""
    return f"{agent} on {settings['market']}, {span_of(settings)}"


def header(result: EvaluationResult) -> list[str]:
    """Header lines: the evaluated sessions, the conventions, the costs and the labels."""
    return header_of(result.settings, result.labels)


def header_of(s: dict[str, Any], labels: Sequence[str]) -> list[str]:
    """`header` from the settings and labels of an evaluation."""
    return [
        f"Evaluation on {s['market']}, {several(s['sessions'], 'session')} ({span_of(s)}), "
        f"{s['decision_bars']:,} decision bars, coverage {100 * s['coverage']:.0f} %",
        f"costs: {costs_text(s)}",
        f"fills: {s['fill'].replace('_', ' ')}; intrabar order: {s['intrabar']}; marks: {s['mark']}; "
        f"{several(s['contracts_per_entry'], 'contract')} per entry",
    ] + [f"NOTE: {label}" for label in labels]


def verdict(result: EvaluationResult) -> str:
    """One sentence: how the first agent compares with the baselines, on which sessions, and whether
    it can be luck.
    """
    split = result.provenance.get("split")
    return sentence(result.agents, result.decisions, kind_of(split, result.labels))


def kind_of(split: str | None, labels: Sequence[str]) -> str:
    """What kind of sessions were evaluated, as an adjective; "" if that is not known."""
    in_sample = any(label.startswith("in sample") for label in labels)
    return "training" if in_sample else "held-out" if split in ("test", "validation") else ""


# A user's own section below the table: (evaluation) -> lines. It is registered in
# `parts.REPORT_SECTIONS` by its title.
Section = Callable[[EvaluationResult], Sequence[str]]


def sections(result: EvaluationResult) -> list[str]:
    """Lines of the registered sections, each under its title."""
    lines = []
    for title in REPORT_SECTIONS.names:
        lines += ["", title, *(f"  {line}" for line in REPORT_SECTIONS[title](result))]
    return lines


def _cells(document: Mapping[str, Any]) -> list[list[str]]:
    """The cells of the table: names of the agents, then a block for each pass. document: as from
    `to_json`.
    """
    settings, agents = document["settings"], document["agents"]
    alone, sessions = one_pass(document), settings["sessions"]
    strategy = f"Strategy ({ALONE if alone else 'account rules off'})"
    cells = [
        ["", *agents],
        *block(strategy, STRATEGY_ROWS, [each["strategy"] for each in agents.values()], sessions),
    ]
    return (
        cells
        if alone
        else [
            *cells,
            *block(
                f"Account (rules on: {settings['account']})",
                ACCOUNT_ROWS,
                [each["account"] for each in agents.values()],
                sessions,
            ),
        ]
    )


def table(result: EvaluationResult) -> str:
    """The console table, with agents as columns and the two passes as labelled blocks, then the
    registered sections.
    """
    body = ruled(aligned(_cells(to_json(result))))
    legend = [f"{agent.name}: {agent.about}" for agent in result.agents]
    rules = f"account rules: {rules_text(result.settings['rules'])}"
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
            *sections(result),
        ]
    )


def to_json(result: EvaluationResult) -> dict[str, Any]:
    """The evaluation as plain data; undefined figures are None."""
    return {
        "format": FORMAT,
        "settings": result.settings,
        "labels": list(result.labels),
        "passes": {
            "strategy": "account rules off: drawdown, daily loss and target; contract cap stays",
            "account": "account rules on; a new account opens at the session after one ended",
        },
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
        "provenance": result.provenance,
    }


def to_html(document: Mapping[str, Any]) -> str:
    """The table for a notebook. document: as from `to_json`."""
    first, *rest = header_of(document["settings"], document["labels"])
    return html.block(
        first,
        html.paragraphs(rest),
        html.table(_cells(document)),
        html.paragraphs([document["verdict"]]),
    )


def repr_of(name: str, document: Mapping[str, Any]) -> str:
    """A short `__repr__` of an evaluation. document: as from `to_json`."""
    settings, agents = document["settings"], document["agents"]
    first = next(iter(agents))
    figures = agents[first]["strategy"]
    return short_repr(
        name,
        settings["market"],
        f"{several(settings['sessions'], 'session')} {span_of(settings)}",
        f"{first}: net {in_dollars(figures['net_profit'])}, {several(figures['trades'], 'trade')}",
        f"agents: {', '.join(agents)}",
    )
