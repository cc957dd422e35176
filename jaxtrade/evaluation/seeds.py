"""Several evaluations of one configuration: the seeds of a run, or the agents of a sweep."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.config.load import SweepAgent, setting_text
from jaxtrade.evaluation import metrics, results_table
from jaxtrade.evaluation.result import EvaluationResult, SetResult
from jaxtrade.evaluation.test_set_history import drop_policy, history_lines, latest
from jaxtrade.formatting import POLICY
from jaxtrade.storage.staging import stage_files
from jaxtrade.text import align, several, underline

MOST_RANKED = 10  # lines of the ranking
MOST_ROWS = 8  # agents of a sweep in the table at the end of a run
MOST_SETTINGS = 16  # settings there
MEASURES = ("reward.", "account.")  # sections that decide the unit or the terms of the reward
COSTS = "costs: "  # how the line about costs begins


def is_swept(results: Mapping[int, Any]) -> bool:
    """Return whether the results are of a sweep.

    Each result of a sweep says in its provenance which settings its agent had.
    """
    return "overrides" in next(iter(results.values())).provenance


def sweep_table(results: Mapping[int, Any], brief: bool = False) -> str:
    """Format the console table of a sweep.

    It has one row per agent, then a row per setting if each has several seeds. Money of the
    strategy pass has the account rules off.

    results: by the index of the agent.
    brief: at most `MOST_SETTINGS` settings, and at most `MOST_ROWS` agents; of more agents none
        where there are settings.
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
        [str(index), str(own["trained_seed"]), *_settings(own, keys), *_metrics(result)]
        for (index, result), own in zip(results.items(), about, strict=True)
    ]
    left, settings = tuple(range(2, 2 + len(keys))), _by_setting(results, keys, brief)
    shown = len(rows)
    if brief and shown > MOST_ROWS:
        shown = 0 if settings else MOST_ROWS
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
            *(underline(align([head, *rows[:shown]], (0, *left))) if shown else []),
            *([_left_out(len(rows) - shown, "agent")] if 0 < shown < len(rows) else []),
            *([""] if shown and settings else []),
            *settings,
            *(["sweep.txt has a row for each agent"] if shown == 0 else []),
            "The figures are of the evaluated sessions: choose by validation scores, not by this table.",
            *history_lines(drop_policy(latest(each.history for each in results.values()))),
        ]
    )


