"""Several evaluations of one configuration taken together: the symbols of a set, the seeds of a
run, and the agents of a sweep.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.config.load import Agent, setting_text
from jaxtrade.evaluation import metrics, report
from jaxtrade.evaluation.openings import SplitHistory, history_lines, latest, of_all
from jaxtrade.evaluation.record import PASSES, Pass
from jaxtrade.evaluation.report import EvaluationResult
from jaxtrade.evaluation.trades import (
    AgentResult,
    Figures,
    by_symbol,
    joined,
    strategy_figures,
    summed_equity,
)
from jaxtrade.notation import money, shown
from jaxtrade.storage.staged import staged
from jaxtrade.text import aligned, ruled, several, short_repr

if TYPE_CHECKING:
    import pandas as pd


# A set of symbols: each symbol's own evaluation, and all of them together.
#
# Every symbol trades an account of its own, under the same rules. What is pooled adds these
# accounts up (`pooled`). Money is integer mills until the figures, which are dollars. A figure that
# is undefined is None.

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


@dataclass(frozen=True)
class PooledAgent:
    """The figures of one agent over all symbols of a set; those of each symbol are in its own
    evaluation.

    pnl: int64[n] mills, profit of the strategy pass by trade date, over all symbols. trades: their
        number in that pass.
    """

    name: str
    about: str
    strategy_figures: Figures
    account_figures: Figures
    pnl: np.ndarray
    trades: int

    def __repr__(self) -> str:
        return short_repr(
            "PooledAgent",
            self.name,
            several(self.trades, "trade"),
            f"net {money(self.strategy_figures['net_profit'])}",
        )


def pooled(results: Sequence[EvaluationResult]) -> tuple[PooledAgent, ...]:
    """Each agent over all symbols, in the order of the agents. results: one for each symbol, with
    the same agents.

    Raises ValueError if their agents differ.
    """
    names = [[agent.name for agent in result.agents] for result in results]
    if any(each != names[0] for each in names):
        raise ValueError(f"the symbols were evaluated with different agents: {names}")
    return tuple(
        _pooled_agent(results, [result.agents[i] for result in results])
        for i in range(len(names[0]))
    )


def trade_dates(results: Sequence[EvaluationResult]) -> np.ndarray:
    """datetime64[D][n]: every trade date of any symbol, in order."""
    return np.unique(np.concatenate([result.decisions.date for result in results]))


def by_date(results: Sequence[EvaluationResult], pnl: Sequence[np.ndarray]) -> np.ndarray:
    """int64[n]: the sum by trade date of each symbol's P&L by session."""
    dates = trade_dates(results)
    total = np.zeros(len(dates), np.int64)
    for result, each in zip(results, pnl, strict=True):
        total[np.searchsorted(dates, result.decisions.date)] += each
    return total


