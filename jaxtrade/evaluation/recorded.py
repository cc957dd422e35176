"""The records of an evaluation, as `records` writes them: of one symbol, of a set, and of
`allocate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import NO_LEVEL, ExitReason
from jaxtrade.evaluation.metrics import account_session_pnl, session_pnl
from jaxtrade.evaluation.records import ABSENT, BarRecords, EvaluationRecords, PassRecords
from jaxtrade.evaluation.set_report import PooledAgent, by_date, trade_dates
from jaxtrade.evaluation.trades import Trades

if TYPE_CHECKING:
    from jaxtrade.evaluation.record import DecisionBars, Record
    from jaxtrade.evaluation.report import EvaluationResult
    from jaxtrade.evaluation.set_report import SetResult
    from jaxtrade.evaluation.trades import AgentResult

Also = Mapping[str, Any]  # entries of the records' `meta`, JSON values: `day_bars`, `policy_sha256`
NOTHING: Also = MappingProxyType({})


def records_of(
    result: EvaluationResult, shown: AgentResult, also: Also = NOTHING
) -> EvaluationRecords:
    """The records of one symbol's evaluation. shown: the agent whose bars are kept. also: further
    entries of `meta`, here and below."""
    decisions, clock = result.decisions, result.clock
    rows, session = _with_flat_bars(decisions)
    prices = {
        name: np.asarray(getattr(result, name), np.int64)[rows]
        for name in ("open", "high", "low", "close")
    }
    bars = BarRecords(
        row=rows,
        time=np.asarray(clock.time, np.int64)[rows],
        session=session,
        **prices,
        decision=np.flatnonzero(session[1:] == session[:-1]),
        strategy=_pass(shown.strategy),
        account=_pass(shown.account),
        trades={
            agent.name: {each.name: getattr(agent.trades, each.name) for each in fields(Trades)}
            for agent in result.agents
        },
    )
    meta = _meta(result, also) | {
        "labels": list(result.labels),
        "actions": _actions(result, shown),
        "tick_size": str(clock.tick_size),
        "decimals": clock.decimals,
        "bar_seconds": clock.bar_seconds,
        "zone": clock.zone,
        "start_balance": result.start_balance,
    }
    return _daily(result.agents, decisions.date, decisions.last, meta, shown.name, bars)


def joint_records(result: Any, also: Also = NOTHING) -> EvaluationRecords:
    """The records of an evaluation of `allocate`: the days alone. result: an
    `evaluation.joint_result.JointResult`.
    """
    return _daily(
        result.agents,
        result.decisions.date,
        result.decisions.last,
        _meta(result, also),
        result.agents[0].name,
    )


def set_records(result: SetResult, also: Also = NOTHING) -> EvaluationRecords:
    """The records of a set of symbols taken together: sums by trade date. Those of each symbol are
    its own.
    """
    each = list(result.symbols.values())

    def summed(pnl: Callable[[EvaluationResult, AgentResult], np.ndarray]) -> np.ndarray:
        return np.array(
            [
                by_date(each, [pnl(own, own.agents[number]) for own in each]) / 1000
                for number in range(len(result.agents))
            ]
        )

    return EvaluationRecords(
        tuple(agent.name for agent in result.agents),
        result.agents[0].name,
        trade_dates(each),
        summed(lambda own, agent: session_pnl(agent.strategy.equity, own.decisions.last)),
        summed(
            lambda own, agent: account_session_pnl(
                agent.account.equity, agent.account.account, own.decisions.last
            )
        ),
        _meta(result, also),
    )


def daily_net(result: Any, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(datetime64[D][D], float64[D]): trade dates, and the dollars that an agent made on each with
    the account rules off. result: of one symbol, of a set or of `allocate`. number: of the agent;
    the first one is the policy."""
    agent = result.agents[number]
    if isinstance(agent, PooledAgent):
        return trade_dates(list(result.symbols.values())), agent.pnl / 1000
    return result.decisions.date, session_pnl(agent.strategy.equity, result.decisions.last) / 1000


def _daily(
    agents: Sequence[Any],
    dates: np.ndarray,
    last: np.ndarray,
    meta: dict[str, Any],
    shown: str,
    bars: BarRecords | None = None,
) -> EvaluationRecords:
    """Records with the daily net of agents whose passes have `equity` and `account`, int[L]
    each.
    """
    strategy = [session_pnl(agent.strategy.equity, last) / 1000 for agent in agents]
    account = [
        account_session_pnl(agent.account.equity, agent.account.account, last) / 1000
        for agent in agents
    ]
    return EvaluationRecords(
        tuple(agent.name for agent in agents),
        shown,
        dates,
        np.array(strategy),
        np.array(account),
        meta,
        bars,
    )


def _meta(result: Any, also: Also) -> dict[str, Any]:
    """What any evaluation says of itself. split, agent: None where the caller named none."""
    about = result.provenance
    return {
        "settings": result.settings,
        "split": about.get("split"),
        "agent": about.get("agent"),
        "seed": about.get("trained_seed", result.settings["seed"]),
        **also,
    }


def _with_flat_bars(decisions: DecisionBars) -> tuple[np.ndarray, np.ndarray]:
    """Rows and session numbers of all decision bars, with the flat bar of each session after its
    last one.
    """
    after = decisions.last + 1
    return (
        np.insert(decisions.rows, after, decisions.rows[decisions.last] + 1),
        np.insert(decisions.session, after, decisions.session[decisions.last]),
    )


def _actions(result: EvaluationResult, shown: AgentResult) -> list[str]:
    """Names of the actions by id. A result made without them has numbers instead."""
    return list(result.actions) or [str(number) for number in range(shown.strategy.mask.shape[1])]


def _pass(record: Record) -> PassRecords:
    floor = np.asarray(record.event.floor, np.int64)
    return PassRecords(
        action=record.action,
        legal=record.legal,
        mask=np.asarray(record.mask, bool),
        quantity=record.quantity,
        stop=_level(record.stop, record.quantity),
        target=_level(record.target_level, record.quantity),
        equity=record.equity,
        high_water=record.high_water,
        floor=np.where(floor == NO_FLOOR, ABSENT, floor),
        account=record.account,
        active=record.active,
        end=record.end,
        reached=record.target,
        events=_events(record),
    )


def _level(level: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """int64[L] ticks; `ABSENT` without a position, and where the position has no such level."""
    whole = np.asarray(level, np.int64)
    return np.where((quantity == 0) | (np.abs(whole) >= NO_LEVEL), ABSENT, whole)


def _events(record: Record) -> dict[str, np.ndarray]:
    """The fills in time order. Within a bar an exit by order comes first, then an entry, then
    another exit.
    """
    event = record.event
    kinds = [
        (event.order_exit_quantity, event.order_exit_price),
        (event.entry_quantity, event.entry_price),
        (event.exit_quantity, event.exit_price),
    ]
    found = []
    for kind, (quantity, price) in enumerate(kinds):
        at = np.flatnonzero(quantity)
        reason = (
            event.exit_reason[at]
            if kind == 2
            else np.full(len(at), 0 if kind else ExitReason.ORDER)
        )
        found.append(
            np.stack([at, np.full(len(at), kind), quantity[at], price[at], reason]).astype(np.int64)
        )
    joined = np.concatenate(found, axis=1)
    joined = joined[:, np.lexsort((joined[1], joined[0]))]
    return dict(zip(("bar", "kind", "quantity", "price", "reason"), joined, strict=True))
