"""The texts of an evaluation: a verdict that never claims that an agent is profitable.

Also, from its plain document, the console table, the page of a notebook and the files.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.test_set_history import SplitHistory, history_lines
from jaxtrade.formatting import cost, format_number, money, name_agent, share
from jaxtrade.parts import REPORT_SECTIONS
from jaxtrade.text import align, json_text, several, short_repr, state_shortfall, underline

BEST = "best_profit"  # the setting that holds what the best policy makes, where it is known
LEAST = 5  # sessions; fewer give no useful interval
FEWEST_TRADES = 3  # fewer of one side are no habit
CONFIDENCE = 0.95


class AgentStanding(NamedTuple):
    """What the verdict reads of an agent.

    Profit in dollars, number of trades, and P&L int64[n] mills by session.
    """

    name: str
    net: float
    trades: int
    pnl: np.ndarray


def join_names(names: Sequence[str]) -> str:
    """Join names as text: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mean_interval(pnl: np.ndarray) -> tuple[float, float]:
    """Return mean and half width of Student's t interval of the mean of P&L by session.

    It takes the sessions as independent and their P&L as roughly normal, so it is a guide and no
    proof. pnl: float[n] with n > 1.
    """
    from scipy.special import stdtrit  # takes a moment to load

    spread = float(np.std(pnl, ddof=1)) / math.sqrt(len(pnl))
    return float(np.mean(pnl)), float(stdtrit(len(pnl) - 1, 0.5 + CONFIDENCE / 2)) * spread


def split_size_key(split: str | None) -> str:
    """Return the key that says how many sessions a held-out split has; "" for another split."""
    return f"split.{split}_sessions" if split in ("test", "validation") else ""


def describe_significance(
    agent: AgentStanding, unit: str = "session", key: str = "", trained: bool = False
) -> str:
    """Say whether the distance from staying flat can be luck.

    Args:
        unit: noun for one entry of the P&L.
        key, trained: as in `compare_agents`.
    """
    count = len(agent.pnl)
    if not agent.trades:
        return ""
    if count < LEAST:
        return (
            f"{f'one {unit}' if count == 1 else f'{count} {unit}s'} cannot tell skill from luck"
            + (f" (train with a larger {key})" if key else "")
        )
    if trained:
        return "these days were trained on: this shows only what was memorised"
    mean, half = mean_interval(agent.pnl / 1000)
    within = (
        "within noise"
        if abs(mean) <= half
        else f"outside noise, though past {unit}s prove nothing about others"
    )
    return (
        f"per {unit} {money(mean)} +- {money(half)} ({100 * CONFIDENCE:.0f} % interval): the "
        f"distance from flat is {within}"
    )


def has_limits(settings: Mapping[str, Any]) -> bool:
    """Return whether the account can pass or fail. settings: of an evaluation."""
    rules = settings.get("rules")
    return bool(rules) and rules_text(rules) != NO_LIMITS


def may_pass(settings: Mapping[str, Any]) -> bool:
    """Return whether there are rules and days enough to ask with which probability it passes.

    settings: of an evaluation of one symbol or a set.
    """
    rules = settings.get("rules", {})
    return (
        bool(rules.get("profit_target") and rules["drawdown"])
        and settings["sessions"] >= LEAST
        and not is_joint(settings)
    )


def describe_accounts(
    settings: Mapping[str, Any], figures: Sequence[Mapping[str, Any]], who: str = "it"
) -> str:
    """Say in a sentence how the accounts ended; "" where they have no limits.

    settings: of an evaluation.
    figures: of the account pass, of each policy.
    """
    if not has_limits(settings):
        return ""

    def total(key: str) -> Any:
        return sum(each[key] for each in figures)

    ends = [f"{total(key) or 'none'} {key}" for key in ("passed", "bust")]
    ends += [
        f"{total(key)} {word}"
        for key, word in (("failed_daily_loss", "failed by daily loss"), ("open_at_end", "open"))
        if total(key)
    ]
    return (
        f"Under {settings['account']} {who} opened {several(total('accounts'), 'account')}: "
        f"{', '.join(ends)} ({money(total('net_profit'))})."
    )