def total_equity(results: Sequence[EvaluationResult], equity: Sequence[np.ndarray]) -> np.ndarray:
    """int64[K] mills: the sum of the symbols' equities at each of the K times at which any of them
    is marked.

    equity: int64[L] of each symbol, at the close of the bar after each decision. Between its own
        marks, a symbol keeps
    its latest one; before the first it has made nothing.
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
) -> PooledAgent:
    """The figures of `trades.strategy_figures` and `trades.account_figures`, with these meanings
    for a set.

    Strategy: return_pct: of the sum of all start balances. sharpe_daily, best_session,
    worst_session: of the P&L by trade date. max_drawdown: of the total equity. turnover: sides of
    all symbols per trade date. exposure: share of all decision bars. Figures of trades are over the
    trades of all symbols. Account: sums over the accounts of all symbols. best_session_share: of
    the accounts' P&L by trade date.
    """
    pnl, total = (
        by_date(
            results,
            [result.daily_pnl(own, which) for result, own in zip(results, agents, strict=True)],
        )
        for which in PASSES
    )
    strategy: list[Figures] = [agent.strategy_figures for agent in agents]
    account: list[Figures] = [agent.account_figures for agent in agents]
    bars = [len(result.decisions.rows) for result in results]
    trades = joined([agent.trades for agent in agents])
    return PooledAgent(
        agents[0].name,
        agents[0].about,
        strategy_figures(
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
        pnl,
        len(trades),
    )


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


@dataclass(frozen=True, repr=False)
class SetResult(report.Result):
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

    def header(self) -> list[str]:
        each = {symbol: own.settings for symbol, own in self.symbols.items()}
        return report.header_of(self.settings, self.labels, each)

    def table(self) -> str:
        """The console table: a block for each symbol, then all of them together, and a verdict of
        one line.
        """
        rules = (
            f"one account for each symbol, start {money(self.settings['start_balance'], 0)}; account rules: "
            f"{report.rules_text(self.settings['rules'])}"
        )
        return "\n".join(self.lines(rules))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; undefined figures are None. agents: over all symbols.
        symbols: the document of each symbol's evaluation.
        """
        each = {symbol: own.to_json() for symbol, own in self.symbols.items()}
        return {**self.document(), "symbols": each, "provenance": self.provenance}

    @property
    def dates(self) -> np.ndarray:
        return trade_dates(list(self.symbols.values()))

    def daily_pnl(self, agent: PooledAgent, which: Pass = "strategy") -> np.ndarray:
        """int64[n] mills: the profit of one of `agents` in a pass, by trade date."""
        each = list(self.symbols.values())
        return by_date(each, [own.daily_pnl(own.agent(agent.name), which) for own in each])

    def verdict(self) -> str:
        return self.compare("trade date", f" of {several(len(self.symbols), 'symbol')}", hint=True)

    def trades_of(self, name: str) -> pd.DataFrame:
        return by_symbol(
            {symbol: result.trades_of(name) for symbol, result in self.symbols.items()}
        )

    def equity_of(self, name: str) -> pd.DataFrame:
        return by_symbol(
            {symbol: result.equity_of(name) for symbol, result in self.symbols.items()}
        )

    def drawn_equity(self, name: str) -> pd.DataFrame:
        return summed_equity(self.equity_of(name), self.settings["start_balance"])


POLICY = "greedy"
MOST_RANKED = 10  # lines of the ranking
MEASURES = ("reward.", "account.")  # sections that decide the unit or the terms of the reward
COSTS = "costs: "  # how the line about costs begins


def is_swept(results: Mapping[int, Any]) -> bool:
    """Whether the results are of a sweep: each says in its provenance which settings its agent
    had.
    """
    return "overrides" in next(iter(results.values())).provenance


def is_joint(result: Any) -> bool:
    """Whether a result is of `allocate`: its figures are others, and no statistics are made of them."""
    return "allocate" in result.settings


def sweep_table(results: Mapping[int, Any]) -> str:
    """The console table of a sweep: one row per agent, then a row per setting if each has several
    seeds.

    results: by the index of the agent. Money of the strategy pass has the account rules off.
    """
    about = [result.provenance for result in results.values()]
    keys = list(dict.fromkeys(key for each in about for key in each["overrides"]))
    head = [
        "agent",
        "seed",
        *keys,
        "net profit ($)",
        "max drawdown ($)",
        "trades",
        "net, rules on ($)",
    ]
    rows = [
        [str(index), str(own["trained_seed"]), *_settings(own, keys), *_figures(result)]
        for (index, result), own in zip(results.items(), about, strict=True)
    ]
    left = tuple(range(2, 2 + len(keys)))
    first, *others = results.values()
    lines = first.header()
    differ = any(
        line not in other.header() for other in others for line in lines if line.startswith(COSTS)
    )
    return "\n".join(
        [
            *(
                f"{COSTS}each agent's own, in the table of its folder"
                if differ and line.startswith(COSTS)
                else line
                for line in lines
            ),
            f"greedy policies of {several(len(results), 'agent')}, each under its own settings",
            "",
            *ruled(aligned([head, *rows], (0, *left))),
            *_by_setting(results, keys),
            "The figures are of the evaluated sessions: choose by validation scores, not by this table.",
            *history_lines(of_all(latest(each.history for each in results.values()))),
        ]
    )


