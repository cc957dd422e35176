"""Both passes of an evaluation, with all sessions side by side where that can be done.

The strategy pass holds the same positions as the account pass until an account ends, unless an
agent sees its account. So the account at the start of every session can be worked out from the
strategy pass (`account_starts`), and the sessions of the account pass then need not wait for each
other. What was worked out is only a claim: the end of each session is compared with the start of
the next one, bit by bit. An agent whose sessions do not join is stepped one session after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason

from jaxtrade.evaluation.backtest import Lane, begin_lanes, in_threads, renews, run_lanes, run_sessions
from jaxtrade.evaluation.challenge_accounts import Accounts, Challenge, session_paths
from jaxtrade.evaluation.record import Pass, Record
from jaxtrade.evaluation.side_by_side import Start
from jaxtrade.storage.compiling import Programs

PASSES: tuple[Pass, ...] = ("strategy", "account")
AHEAD = 16  # sessions over which accounts are followed that might open at any session
ENOUGH = 4  # sessions from which stepping them side by side is the faster way


def run_passes(
    env: TradingEnv,
    lanes: Sequence[Lane],
    rewarded: bool = False,
    programs: Programs | None = None,
    begun: Callable[[str], None] | None = None,
) -> dict[Pass, list[Record]]:
    """The records of both passes of every lane. begun: called before each pass, with its name. Else
    as `run_lanes`.
    """
    tell = begun if begun is not None else lambda _: None
    tell("strategy pass")
    if (new := _starts(lanes)) is None:
        strategy = run_lanes(env, lanes, "strategy", rewarded, programs)
        tell("account pass")
        return {
            "account": run_lanes(env, lanes, "account", rewarded, programs),
            "strategy": strategy,
        }
    strategy = _complete(run_sessions(env, lanes, "strategy", new, rewarded, programs))
    tell("account pass")
    starts = in_threads(
        lambda of: account_starts(env, *of), zip(lanes, strategy, strict=True)
    )
    account = run_sessions(env, lanes, "account", starts, rewarded, programs)
    again = [place for place, record in enumerate(account) if record is None]
    if again:
        in_turn = run_lanes(env, [lanes[place] for place in again], "account", rewarded)
        for place, record in zip(again, in_turn, strict=True):
            account[place] = record
    return {"account": _complete(account), "strategy": strategy}


def run_account(
    env: TradingEnv, lanes: Sequence[Lane], rewarded: bool = False, programs: Programs | None = None
) -> list[Record]:
    """The account pass alone. The strategy pass runs too where sessions can then be side by side,
    which is faster.
    """
    if _starts(lanes) is None:
        return run_lanes(env, lanes, "account", rewarded, programs)
    return run_passes(env, lanes, rewarded, programs)["account"]


def begin_passes(programs: Programs, env: TradingEnv, lanes: Sequence[Lane]) -> None:
    """Begin to compile the programs of `run_passes`. lanes: as for `begin_lanes`."""
    for which in PASSES:
        begin_lanes(programs, env, lanes, which, starts=_starts(lanes))


def begin_account(
    programs: Programs, env: TradingEnv, lanes: Sequence[Lane], rewarded: bool = False
) -> None:
    """Begin to compile the program of `run_account`: with sessions side by side, one for both
    passes.
    """
    begin_lanes(programs, env, lanes, "account", rewarded, _starts(lanes))


def _starts(lanes: Sequence[Lane]) -> list[Start] | None:
    """New accounts at all sessions of each lane; None where these cannot be side by side."""
    apart = max(lane.decisions.num_sessions for lane in lanes) >= ENOUGH and all(
        int(lane.params.episode_sessions) == 1 for lane in lanes
    )
    return [_new(lane) for lane in lanes] if apart else None


def _new(lane: Lane) -> Start:
    """A new account at every session."""
    return Start(*(np.zeros(len(lane.decisions.ids), np.int64) for _ in Start._fields))


def _complete(records: Sequence[Record | None]) -> list[Record]:
    assert None not in records
    return [record for record in records if record is not None]


def account_starts(env: TradingEnv, lane: Lane, strategy: Record) -> Start:
    """The account at the start of each of n sessions in the account pass, leaves int64[n], from the
    strategy pass.

    It is right for an agent that does not see its account. Accounts that end soon are found at once
    for all sessions at which one might open. Any other is followed over more and more sessions,
    until a rule ends it.
    """
    paths = session_paths(strategy, lane.decisions, lane.params, env.config)
    challenge, count = Challenge(paths, lane.params.account), len(lane.decisions.ids)
    soon, lasts = _soon(challenge, count)
    starts, first, number = _new(lane), 0, 0
    while first < count:
        if lasts[first]:
            stop = first + int(lasts[first])
            accounts = Accounts(*(column[first] for column in soon))
        else:
            accounts, stop = _followed(challenge, first, count)
        for column, found in zip(starts, accounts, strict=False):
            column[first:stop] = found[: stop - first]
        starts.number[first:stop] = number
        first, number = stop, number + 1
    return _new(lane)._replace(number=starts.number) if renews(lane.params) else starts


def _ended(challenge: Challenge, accounts: Accounts, sessions: np.ndarray) -> np.ndarray:
    """bool[...]: whether a rule ends the account in its session. sessions: int64[...], as the
    leaves of the accounts.
    """
    flat = Accounts(*(column.reshape(-1) for column in accounts))
    return challenge.play(flat, sessions.reshape(-1)).end.reshape(sessions.shape) != EndReason.NONE


def _soon(challenge: Challenge, count: int) -> tuple[Accounts, np.ndarray]:
    """For each of n sessions the account that opens there: at the start of its first sessions,
    leaves int64[n, AHEAD], and how many sessions it lasts, int64[n]; 0 if it goes on."""
    sessions = np.arange(count)[:, None] + np.arange(AHEAD)
    inside = np.minimum(sessions, count - 1)
    accounts = challenge.in_a_row(inside)
    ended = _ended(challenge, accounts, inside) & (sessions < count)
    return accounts, np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, 0)


def _followed(challenge: Challenge, first: int, count: int) -> tuple[Accounts, int]:
    """The account that opens at a session, at the start of its sessions, and the session after its
    last one.
    """
    ahead = 4 * AHEAD
    while True:
        sessions = np.arange(first, min(first + ahead, count))
        accounts = challenge.in_a_row(sessions)
        ended = np.flatnonzero(_ended(challenge, accounts, sessions))
        if len(ended):
            return accounts, first + int(ended[0]) + 1
        if sessions[-1] == count - 1:
            return accounts, count
        ahead *= 4