def describe_share(net: float, best: float) -> str:
    """Say how much of what can be made was made."""
    return (
        f"that is {share(net / best, 0)} of what can be made there: the best policy, which is known "
        f"exactly, makes {money(best)}"
    )


def describe_habit(sides: np.ndarray, exposure: float | None) -> str:
    """Say that an agent knew one side only, as a policy does that has learnt nothing else.

    Args:
        sides: int64[K] of its round turns, 1 long and -1 short.
        exposure: share of the time in the market.
    """
    if len(sides) < FEWEST_TRADES or len(set(sides.tolist())) > 1:
        return ""
    side = "long" if sides[0] > 0 else "short"
    always = " and in the market all the time" if exposure == 1 else ""
    return f"It was always {side} ({len(sides)} of {len(sides)} trades){always}."


def compare_agents(
    agents: Sequence[AgentStanding],
    span: str,
    unit: str = "session",
    key: str = "",
    best: float | None = None,
    trained: bool = False,
) -> str:
    """Compare the first agent with the baselines, by their net profit in the strategy pass.

    Sampled versions of the same policy are no baselines.

    Args:
        span: what was evaluated, as "5 held-out sessions".
        unit: as in `describe_significance`.
        key: the key to raise where they are too few (`split_size_key`).
        best: what the best policy makes, where it is known.
        trained: whether the first agent was trained on these days.
    """
    first, *others = agents
    net = first.net
    made = f"made {money(net)} after costs" if first.trades else "never traded"
    groups: dict[str, list[str]] = {"more than": [], "as much as": [], "less than": []}
    for other in others:
        if other.name.startswith("sampled"):
            continue
        word = "more than" if net > other.net else "less than" if net < other.net else "as much as"
        groups[word].append(f"{other.name} ({money(other.net)})")
    ranks = ", ".join(f"{word} {join_names(names)}" for word, names in groups.items() if names)
    parts = [
        ranks,
        describe_significance(first, unit, key, trained)
        if best is None
        else describe_share(net, best),
        "staying flat can be the right answer" if net <= 0 else "",
    ]
    name = name_agent(first.name)
    text = f"On {span}, {name if name != first.name else repr(name)} {made}"
    return (
        "; ".join(
            [f"{text}: {parts[0]}" if parts[0] else text, *(part for part in parts[1:] if part)]
        )
        + "."
    )


def notebook(title: str, png: Path | None = None, **parts: Any) -> str:
    """Render a result as HTML for a notebook.

    Args:
        parts: see `templates/notebook.html`.
        png: of the run's advice.
    """
    from jaxtrade.web.assets import environment

    template = environment("jaxtrade.evaluation").get_template("notebook.html")
    picture = None
    if png and png.is_file():
        data = base64.b64encode(png.read_bytes()).decode("ascii")
        picture = data, "hit rate by stated confidence, trust and agreement"
    empty = {"lines": (), "rows": (), "verdict": "", "blocks": ()}
    return template.render({**empty, **parts}, title=title, picture=picture)


FORMAT = 1
PASSES = {
    "strategy": "account rules off: drawdown, daily loss and target; contract cap stays",
    "account": "account rules on; a new account opens at the session after one ended",
}


FigureRow = tuple[str, str, str]  # label, key of the figure, form of `formatting.format_number`


def rows_of(text: str) -> tuple[FigureRow, ...]:
    """Parse rows of a table from lines `label | metric | form`.

    The forms are those of `formatting.format_number`.
    """
    return tuple(tuple(line.split(" | ")) for line in text.strip("\n").splitlines())  # type: ignore[misc]


