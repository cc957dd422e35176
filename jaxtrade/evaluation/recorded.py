"""The records of an evaluation, as `records` writes them: of one symbol, of a set, and of
`allocate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import NO_LEVEL
from jaxtrade.evaluation.record import PASSES, Record
from jaxtrade.evaluation.records import (
    ABSENT,
    EVENT_COLUMNS,
    BarRecords,
    EvaluationRecords,
    PassRecords,
)
from jaxtrade.evaluation.report import EvaluationResult, Result
from jaxtrade.evaluation.trades import AgentResult, Trades, fills

Also = Mapping[str, Any]  # entries of the records' `meta`, JSON values: `day_bars`, `policy_sha256`
NOTHING: Also = MappingProxyType({})


def records_of(
    result: EvaluationResult, shown: AgentResult, also: Also = NOTHING
) -> EvaluationRecords:
    """The records of one symbol's evaluation. shown: the agent whose bars are kept. also: further
    entries of `meta`, here and below."""
    decisions, clock = result.decisions, result.clock
    # All decision bars, with the flat bar of each session after its last one.
    after, last = decisions.last + 1, decisions.last
    rows = np.insert(decisions.rows, after, decisions.rows[last] + 1)
    session = np.insert(decisions.session, after, decisions.session[last])
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
    meta = {
        **also,
        "labels": list(result.labels),
        # A result made without names of its actions has numbers instead.
        "actions": list(result.actions) or [str(i) for i in range(shown.strategy.mask.shape[1])],
        "tick_size": str(clock.tick_size),
        "decimals": clock.decimals,
        "bar_seconds": clock.bar_seconds,
        "zone": clock.zone,
        "start_balance": result.start_balance,
    }
    return replace(day_records(result, meta), shown=shown.name, bars=bars)


def day_records(result: Result, also: Also = NOTHING) -> EvaluationRecords:
    """The records of an evaluation without bars: the days alone, as of `allocate`, and of a set of
    symbols taken together. Its split and agent are None where the caller named none.
    """
    net, account_net = (
        np.array([result.daily_pnl(agent, which) / 1000 for agent in result.agents])
        for which in PASSES
    )
    about = result.provenance
    return EvaluationRecords(
        tuple(agent.name for agent in result.agents),
        result.agents[0].name,
        result.dates,
        net,
        account_net,
        {
            "settings": result.settings,
            "split": about.get("split"),
            "agent": about.get("agent"),
            "seed": about.get("trained_seed", result.settings["seed"]),
            **also,
        },
    )


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
        events=dict(zip(EVENT_COLUMNS, fills(record.event), strict=True)),
    )


def _level(level: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """int64[L] ticks; `ABSENT` without a position, and where the position has no such level."""
    whole = np.asarray(level, np.int64)
    return np.where((quantity == 0) | (np.abs(whole) >= NO_LEVEL), ABSENT, whole)
