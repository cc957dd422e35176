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

PASSES: tuple[Pass, ...] = ("strategy", "account")
AHEAD = 16  # sessions over which a new account is followed at first
ENOUGH = 4  # sessions from which stepping them side by side is the faster way


def run_passes(env: TradingEnv, lanes: Sequence[Lane], rewarded: bool = False, programs: Programs | None = None,
               begun: Callable[[str], None] | None = None) -> dict[Pass, list[Record]]:
    """The records of both passes of every lane. begun: called before each pass, with its name. Else as `run_lanes`."""
    tell = begun if begun is not None else lambda _: None
    tell("strategy pass")
    if not _can_be_apart(lanes):
        strategy = run_lanes(env, lanes, "strategy", rewarded, programs)
        tell("account pass")
        return {"account": run_lanes(env, lanes, "account", rewarded, programs), "strategy": strategy}
    strategy = _complete(run_sessions(env, lanes, "strategy", [_new(lane) for lane in lanes], rewarded, programs))
    tell("account pass")
    starts = [account_starts(env, lane, record) for lane, record in zip(lanes, strategy, strict=True)]
    account = run_sessions(env, lanes, "account", starts, rewarded, programs)
    again = [place for place, record in enumerate(account) if record is None]
    if again:
        in_turn = run_lanes(env, [lanes[place] for place in again], "account", rewarded)
        for place, record in zip(again, in_turn, strict=True):
            account[place] = record
    return {"account": _complete(account), "strategy": strategy}


def run_account(env: TradingEnv, lanes: Sequence[Lane], rewarded: bool = False, programs: Programs | None = None
                ) -> list[Record]:
    """The account pass alone. The strategy pass runs too where sessions can then be side by side, which is faster."""
    if _can_be_apart(lanes):
        return run_passes(env, lanes, rewarded, programs)["account"]
    return run_lanes(env, lanes, "account", rewarded, programs)


def begin_passes(programs: Programs, env: TradingEnv, lanes: Sequence[Lane]) -> None:
    """Begin to compile the programs of `run_passes`. lanes: as for `begin_lanes`."""
    starts = [_new(lane) for lane in lanes] if _can_be_apart(lanes) else None
    for which in PASSES:
        begin_lanes(programs, env, lanes, which, starts=starts)


def begin_account(programs: Programs, env: TradingEnv, lanes: Sequence[Lane], rewarded: bool = False) -> None:
    """Begin to compile the program of `run_account`: with sessions side by side, one for both passes."""
    starts = [_new(lane) for lane in lanes] if _can_be_apart(lanes) else None
    begin_lanes(programs, env, lanes, "account", rewarded, starts)


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

    It is right for an agent that does not see its account. An account is followed over more and more sessions at once,
    until a rule ends it.
    """
    paths = session_paths(strategy, lane.decisions, lane.params, env.config)
    challenge, count = Challenge(paths, lane.params.account), len(lane.decisions.ids)
    starts, first, number, ahead = _new(lane), 0, 0, AHEAD
    while first < count:
        stop = min(first + ahead, count)
        accounts = challenge.in_a_row(first, stop)
        ended = np.flatnonzero(challenge.play(accounts, np.arange(first, stop)).end != EndReason.NONE)
        if not len(ended) and stop < count:
            ahead *= 4
            continue
        stop = first + int(ended[0]) + 1 if len(ended) else count
        for column, found in zip(starts, (*accounts, np.full(stop - first, number)), strict=True):
            column[first:stop] = found[:stop - first]
        first, number, ahead = stop, number + 1, AHEAD
    return _new(lane)._replace(number=starts.number) if renews(lane.params) else starts