NO_LIMITS = "no limits"
ALONE = "the account has no limits: one pass"  # in the title of a table that shows one pass
STRATEGY_ROWS = rows_of("""
net profit ($) | net_profit | number
return | return_pct | percent
daily Sharpe | sharpe_daily | ratio
max drawdown ($) | max_drawdown | number
trades | trades | count
win rate | win_rate | share
profit factor | profit_factor | ratio
average trade ($) | average_trade | number
sides per session | turnover | ratio
time in market | exposure | share
commission ($) | commission | number
slippage ($) | slippage | number
""")
# Of a market whose best policy is known (`evaluation.optimum`).
OPTIMUM_ROWS = rows_of("of the best policy's profit | optimum_share | share")
# Rows of a symbol's block: enough to see where the result comes from. The symbol's own table has
# all of them.
SHORT = ("net_profit", "sharpe_daily", "max_drawdown", "trades", "win_rate")
SYMBOL_ROWS = tuple(row for row in STRATEGY_ROWS if row[1] in SHORT)
# What a run shows at its end; the file of the evaluation has every figure.
BRIEF = (
    *("net_profit", "return_pct", "sharpe_daily", "max_drawdown", "trades", "win_rate"),
    *("profit_factor", "exposure", "passed", "bust"),
)
SHARPE = "daily Sharpe"
ACCOUNT_ROWS = rows_of("""
net profit ($) | net_profit | number
accounts opened | accounts | count
  passed | passed | count
  bust | bust | count
  failed, daily loss | failed_daily_loss | count
  open at end | open_at_end | count
breaches | breaches | count
best session share | best_session_share | share
""")

# The figures of `allocate`.
JOINT_ROWS = rows_of("""
net profit ($) | net_profit | number
return (% of start) | return_pct | ratio
daily Sharpe | sharpe_daily | ratio
max drawdown ($) | max_drawdown | number
round turns | trades | count
win rate | win_rate | share
orders | orders | count
turnover (x start balance) | turnover | ratio
costs ($) | costs | number
exposure | exposure | share
illegal actions | illegal_actions | count
""")