def _settings(own: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [setting_text(own["overrides"][key]) if key in own["overrides"] else "-" for key in keys]


def _metrics(result: Any) -> list[str]:
    policy = result.agent(POLICY)
    strategy, account = policy.strategy_figures, policy.account_figures
    return [
        f"{strategy['net_profit']:,.2f}",
        f"{strategy['max_drawdown']:,.2f}",
        f"{strategy['trades']:,}",
        f"{account['net_profit']:,.2f}",
    ]


def _left_out(count: int, what: str) -> str:
    return f"and {several(count, f'more {what}')}, in sweep.txt"


def _by_setting(results: Mapping[int, Any], keys: Sequence[str], brief: bool) -> list[str]:
    """Format a table of settings: the net profit over the seeds of each.

    Empty where each has one seed.
    """
    found: dict[tuple[str, ...], list[float]] = {}
    for result in results.values():
        net = result.agent(POLICY).strategy_figures["net_profit"]
        found.setdefault(tuple(_settings(result.provenance, keys)), []).append(net)
    if len(found) == len(results):
        return []
    figures = {
        "mean net profit ($)": statistics.fmean,
        "median": statistics.median,
        "min": min,
        "max": max,
    }
    rows = [
        [*setting, str(len(nets)), *(f"{of(nets):,.2f}" for of in figures.values())]
        for setting, nets in found.items()
    ]
    shown = MOST_SETTINGS if brief else len(rows)
    lines = underline(align([[*keys, "seeds", *figures], *rows[:shown]], tuple(range(len(keys)))))
    return [*lines, *([_left_out(len(rows) - shown, "setting")] if shown < len(rows) else [])]


def ranking(scores: Sequence[float], agents: Sequence[SweepAgent]) -> list[str]:
    """List the best agents by validation score, as lines.

    scores: mean reward per validation session of each.
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
    ("strategy", "Strategy (account rules off)", results_table.STRATEGY_ROWS),
    ("account", "Account (rules on)", results_table.ACCOUNT_ROWS),
)
COLUMNS = ("median", "IQM", "min", "max")


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest quarter of the values.

    Each quarter is rounded down to whole values. Agarwal et al. 2021, "Deep Reinforcement Learning
    at the Edge of the Statistical Precipice", recommend it.
    """
    from scipy.stats import trim_mean  # imported here because it takes a second to load

    return float(trim_mean(values, 0.25))


def spread(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Compute statistics of the greedy policy over seeds.

    Returns pass -> metric -> {median, IQM, min, max, each}. `each` is a list by seed, with None for
    an undefined metric. The statistics ignore undefined metrics, and are None if all are undefined.
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
    """Format the console table: your policy over seeds, and the net profit of each seed.

    Of a sweep it has one row per agent. brief: as `results_table.table`.
    """
    first = next(iter(results.values()))
    if len(results) > 1 and is_swept(results):
        return sweep_table(results, brief)
    if results_table.is_joint(first.settings):
        tables = [f"seed {seed}\n{result.table(brief)}" for seed, result in results.items()]
        return first.table(brief) if len(results) == 1 else "\n\n".join(tables)
    if len(results) == 1:
        return first.table(brief)
    figures, sessions = spread(results), first.settings["sessions"]
    lines = [["", *COLUMNS]]
    alone = results_table.one_pass(first.to_json())
    for which, title, rows in BLOCKS[:1] if alone else BLOCKS:
        named = title.replace("rules on", f"rules on: {first.settings['account']}")
        lines.append(
            [f"Strategy ({results_table.ALONE})" if alone else named, *[""] * len(COLUMNS)]
        )
        for label, key, form in results_table.shorten(rows, brief):
            if key == "sharpe_daily" and sessions < metrics.MIN_SESSIONS:
                continue  # undefined for so few sessions: `lacking_of` says so
            values = [figures[which][key][name] for name in COLUMNS]
            lines.append(
                [
                    f"  {label}",
                    *(results_table.cell(value, form) for value in values),
                ]
            )
    nets = figures["strategy"]["net_profit"]["each"]
    differ = "Seeds differ by luck"
    if first.provenance.get("evolved"):
        differ = "These agents differ by their settings too (evolve.keys), and copies of one agent are alike"
    accounts = [result.agent(POLICY).account_figures for result in results.values()]
    ended = results_table.describe_accounts(first.settings, accounts, "they")
    return "\n".join(
        [
            f"{describe_beaten(results)}. {differ}: no interval is given here. {ended}".strip(),
            "",
            *results_table.header(first.to_json(), brief),
            f"your policies of {len(results)} seeds ({min(results)} .. {max(results)}); IQM: interquartile mean",
            "",
            *align(lines),
            "",
            f"net profit ($) by seed: {_by_seed(results, nets)}",
            *_by_symbol(results),
            *history_lines(drop_policy(first.history), results_table.lacking_of(sessions)),
        ]
    )


def _by_seed(results: Results, nets: Sequence[float]) -> str:
    return ", ".join(f"{seed}: {net:,.2f}" for seed, net in zip(results, nets, strict=True))


def _by_symbol(results: Results) -> Iterator[str]:
    """Yield a line for each symbol of a set: the greedy policy's net profit by seed."""
    sets = [result for result in results.values() if isinstance(result, SetResult)]
    for symbol in sets[0].symbols if sets else ():
        nets = [
            result.symbols[symbol].agent(POLICY).strategy_figures["net_profit"] for result in sets
        ]
        yield f"  of it {symbol}: {_by_seed(results, nets)}"


def describe_beaten(results: Results) -> str:
    """Say how many seeds made more than each baseline."""
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
    """Return plain data for JSON: the statistics, and the evaluation of each seed.

    Of a sweep it has the evaluation of each agent.
    """
    first = next(iter(results.values()))
    if len(results) == 1:
        return first.to_json()
    each = {str(number): result.to_json() for number, result in results.items()}
    if is_swept(results):
        return {"format": results_table.FORMAT, "agent": POLICY, "sweep": each}
    pooled = (
        {}
        if results_table.is_joint(first.settings)
        else {"agent": POLICY, "spread": spread(results)}
    )
    return {"format": results_table.FORMAT, **pooled, "seeds": each}


def write(results: Results, folder: Path) -> None:
    """Write `seeds.json` and `seeds.txt` to `folder`, of a sweep `sweep.json` and `sweep.txt`.

    A single agent needs neither: its own files are enough.
    """
    if len(results) == 1:
        return
    name = "sweep" if is_swept(results) else "seeds"
    with stage_files(folder) as new:
        results_table.write_texts(new, name, to_json(results), table(results))
