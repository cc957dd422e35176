"""The agents of a sweep side by side: a row for each with its settings and figures, and a ranking
by validation score."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxtrade.config.agents import Agent, shown
from jaxtrade.evaluation import report
from jaxtrade.evaluation.openings import history_lines, latest, of_all
from jaxtrade.evaluation.portfolio.result import JointResult
from jaxtrade.text import aligned, ruled, several

POLICY = "greedy"
MOST_RANKED = 10  # lines of the ranking
MEASURES = ("reward.", "account.")  # sections that decide the unit or the terms of the reward
COSTS = "costs: "  # how the line about costs begins


def is_swept(results: Mapping[int, Any]) -> bool:
    """Whether the results are of a sweep: each says in its provenance which settings its agent
    had.
    """
    return "overrides" in next(iter(results.values())).provenance


def table(results: Mapping[int, Any]) -> str:
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
    return "\n".join(
        [
            *_header(results),
            f"greedy policies of {several(len(results), 'agent')}, each under its own settings",
            "",
            *ruled(aligned([head, *rows], (0, *left))),
            *_by_setting(results, keys),
            "The figures are of the evaluated sessions: choose by validation scores, not by this table.",
            *history_lines(of_all(latest(each.history for each in results.values()))),
        ]
    )


def _settings(own: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [shown(own["overrides"][key]) if key in own["overrides"] else "-" for key in keys]


def _policy(result: Any) -> Any:
    return next(agent for agent in result.agents if agent.name == POLICY)


def _figures(result: Any) -> list[str]:
    strategy, account = _policy(result).strategy_figures, _policy(result).account_figures
    return [
        f"{strategy['net_profit']:,.2f}",
        f"{strategy['max_drawdown']:,.2f}",
        f"{strategy['trades']:,}",
        f"{account['net_profit']:,.2f}",
    ]


def _header(results: Mapping[int, Any]) -> list[str]:
    first, *others = results.values()
    if isinstance(first, JointResult):
        of = first.settings
        return [
            f"Evaluation on {of['market']}, {several(of['sessions'], 'session')} ({of['first_session']} .. "
            f"{of['last_session']}), {of['decision_bars']:,} decision bars"
        ]
    lines = first.header()
    differ = any(
        line not in other.header() for other in others for line in lines if line.startswith(COSTS)
    )
    return [
        f"{COSTS}each agent's own, in the table of its folder"
        if differ and line.startswith(COSTS)
        else line
        for line in lines
    ]


def _by_setting(results: Mapping[int, Any], keys: Sequence[str]) -> Iterator[str]:
    """A table of settings: the median net profit over the seeds of each."""
    found: dict[tuple[str, ...], list[float]] = {}
    for result in results.values():
        net = _policy(result).strategy_figures["net_profit"]
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


def to_json(results: Mapping[int, Any]) -> dict[str, Any]:
    """Plain data for JSON: the evaluation of each agent, by its index."""
    return {
        "format": report.FORMAT,
        "agent": POLICY,
        "sweep": {str(index): result.to_json() for index, result in results.items()},
    }


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