def metric_row(row: FigureRow, figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cells of a row. figures: those of each column."""
    label, key, form = row
    return [f"  {label}", *(cell(each[key], form) for each in figures)]


def cell(value: Any, form: str) -> str:
    """Format a metric of a table. The mean of some counts has one decimal, if any."""
    if form == "count" and value is not None:
        return f"{value:,.1f}".removesuffix(".0")
    return format_number(value, form)


def block(
    title: str, rows: tuple[FigureRow, ...], figures: Sequence[Mapping[str, Any]], sessions: int
) -> list[list[str]]:
    """Return rows of cells for one pass, without the Sharpe ratio of too few sessions (`lacking_of`).

    A row with fewer cells than agents is text that spans the columns.

    figures: those of each agent.
    """
    few = sessions < MIN_SESSIONS
    return [
        [title],
        *(metric_row(row, figures) for row in rows if not (few and row[1] == "sharpe_daily")),
    ]


def lacking_of(sessions: int) -> dict[str, str]:
    """Return the figures of a table that so few sessions do not give -> why."""
    few = sessions < MIN_SESSIONS
    return {SHARPE: f"it {state_shortfall(MIN_SESSIONS, 'session', sessions)}"} if few else {}


def rules_text(rules: dict[str, Any]) -> str:
    limits = [
        f"{name.replace('_', ' ')} {money(rules[name], 0)}"
        for name in ("drawdown", "daily_loss", "profit_target")
        if rules[name]
    ]
    if rules["drawdown"]:
        how = {
            "intraday": "trails live equity",
            "end_of_day": "trails closing equity",
            "static": "never trails",
        }
        limits[0] += f" ({how[rules['trailing']]})"
    return ", ".join(limits) or NO_LIMITS


def one_pass(document: Mapping[str, Any]) -> bool:
    """Return whether the account has no limits.

    Both passes are then the same, and a table shows one of them.
    """
    settings, agents = document["settings"], document["agents"].values()
    return (
        "rules" in settings
        and not has_limits(settings)
        and all(each["strategy"]["net_profit"] == each["account"]["net_profit"] for each in agents)
    )


def costs_text(settings: Mapping[str, Any]) -> str:
    """Describe the costs of an evaluation, money first.

    A target fills at its own price, so it pays no slippage.
    """
    ticks, each = settings["slippage_ticks"], settings["tick_value"]
    rate = "" if settings["currency"] == "USD" else " at the median rate"
    size = several(ticks, "tick") + (f", {cost(each)} per tick{rate}" if ticks != 1 or rate else "")
    return (
        f"commission {cost(settings['commission_per_side'])} per side, slippage {cost(ticks * each)} per "
        f"market or stop fill ({size}), per contract"
    )


def span_of(settings: Mapping[str, Any]) -> str:
    first, last = settings["first_session"], settings["last_session"]
    return first if settings["sessions"] == 1 else f"{first} .. {last}"


def title_of(settings: Mapping[str, Any], agent: str) -> str:
    """Return the title of a plot: agent, market and sessions."""
    return f"{name_agent(agent)} on {settings['market']}, {span_of(settings)}"


def is_joint(settings: Mapping[str, Any]) -> bool:
    """Return whether an evaluation is of `allocate`.

    Its metrics are others, and no statistics over seeds are made of them.
    """
    return "allocate" in settings


def header(document: Mapping[str, Any], brief: bool = False) -> list[str]:
    """Return the lines above the table: sessions, conventions, costs (of each symbol) and labels.

    document: as from `to_json`.
    brief: without the conventions, and the costs and notes of each symbol.
    """
    s = document["settings"]
    of, unit = s["market"], "session"
    each, joint = document.get("symbols"), is_joint(s)
    if not each:
        costs = [s["costs"] if joint else f"costs: {costs_text(s)}"]
    else:
        of, unit = f"{several(len(each), 'symbol')} ({of})", "trade date"
        wide = max(map(len, each))
        own = (f"  {name:<{wide}}  {costs_text(part['settings'])}" for name, part in each.items())
        costs = [] if brief else ["costs:", *own]
    coverage = "" if joint else f", coverage {100 * s['coverage']:.0f} %"
    if not brief and not joint:
        costs.append(
            f"fills: {s['fill'].replace('_', ' ')}; intrabar order: {s['intrabar']}; "
            f"marks: {s['mark']}; {several(s['contracts_per_entry'], 'contract')} per entry"
        )
    return [
        f"Evaluation on {of}, {several(s['sessions'], unit)} ({span_of(s)}), "
        f"{s['decision_bars']:,} decision bars{coverage}",
        *costs,
        *(
            f"NOTE: {label}"
            for label in document["labels"]
            # A run has told the notes of single symbols at its start.
            if not (brief and each and label.split(":")[0].split(",")[0] in each)
        ),
    ]


def table(
    document: Mapping[str, Any], history: SplitHistory | None, brief: bool = False
) -> list[str]:
    """Format the console table: the verdict, the header, and the metrics.

    Args:
        document: as from `to_json`.
        history: its lines stand at the end.
        brief: what a run shows at its end, without conventions, the rows that are not in `BRIEF`,
            and what the agents are.
    """
    s, top = document["settings"], [document["verdict"], ""]
    end = history_lines(history, lacking_of(s["sessions"]))
    rules = f"account rules: {rules_text(s['rules'])}"
    if "symbols" in document:
        rules = f"one account for each symbol, start {money(s['start_balance'], 0)}; {rules}"
    head, rule, *rest = underline(align(cells_of(document, brief)))
    about = (f"{name_agent(name)}: {agent['about']}" for name, agent in document["agents"].items())
    foot = [] if brief else [rule, *about, ""]
    return [*top, *header(document, brief), rules, "", head, rule, *rest, *foot, *end]


# A user's own section below the table: (evaluation) -> lines. It is registered in
# `parts.REPORT_SECTIONS` by its title.
Section = Callable[[Any], Sequence[str]]


def sections(result: Any) -> list[str]:
    """Return the lines of the registered sections, each under its title."""
    lines = []
    for title in REPORT_SECTIONS.names:
        lines += ["", title, *(f"  {line}" for line in REPORT_SECTIONS[title](result))]
    return lines


def cells_of(document: Mapping[str, Any], brief: bool = False) -> list[list[str]]:
    """Return the cells of the table.

    They are the names of the agents, of a set a block for each symbol, then a block for each pass.

    document: as from `to_json`.
    brief: the rows of `BRIEF` alone, and of each symbol its net profit.
    """
    agents, alone = document["agents"], one_pass(document)
    cells, symbols = [["", *map(name_agent, agents)]], document.get("symbols")
    if not symbols:
        title = f"Strategy ({ALONE if alone else 'account rules off'})"
        return cells + pass_cells(document, title, "Account", brief)
    off = "" if alone else ", account rules off"
    for symbol, own in () if brief else symbols.items():
        sessions, every = own["settings"]["sessions"], own["agents"].values()
        title = f"{symbol} ({several(sessions, 'session')}{off})"
        cells += block(title, SYMBOL_ROWS, [each["strategy"] for each in every], sessions)
        if not alone:
            rows = rows_of("net profit, rules on ($) | net_profit | number")
            cells += block("", rows, [each["account"] for each in every], sessions)[1:]
    if brief:
        cells.append([f"Net profit by symbol ($){off}"])
        for symbol, own in symbols.items():
            row = symbol, "net_profit", "number"
            cells.append(metric_row(row, [each["strategy"] for each in own["agents"].values()]))
    count = several(len(symbols), "symbol")
    title = ALONE.replace("account has", "accounts have") if alone else "account rules off"
    return cells + pass_cells(
        document, f"All {count}, strategy ({title})", f"All {count}, accounts", brief
    )


def shorten(rows: Sequence[FigureRow], brief: bool) -> tuple[FigureRow, ...]:
    """Return the rows of a table that are shown: all, or those of `BRIEF`."""
    return tuple(row for row in rows if not brief or row[1] in BRIEF)


def pass_cells(
    document: Mapping[str, Any], strategy: str, account: str, brief: bool = False
) -> list[list[str]]:
    """Return the blocks of both passes, or of the one that says all.

    Args:
        strategy: title of the first.
        account: how that of the second begins.
        brief: as in `cells_of`.
    """
    settings, agents = document["settings"], document["agents"].values()
    sessions = settings["sessions"]
    net, *others = JOINT_ROWS if is_joint(settings) else STRATEGY_ROWS
    if BEST in settings:
        others = [*OPTIMUM_ROWS, *others]
    symbols = settings["symbols"] if is_joint(settings) else ()
    of_it = [(f"  of {name} ($)", f"profit.{name}", "number") for name in symbols]
    rows = (net, *of_it, *shorten(others, brief))
    cells = block(strategy, rows, [each["strategy"] for each in agents], sessions)
    if one_pass(document):
        return cells
    title = f"{account} (rules on: {settings['account']})"
    figures = [each["account"] for each in agents]
    failed = tuple(row for row in ACCOUNT_ROWS if row[1] == "failed_daily_loss")
    rows = shorten(ACCOUNT_ROWS, brief)
    if brief and any(each["failed_daily_loss"] for each in figures):
        rows += failed
    return cells + block(title, rows, figures, sessions)


def to_html(document: Mapping[str, Any]) -> str:
    """Render header, table and verdict for a notebook. document: as from `to_json`."""
    title, *lines = header(document)
    return notebook(title, lines=lines, rows=cells_of(document), verdict=document["verdict"])


def write_texts(folder: Path, name: str, document: Mapping[str, Any], table: str) -> None:
    """Write the document of a result and its console table, `NAME.json` and `NAME.txt`."""
    for ending, text in (("json", json_text(document)), ("txt", table)):
        (folder / f"{name}.{ending}").write_text(text + "\n", encoding="utf-8")


def repr_of(name: str, document: Mapping[str, Any]) -> str:
    """Return a short `__repr__` of an evaluation. document: as from `to_json`."""
    settings, agents = document["settings"], document["agents"]
    first = next(iter(agents))
    figures = agents[first]["strategy"]
    return short_repr(
        name,
        settings["market"],
        f"{several(settings['sessions'], 'session')} {span_of(settings)}",
        f"{name_agent(first)}: net {money(figures['net_profit'])}, {several(figures['trades'], 'trade')}",
        f"agents: {', '.join(agents)}",
    )
