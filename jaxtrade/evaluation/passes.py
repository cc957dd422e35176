"""Both passes of an evaluation, with all sessions side by side where that can be done.

The strategy pass holds the same positions as the account pass until an account ends, unless an agent sees its account.
So the account at the start of every session can be worked out from the strategy pass (`account_starts`), and the
sessions of the account pass then need not wait for each other. What was worked out is only a claim: the end of each
session is compared with the start of the next one, bit by bit. An agent whose sessions do not join is stepped one
session after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation.backtest import Lane, begin_lanes, renews, run_lanes, run_sessions
from jaxtrade.evaluation.challenge_accounts import Challenge
from jaxtrade.evaluation.challenge_paths import session_paths
from jaxtrade.evaluation.record import Pass, Record
from jaxtrade.evaluation.stepping import Start
from jaxtrade.storage.compiling import Programs

ENOUGH = 4  # sessions from which stepping them side by side is the faster way


def run_passes(env: TradingEnv, lanes: Sequence[Lane], programs: Programs | None = None,
               begun: Callable[[str], None] | None = None) -> dict[Pass, list[Record]]:
    """The records of both passes of every lane. begun: called before each pass, with its name. Raises as `run_lanes`.
    """
    tell = begun if begun is not None else lambda _: None
    apart = _can_be_apart(lanes)
    tell("strategy pass")
    strategy = (_complete(run_sessions(env, lanes, "strategy", [_new(lane) for lane in lanes], programs)) if apart
                else run_lanes(env, lanes, "strategy", programs=programs))
    tell("account pass")
    if not apart:
        return {"account": run_lanes(env, lanes, "account", programs=programs), "strategy": strategy}
    starts = [account_starts(env, lane, record) for lane, record in zip(lanes, strategy, strict=True)]
    found = run_sessions(env, lanes, "account", starts, programs)
    again = [place for place, record in enumerate(found) if record is None]
    if again:
        for place, record in zip(again, run_lanes(env, [lanes[each] for each in again], "account"), strict=True):
            found[place] = record
    return {"account": _complete(found), "strategy": strategy}


def begin_passes(programs: Programs, env: TradingEnv, lanes: Sequence[Lane]) -> None:
    """Begin to compile the programs of `run_passes`. lanes: as for `begin_lanes`."""
    starts = [_new(lane) for lane in lanes] if _can_be_apart(lanes) else None
    for which in ("account", "strategy"):
        begin_lanes(programs, env, lanes, which, starts=starts)


def _can_be_apart(lanes: Sequence[Lane]) -> bool:
    return (max(lane.decisions.num_sessions for lane in lanes) >= ENOUGH
            and all(int(lane.params.episode_sessions) == 1 for lane in lanes))


def _new(lane: Lane) -> Start:
    """A new account at every session."""
    return Start(*(np.zeros(len(lane.decisions.ids), np.int64) for _ in Start._fields))


def _complete(records: Sequence[Record | None]) -> list[Record]:
    assert None not in records
    return [record for record in records if record is not None]


def account_starts(env: TradingEnv, lane: Lane, strategy: Record) -> Start:
    """The account at the start of each of n sessions in the account pass, leaves int64[n], from the strategy pass.

    It is right for an agent that does not see its account. Up to the next end of an account, all sessions are looked at
    together.
    """
    paths = session_paths(strategy, lane.decisions, lane.params, env.config)
    challenge, count = Challenge(paths, lane.params.account), len(lane.decisions.ids)
    starts, first, number = _new(lane), 0, 0
    while first < count:
        accounts = challenge.in_a_row(first)
        played = challenge.play(accounts, np.arange(first, count))
        ended = np.flatnonzero(played.end != EndReason.NONE)
        stop = first + int(ended[0]) + 1 if len(ended) else count
        for column, found in zip(starts, (*accounts, np.full(count - first, number)), strict=True):
            column[first:stop] = found[:stop - first]
        first, number = stop, number + 1
    return _new(lane)._replace(number=starts.number) if renews(lane.params) else starts
