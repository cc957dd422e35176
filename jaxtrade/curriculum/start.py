"""Check a transfer before the first update: the transferred policy must act exactly as its source
does.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxtrade.data.splits import sessions_of
from jaxtrade.evaluation.baselines import Agent, greedy
from jaxtrade.evaluation.evaluate import evaluate
from jaxtrade.evaluation.trades import AgentResult
from jaxtrade.rl.opening import closed
from jaxtrade.rl.state import Policy
from jaxtrade.runs.beginning import Transferred
from jaxtrade.runs.setup import Setup, prepare
from jaxtrade.runs.source import Source
from jaxtrade.types import PyTree

SEEN_AND_DONE = (
    "task",
    "actions",
    "advice",
    "window",
    "features",
)  # keys of `env` that determine slots and actions


def common_sessions(setups: list[Setup], split: str = "validation") -> list[np.ndarray]:
    """For each setup, the rows of its session table that all setups hold out, on the same dates and
    with equally many bars."""

    def spans(setup: Setup) -> dict[Any, tuple[int, int]]:
        sessions, held = setup.market.data.sessions, setup.splits[split]
        ids = np.asarray(held.ids)[: int(held.count)]
        lengths = np.asarray(sessions.last)[ids] - np.asarray(sessions.first)[ids]
        symbols = np.repeat(
            [member.contract.symbol for member in setup.market.members],
            [member.num_sessions for member in setup.market.members],
        )
        return {
            (symbols[i], setup.market.trade_dates[i]): (int(i), int(length))
            for i, length in zip(ids, lengths, strict=True)
        }

    found = [spans(setup) for setup in setups]
    dates = [
        date
        for date, (_, length) in found[0].items()
        if all(date in other and other[date][1] == length for other in found[1:])
    ]
    return [np.array([spans[date][0] for date in dates], int) for spans in found]


def _results(setup: Setup, agents: list[Agent], ids: np.ndarray) -> dict[str, AgentResult]:
    result = evaluate(
        setup.env,
        setup.params,
        setup.single,
        sessions_of(setup.single, ids),
        setup.config,
        agents=agents,
    )
    return {agent.name: agent for agent in result.agents}


def _named(setup: Setup, name: str, policy: PyTree) -> Agent:
    return greedy(setup.algorithm, policy, setup.env)._replace(name=name)


def _same(a: AgentResult, b: AgentResult) -> bool:
    """Whether two results have the same actions and equities, with account rules and without."""
    return all(
        np.array_equal(x, y)
        for x, y in (
            (a.account.action, b.account.action),
            (a.account.equity, b.account.equity),
            (a.strategy.action, b.strategy.action),
            (a.strategy.equity, b.strategy.equity),
        )
    )


def under(source: Source, setup: Setup) -> Setup:
    """A setup with the source's task, slots and network, and the phase's market, account, costs and
    brackets.
    """
    own = source.config.env
    env = setup.config.env.model_copy(update={name: getattr(own, name) for name in SEEN_AND_DONE})
    return prepare(setup.config.model_copy(update={"env": env, "network": source.config.network}))


def start_check(source: Source, setup: Setup, begun: Transferred) -> dict[str, Any]:
    """Compare the source, transferred and fresh greedy policies on the same validation sessions.

    All three run under the phase's conditions. Returns plain data: the number of sessions; `equal`,
    whether all actions and equities of the source and the transferred policy are the same (None if
    they have no session in common); and for each policy the net profit in dollars and the number of
    trades, with account rules off.
    """
    source_setup = under(source, setup)
    source_ids, ids = common_sessions([source_setup, setup])
    if not len(source_ids):
        return {"sessions": 0, "equal": None, "net_profit": {}}
    fresh = jax.jit(setup.algorithm.init)(jax.random.key(setup.config.seed), setup.params)
    begins = setup.algorithm.policy(begun.state)
    before = _results(
        source_setup,
        [_named(source_setup, "source", Policy(source.params, source.normaliser))],
        source_ids,
    )
    shut = begins.replace(opening=closed(begins.opening))
    # The fresh policy carries the same `opening` as the transferred one, so that one compiled
    # program serves both. Its opening is not closed, so it may use every action.
    every = setup.algorithm.policy(
        fresh.replace(opening=begun.state.opening, update=fresh.total_updates)
    )
    after = _results(
        setup, [_named(setup, "transferred", shut), _named(setup, "fresh", every)], ids
    )
    results = before | after
    return {
        "sessions": len(ids),
        "equal": _same(before["source"], after["transferred"]),
        "net_profit": {
            name: result.strategy_figures["net_profit"] for name, result in results.items()
        },
        "trades": {name: result.strategy_figures["trades"] for name, result in results.items()},
    }


def start_line(check: dict[str, Any]) -> str:
    """The check as one line."""
    if check["equal"] is None:
        return "step 0: source and phase hold no validation session in common; nothing was compared"
    net = check["net_profit"]
    same = "does what its source did, bar by bar" if check["equal"] else "DIFFERS from its source"
    return (
        f"step 0, {check['sessions']} validation sessions: the transferred policy {same} (net "
        f"${net['transferred']:,.2f}; source ${net['source']:,.2f}, fresh policy ${net['fresh']:,.2f})"
    )