def _settings(own: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [setting_text(own["overrides"][key]) if key in own["overrides"] else "-" for key in keys]


def _figures(result: Any) -> list[str]:
    policy = result.agent(POLICY)
    strategy, account = policy.strategy_figures, policy.account_figures
    return [
        f"{strategy['net_profit']:,.2f}",
        f"{strategy['max_drawdown']:,.2f}",
        f"{strategy['trades']:,}",
        f"{account['net_profit']:,.2f}",
    ]


def _by_setting(results: Mapping[int, Any], keys: Sequence[str]) -> Iterator[str]:
    """A table of settings: the median net profit over the seeds of each."""
    found: dict[tuple[str, ...], list[float]] = {}
    for result in results.values():
        net = result.agent(POLICY).strategy_figures["net_profit"]
        found.setdefault(tuple(_settings(result.provenance, keys)), []).append(net)
    if len(found) == len(results):
        return
    head = [*keys, "seeds", "median net profit ($)", "min", "max"]
    rows = [
        [*setting, str(len(nets)), *(f"{of(nets):,.2f}" for of in (statistics.median, min, max))]
        for setting, nets in found.items()
    ]
    yield ""
    yield from ruled(aligned([head, *rows], tuple(range(len(keys)))))


def ranking(scores: Sequence[float], agents: Sequence[Agent]) -> list[str]:
    """The best agents by validation score, as lines. scores: mean reward per validation session of
    each.
    """
    own = sorted({key for agent in agents for key in agent.overrides if key.startswith(MEASURES)})
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:MOST_RANKED]
    head = (
        f"the best {len(order)} of {len(scores)} agents"
        if len(order) < len(scores)
        else "the agents"
    )
    return [
        f"{head} by mean reward per validation session (no test session was looked at):",
        *(
            [
                f"NOTE: {', '.join(own)} decide what the reward is, so scores compare only agents with equal values"
            ]
            if own
            else []
        ),
        *(
            f"  {place}. agent {i}: {scores[i]:.6g} ({agents[i].text})"
            for place, i in enumerate(order, 1)
        ),
    ]


Results = (
    Mapping[int, EvaluationResult] | Mapping[int, SetResult]
)  # by seed, or in a sweep by index
BLOCKS = (
    ("strategy", "Strategy (account rules off)", report.STRATEGY_ROWS),
    ("account", "Account (rules on)", report.ACCOUNT_ROWS),
)
COLUMNS = ("median", "IQM", "min", "max")


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean without the lowest and the highest quarter of the values (each rounded down to whole
    values).

    Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
    recommend it.
    """
    from scipy.stats import trim_mean  # imported here because it takes a second to load

    return float(trim_mean(values, 0.25))


def spread(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Statistics of the greedy policy over seeds: pass -> figure -> {median, IQM, min, max, each}.

    `each` is a list by seed, with None for an undefined figure. The statistics ignore undefined figures, and are None
    if all are undefined.
    """
    return {
        which: {
            key: _spread(
                [
                    getattr(result.agent(POLICY), f"{which}_figures")[key]
                    for result in results.values()
                ]
            )
            for _, key, _ in rows
        }
        for which, _, rows in BLOCKS
    }


def _spread(each: list[Any]) -> dict[str, Any]:
    known = [value for value in each if value is not None]
    figures = (statistics.median, interquartile_mean, min, max)
    return {
        name: figure(known) if known else None
        for name, figure in zip(COLUMNS, figures, strict=True)
    } | {"each": each}


