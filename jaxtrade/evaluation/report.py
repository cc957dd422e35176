"""The result of an evaluation: console table, JSON document, page for a notebook, and a verdict that never claims
that an agent is profitable.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.evaluation import frames
from jaxtrade.evaluation.figures import AgentResult
from jaxtrade.evaluation.metrics import MIN_SESSIONS, session_pnl
from jaxtrade.evaluation.openings import SplitHistory, history_json, history_lines
from jaxtrade.evaluation.record import DecisionBars
from jaxtrade.evaluation.trades import BarClock
from jaxtrade.parts import REPORT_SECTIONS
from jaxtrade.text import aligned, in_dollars, in_mills, ruled, several, short_repr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


LEAST = 5  # sessions; fewer give no useful interval
CONFIDENCE = 0.95


class Standing(NamedTuple):
    """What the verdict reads of an agent: profit in dollars, number of trades, and P&L int64[n]
    mills by session.
    """

    name: str
    net: float
    trades: int
    pnl: np.ndarray


def signed_dollars(value: float) -> str:
    """`$1,234.50`, or `-$1,234.50`."""
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mean_interval(pnl: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """(mean, half width) of Student's t interval of the mean of P&L by session, float[n] with n >
    1.

    It takes the sessions as independent and their P&L as roughly normal, so it is a guide and no
    proof.
    """
    from scipy.special import stdtrit  # takes a moment to load

    spread = float(np.std(pnl, ddof=1)) / math.sqrt(len(pnl))
    return float(np.mean(pnl)), float(stdtrit(len(pnl) - 1, 0.5 + confidence / 2)) * spread


def key_of(split: str | None) -> str:
    """The key that says how many sessions a held-out split has; "" for another split."""
    return f"split.{split}_sessions" if split in ("test", "validation") else ""


def noise(agent: Standing, unit: str = "session", key: str = "") -> str:
    """Whether the distance from staying flat can be luck, in words. unit: noun for one entry of the
    P&L. key: as in
    `compared`."""
    count = len(agent.pnl)
    if not agent.trades:
        return ""
    if count < LEAST:
        return (
            f"{f'one {unit}' if count == 1 else f'{count} {unit}s'} cannot tell skill from luck"
            + (f" (train with a larger {key})" if key else "")
        )
    mean, half = mean_interval(agent.pnl / 1000)
    within = (
        "within noise"
        if abs(mean) <= half
        else f"outside noise, though past {unit}s prove nothing about others"
    )
    return (
        f"per {unit} {signed_dollars(mean)} +- {signed_dollars(half)} ({100 * CONFIDENCE:.0f} % interval): the "
        f"distance from flat is {within}"
    )


def sentence(agents: Sequence[AgentResult], decisions: DecisionBars, kind: str = "") -> str:
    """Compare the first agent with the baselines, by their net profit in the strategy pass.

    kind: of the sessions, such as "held-out". Sampled versions of the same policy are no baselines.
    """
    standings = [
        Standing(
            agent.name,
            agent.strategy_figures["net_profit"],
            len(agent.trades),
            session_pnl(agent.strategy.equity, decisions.last),
        )
        for agent in agents
    ]
    return compared(standings, several(len(decisions.ids), f"{kind} session".strip()))


def compared(agents: Sequence[Standing], span: str, unit: str = "session", key: str = "") -> str:
    """`sentence` from standings. span: what was evaluated, as "5 held-out sessions". unit: as in
    `noise`. key: the key to raise where they are too few (`key_of`)."""
    first, *others = agents
    net = first.net
    made = f"made {signed_dollars(net)} after costs" if first.trades else "never traded"
    groups: dict[str, list[str]] = {"more than": [], "as much as": [], "less than": []}
    for other in others:
        if other.name.startswith("sampled"):
            continue
        word = "more than" if net > other.net else "less than" if net < other.net else "as much as"
        groups[word].append(f"{other.name} ({signed_dollars(other.net)})")
    ranks = ", ".join(f"{word} {listed(names)}" for word, names in groups.items() if names)
    parts = [
        ranks,
        noise(first, unit, key),
        "staying flat can be the right answer" if net <= 0 else "",
    ]
    text = f"On {span}, '{first.name}' {made}"
    return (
        "; ".join(
            [f"{text}: {parts[0]}" if parts[0] else text, *(part for part in parts[1:] if part)]
        )
        + "."
    )


CELL = "text-align:right;padding:1px 8px;white-space:nowrap"
WORD = "text-align:left;padding:1px 8px;white-space:nowrap"
HEAD = "text-align:left;padding:6px 8px 1px;font-weight:bold"


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table. The first row has the names of the columns.

    A row with fewer cells than the first one is a heading, or a remark that spans the other
    columns.
    """
    width = len(rows[0])
    head = "".join(f'<th style="{CELL}">{escape(cell)}</th>' for cell in rows[0])
    body = "".join(_row(row, width) for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Sequence[str], width: int) -> str:
    first, *rest = (escape(cell.strip()) for cell in row)
    if not rest:
        return f'<tr><td colspan="{width}" style="{HEAD}">{first}</td></tr>'
    span = f' colspan="{width - 1}"' if len(row) < width else ""
    cells = "".join(f'<td{span} style="{CELL}">{cell}</td>' for cell in rest)
    return f'<tr><td style="{WORD}">{first}</td>{cells}</tr>'


def paragraphs(lines: Sequence[str]) -> str:
    """One small paragraph for each line."""
    return "".join(f'<p style="margin:2px 0;font-size:90%">{escape(line)}</p>' for line in lines)


def picture(png: bytes, alt: str) -> str:
    """A PNG inside the page."""
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{escape(alt, quote=True)}" style="max-width:100%" src="data:image/png;base64,{data}"/>'


def html_block(title: str, *parts: str) -> str:
    """A title and parts of HTML in one element."""
    return (
        f'<div><p style="margin:2px 0;font-weight:bold">{escape(title)}</p>{"".join(parts)}</div>'
    )


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
    return html_block(
        first,
        paragraphs(rest),
        html_table(_cells(document)),
        paragraphs([document["verdict"]]),
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
