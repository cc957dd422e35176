"""Several evaluations of one configuration taken together: the seeds of a run, and the agents of a
sweep.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.config.load import Agent, setting_text
from jaxtrade.evaluation import metrics, report
from jaxtrade.evaluation.openings import history_lines, latest, of_all
from jaxtrade.evaluation.result import EvaluationResult, SetResult
from jaxtrade.notation import POLICY
from jaxtrade.storage.staged import staged
from jaxtrade.text import aligned, ruled, several

MOST_RANKED = 10  # lines of the ranking
MEASURES = ("reward.", "account.")  # sections that decide the unit or the terms of the reward
COSTS = "costs: "  # how the line about costs begins


def is_swept(results: Mapping[int, Any]) -> bool:
    """Whether the results are of a sweep: each says in its provenance which settings its agent
    had.
    """
    return "overrides" in next(iter(results.values())).provenance


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
            f"your policies, of {several(len(results), 'agent')}, each under its own settings",
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


def table(results: Results, brief: bool = False) -> str:
    """Return the console table: statistics of your policy over seeds, and the net profit of each
    seed. Of a sweep one row per agent. brief: as `report.table`."""
    first = next(iter(results.values()))
    if len(results) > 1 and is_swept(results):
        return sweep_table(results)
    if report.is_joint(first.settings):
        tables = [f"seed {seed}\n{result.table(brief)}" for seed, result in results.items()]
        return first.table(brief) if len(results) == 1 else "\n\n".join(tables)
    if len(results) == 1:
        return first.table(brief)
    figures, sessions = spread(results), first.settings["sessions"]
    lines = [["", *COLUMNS]]
    alone = report.one_pass(first.to_json())
    for which, title, rows in BLOCKS[:1] if alone else BLOCKS:
        lines.append([f"Strategy ({report.ALONE})" if alone else title, *[""] * len(COLUMNS)])
        for label, key, form in report.shorten(rows, brief):
            if key == "sharpe_daily" and sessions < metrics.MIN_SESSIONS:
                continue  # undefined for so few sessions: `lacking_of` says so
            values = [figures[which][key][name] for name in COLUMNS]
            lines.append(
                [
                    f"  {label}",
                    *(report.cell(value, form) for value in values),
                ]
            )
    nets = figures["strategy"]["net_profit"]["each"]
    differ = "Seeds differ by luck"
    if first.provenance.get("evolved"):
        differ = "These agents differ by their settings too (evolve.keys), and copies of one agent are alike"
    return "\n".join(
        [
            f"{beaten(results)}. {differ}: no interval is given here.",
            "",
            *report.header(first.to_json(), brief),
            f"your policies of {len(results)} seeds ({min(results)} .. {max(results)})",
            "",
            *aligned(lines),
            "",
            f"net profit ($) by seed: {_by_seed(results, nets)}",
            *_by_symbol(results),
            *history_lines(of_all(first.history), report.lacking_of(sessions)),
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
    pooled = {} if report.is_joint(first.settings) else {"agent": POLICY, "spread": spread(results)}
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