def table(results: Results) -> str:
    """The console table: statistics of the greedy policy over seeds, and the net profit of each
    seed. Of a sweep one row per agent."""
    first = next(iter(results.values()))
    if len(results) > 1 and is_swept(results):
        return sweep_table(results)
    if is_joint(first):
        tables = [f"seed {seed}\n{result.table()}" for seed, result in results.items()]
        return first.table() if len(results) == 1 else "\n\n".join(tables)
    if len(results) == 1:
        return first.table()
    figures, sessions = spread(results), first.settings["sessions"]
    lines = [["", *COLUMNS]]
    alone = report.one_pass(first.to_json())
    for which, title, rows in BLOCKS[:1] if alone else BLOCKS:
        lines.append([f"Strategy ({report.ALONE})" if alone else title, *[""] * len(COLUMNS)])
        for label, key, form in rows:
            if key == "sharpe_daily" and sessions < metrics.MIN_SESSIONS:
                continue  # undefined for so few sessions; the table of each seed says so
            values = [figures[which][key][name] for name in COLUMNS]
            lines.append(
                [
                    f"  {label}",
                    *(shown(value, form) for value in values),
                ]
            )
    nets = figures["strategy"]["net_profit"]["each"]
    differ = "Seeds differ by luck"
    if first.provenance.get("evolved"):
        differ = "These agents differ by their settings too (evolve.keys), and copies of one agent are alike"
    return "\n".join(
        [
            *first.header(),
            f"greedy policies of {len(results)} seeds ({min(results)} .. {max(results)})",
            "",
            *aligned(lines),
            "",
            f"net profit ($) by seed: {_by_seed(results, nets)}",
            *_by_symbol(results),
            f"{beaten(results)}. {differ}: no interval is given here.",
            *history_lines(of_all(first.history)),
        ]
    )


def _by_seed(results: Results, nets: Sequence[float]) -> str:
    return ", ".join(f"{seed}: {net:,.2f}" for seed, net in zip(results, nets, strict=True))


def _by_symbol(results: Results) -> Iterator[str]:
    """A line for each symbol of a set: the greedy policy's net profit by seed."""
    sets = [result for result in results.values() if isinstance(result, SetResult)]
    for symbol in sets[0].symbols if sets else ():
        nets = [
            result.symbols[symbol].agent(POLICY).strategy_figures["net_profit"] for result in sets
        ]
        yield f"  of it {symbol}: {_by_seed(results, nets)}"


def beaten(results: Results) -> str:
    """How many seeds made more than each baseline, in words."""
    first = next(iter(results.values()))
    rivals = [
        agent.name
        for agent in first.agents
        if agent.name != POLICY and not agent.name.startswith("sampled")
    ]

    def net(result: EvaluationResult | SetResult, name: str) -> float:
        return result.agent(name).strategy_figures["net_profit"]

    counts = [
        f"{name}: {sum(net(each, POLICY) > net(each, name) for each in results.values())} of {len(results)}"
        for name in rivals
    ]
    return f"seeds that made more than {', '.join(counts)}"


def to_json(results: Results) -> dict[str, Any]:
    """Plain data for JSON: the statistics, and the evaluation of each seed; of a sweep that of each
    agent.
    """
    first = next(iter(results.values()))
    if len(results) == 1:
        return first.to_json()
    each = {str(number): result.to_json() for number, result in results.items()}
    if is_swept(results):
        return {"format": report.FORMAT, "agent": POLICY, "sweep": each}
    pooled = {} if is_joint(first) else {"agent": POLICY, "spread": spread(results)}
    return {"format": report.FORMAT, **pooled, "seeds": each}


def write(results: Results, folder: Path) -> None:
    """Write `seeds.json` and `seeds.txt` to `folder`, of a sweep `sweep.json` and `sweep.txt`. A
    single agent needs
    neither: its own files are enough."""
    if len(results) == 1:
        return
    name = "sweep" if is_swept(results) else "seeds"
    with staged(folder) as new:
        report.write_texts(new, name, to_json(results), table(results))
