"""The only evaluator.

It steps every decision bar of a session set in time order, with the `transition` of training.

There are two passes, and every metric says from which one it comes.

ACCOUNT: the account rules are on. After a bust, a failed daily loss or a target, entries are locked
and the rest of the session is stepped flat. A new account opens at the next session.

STRATEGY: the same agent with drawdown, daily loss and target off. Return, Sharpe ratio, drawdown
and trades come from this pass.

A policy's memory is reset where an episode would start in training: with each new account, and
every `episode.sessions` sessions. The trade record that the task `advised` shows is reset there too.

Nothing of the strategy pass lasts longer than an episode, so its episodes are stepped side by side.
The account pass steps one session after the other, or side by side too if it is given the account
with which each session starts (`run_passes`). Both step all agents at once, and the results of each
agent are bit-identical to those that it has alone.

On a CPU, episodes side by side are cut into as many parts as there are cores. All parts run one
program, each in a thread of its own, because XLA gains little from several cores in so narrow
a program.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import OFF, EndReason, EnvParams
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.evaluation.challenge_accounts import Accounts, Challenge, session_paths
from jaxtrade.evaluation.record import (
    DecisionBars,
    Pass,
    Record,
    check_record,
    without_rules,
)
from jaxtrade.evaluation.side_by_side import (
    WIDTH,
    AccountStart,
    BatchShape,
    Edges,
    Inputs,
    inputs_of,
    shapes_of,
    step_all,
)
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Array

# The parts of an evaluation in threads, one for each core: XLA and NumPy let go of Python's lock
# while they work.

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return the number of cores that XLA uses: NPROC, if set, or those open to this process."""
    given = os.environ.get("NPROC", "")
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return int(given) if given.isdecimal() and int(given) else usable


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call `function` on every item in threads, and return the results in the order of the items.

    Raises what the function raises for the first item that it fails for. Settings of JAX that hold
    in the caller's thread alone (`with jax.debug_nans(True)`) do not reach the threads.
    """
    every = list(items)
    if (threads := min(cores(), len(every))) <= 1:
        return [function(item) for item in every]
    with ThreadPoolExecutor(threads, thread_name_prefix="jaxtrade-evaluate") as pool:
        return list(pool.map(function, every))


class Lane(NamedTuple):
    """One agent to evaluate.

    params: its `sessions` must be the set from which `decisions` were made. The step limit is
        ignored. The length of an episode only determines when a policy's memory is reset.
    key: typed key. Each bar draws from `fold_in(key, row)`, so both passes and repeated calls draw
        the same.
    """

    agent: Agent
    params: EnvParams
    decisions: DecisionBars
    key: Array


class LanePlan(NamedTuple):
    """Lanes in one pass, ready to run.

    parts: the arguments of one program, for each part of the episodes.
    order: the lanes' places, group by group.
    episodes: of each lane, the first session of each episode that is stepped by itself.
    """

    shape: BatchShape
    parts: list[Inputs]
    order: list[list[int]]
    episodes: list[np.ndarray]
    renew: list[bool]

    def at(self, place: int) -> tuple[int, int]:
        """Return the group of a lane, and its number in the group."""
        return next(
            (group, places.index(place))
            for group, places in enumerate(self.order)
            if place in places
        )


def backtest(
    env: TradingEnv,
    agent: Agent,
    params: EnvParams,
    decisions: DecisionBars,
    which: Pass,
    key: Array,
) -> Record:
    """Run one pass of one agent over all decision bars.

    Arguments and errors as `Lane` and `run_lanes`.
    """
    return run_lanes(env, [Lane(agent, params, decisions, key)], which)[0]


def run_lanes(
    env: TradingEnv,
    lanes: Sequence[Lane],
    which: Pass,
    rewarded: bool = False,
    programs: Programs | None = None,
) -> list[Record]:
    """Run one pass of every lane over all its decision bars, as one program.

    The leaves of a record are NumPy arrays. A record is bit-identical whatever other lanes
    there are.

    Args:
        lanes: agents on one market. They may differ in everything else: session sets, account,
            costs, weights.
        which: "account" or "strategy".
        rewarded: also record rewards, by `params.reward_weights`.
        programs: holds the program if `begin_lanes` was called for it. Else it is compiled here.

    Raises:
        ValueError: the lanes have different markets, or there is none.
        ConfigError: equity came near the int32 limit of mills.
        RuntimeError: a decision bar was missed, or an account or a session ended with a position (a
            bug of this package, never the user's fault).
    """
    made = plan_of(env, lanes, which, rewarded)
    found, _ = _run(made, programs)
    return in_threads(lambda place: _record(made, lanes, found, place), range(len(lanes)))


def run_sessions(
    env: TradingEnv,
    lanes: Sequence[Lane],
    which: Pass,
    starts: Sequence[AccountStart],
    rewarded: bool = False,
    programs: Programs | None = None,
) -> list[Record | None]:
    """Run one pass with all sessions of every lane side by side, each from a given account.

    The accounts are claims. The end of every session is compared with the start of the next one,
    and where they differ the lane has no record: None. A record is bit-identical to that
    of `run_lanes`.

    Args:
        lanes: their episodes are single sessions, so that no policy remembers the session before.
        starts: of each lane, leaves int[n], the account at the start of each of its n
            sessions (`AccountStart`).
    Raises as `run_lanes`, and ValueError if episodes have several sessions.
    """
    made = plan_of(env, lanes, which, rewarded, starts)
    found, edges = _run(made, programs)

    def record(place: int) -> Record | None:
        group, k = made.at(place)
        own = jax.tree.map(
            lambda *x: np.concatenate([part[k] for part in x]), *(each[group] for each in edges)
        )
        count = len(made.episodes[place])
        follows = all(
            np.array_equal(end[: count - 1], start[1:count])
            for end, start in zip(
                jax.tree.leaves(own.closing), jax.tree.leaves(own.opening), strict=True
            )
        )
        return _record(made, lanes, found, place) if follows else None

    return in_threads(record, range(len(lanes)))


_RUN: set[Hashable] = set()  # programs of this process that have been compiled by a call


def _run(made: LanePlan, programs: Programs | None) -> tuple[list[list[Record]], list[list[Edges]]]:
    """Run every part of a plan.

    Returns, of each part, for each group the record, leaves [length, count, lanes, ...], and the
    edges, if there are any.
    """
    begun = programs and programs.find(step_all, (made.parts[0],), (made.shape,))
    program = begun.wait() if begun else functools.partial(step_all, made.shape)

    def run(inputs: Inputs) -> tuple[list[Record], list[Edges] | None]:
        return jax.device_get(program(inputs))

    key, alone = (made.shape, shapes_of(made.parts[0])), 0
    if not begun and key not in _RUN:
        alone = 1  # the first part compiles the program: calls at the same time would all do so
    found = [run(part) for part in made.parts[:alone]] + in_threads(run, made.parts[alone:])
    _RUN.add(key)
    return [records for records, _ in found], [edges for _, edges in found if edges]


def _record(
    made: LanePlan, lanes: Sequence[Lane], found: Sequence[Sequence[Record]], place: int
) -> Record:
    group, k = made.at(place)
    decisions = lanes[place].decisions
    record = _in_time_order([part[group] for part in found], k, decisions, made.episodes[place])
    return check_record(record, lanes[place].agent.name, decisions, made.renew[place])


def begin_lanes(
    programs: Programs,
    env: TradingEnv,
    lanes: Sequence[Lane],
    which: Pass,
    rewarded: bool = False,
) -> None:
    """Begin to compile the program of a pass, as `run_passes` and `run_account` run it.

    With sessions side by side, one program serves both passes.

    lanes: a carry may be abstract (`jax.ShapeDtypeStruct`).
    """
    made = plan_of(env, lanes, which, rewarded, _starts(lanes))
    if not programs.find(step_all, (made.parts[0],), (made.shape,)):
        names = ", ".join(lane.agent.name for lane in lanes)
        name = f"{which} pass of {names}, {made.shape.length} bars" + (
            ", with rewards" if rewarded else ""
        )
        programs.begin(name, step_all, (made.parts[0],), (made.shape,), later=True)


def plan_of(
    env: TradingEnv,
    lanes: Sequence[Lane],
    which: Pass,
    rewarded: bool = False,
    starts: Sequence[AccountStart] | None = None,
) -> LanePlan:
    """Plan the program of a pass and its arguments.

    As `run_lanes` and `run_sessions`; carries may be abstract.
    """
    if not lanes:
        raise ValueError("no agent to evaluate")
    if starts and any(int(lane.params.episode_sessions) != 1 for lane in lanes):
        raise ValueError("sessions can start with given accounts only if episode.sessions is 1")
    groups: dict[Any, list[int]] = {}
    for place, lane in enumerate(lanes):
        groups.setdefault(_kind(lane.agent), []).append(place)
    order = list(groups.values())
    params = []
    for lane in lanes:
        account = lane.params.account
        rules = account if which == "account" else without_rules(account)
        params.append(lane.params.replace(account=rules, max_steps=np.int32(0), monitor=False))
    renew = [counts_money_per_session(each) for each in params]
    apart = which == "strategy" or bool(starts)
    episodes, counts, lengths = zip(*(_find_extent(lane, apart) for lane in lanes), strict=True)
    most = [max(counts[place] for place in places) for places in order]
    parts = _part_count(most)

    def fill(columns: Sequence[Any]) -> list[list[np.ndarray]]:
        """Fill each part and group up by copies of the last episode (int32[count, lanes])."""
        whole = [
            np.stack(
                [
                    np.pad(
                        columns[place],
                        (0, parts * -(-count // parts) - len(columns[place])),
                        mode="edge",
                    )
                    for place in places
                ]
            ).astype(np.int32)
            for places, count in zip(order, most, strict=True)
        ]
        return [
            list(each)
            for each in zip(*(np.split(slots, parts, axis=1) for slots in whole), strict=True)
        ]

    begins: list[Any] = [None] * parts
    if starts:
        columns = zip(*(fill(column) for column in zip(*starts, strict=True)), strict=True)
        begins = [[AccountStart(*each) for each in zip(*part, strict=True)] for part in columns]
    flat = [place for places in order for place in places]
    slots = fill(episodes)
    shape, inputs = inputs_of(
        env,
        [[lanes[place].agent for place in places] for places in order],
        [params[place] for place in flat],
        [lanes[place].key for place in flat],
        [renew[place] for place in flat],
        slots[0],
        max(lengths),
        rewarded,
        begins[0],
    )
    others = [
        inputs._replace(slots=tuple(part), starts=start and tuple(start))
        for part, start in zip(slots[1:], begins[1:], strict=True)
    ]
    return LanePlan(shape, [inputs, *others], order, list(episodes), renew)


def _part_count(episodes: Sequence[int]) -> int:
    """Return the number of parts into which episodes side by side are cut.

    A part is at least one block of a policy (`side_by_side`). An accelerator steps all episodes
    at once.

    episodes: of each group.
    """
    if jax.default_backend() != "cpu":
        return 1
    return max(1, min(cores(), max(episodes) // WIDTH))


def _kind(agent: Agent) -> Any:
    """Return what agents of one group share: functions, and structure and shapes of the carry."""
    return agent.act, agent.forget, shapes_of(agent.carry)


def _find_extent(lane: Lane, apart: bool) -> tuple[np.ndarray, int, int]:
    """Return where lanes begin, how many step an agent's episodes, and how many bars they need.

    Lanes begin at sessions of the set (int[E]). apart: whether episodes are stepped side by side.
    """
    decisions, each = lane.decisions, int(lane.params.episode_sessions)
    if not apart:
        return np.zeros(1, np.int64), 1, decisions.length
    count = -(-decisions.num_sessions // each)
    sessions = min(each, decisions.num_sessions)
    return np.arange(0, len(decisions.ids), each), count, sessions * decisions.longest


def counts_money_per_session(params: EnvParams) -> bool:
    """Return whether the device counts money per session.

    If no rule looks back beyond the session, each session starts from 0 on device, and the host
    adds the sessions up in int64. Years of trading then fit int32.

    params: of a pass.
    """
    return bool(
        np.asarray(params.account.drawdown) >= OFF and np.asarray(params.account.target) >= OFF
    )


def _in_time_order(
    parts: Sequence[Record], k: int, decisions: DecisionBars, episodes: np.ndarray
) -> Record:
    """Put the decision bars of an agent in time order, without those stepped beyond them.

    No bar depends on a later one.

    Args:
        parts: leaves [length, count, lanes, ...].
        k: number of the agent in its group.
        episodes: int[E], the session at which each episode begins.
    """
    if len(episodes) == 1:
        return jax.tree.map(lambda x: x[: len(decisions.rows), k, 0], parts[0])
    _, count, lanes = parts[0].row.shape
    episode = np.searchsorted(episodes, decisions.session, side="right") - 1
    first = np.searchsorted(decisions.session, episodes)  # decision bars before each episode
    step = np.arange(len(decisions.rows)) - first[episode]
    place = (step * count + k) * lanes + episode % lanes
    ends = [*first[lanes::lanes], len(place)]  # of the bars of each part
    cuts = list(pairwise([0, *ends]))

    def sort(*leaves: np.ndarray) -> np.ndarray:
        found = np.empty((len(place), *leaves[0].shape[3:]), leaves[0].dtype)
        for leaf, (a, b) in zip(leaves, cuts, strict=False):  # the last parts may hold copies only
            np.take(
                leaf.reshape(-1, *leaf.shape[3:]), place[a:b], axis=0, out=found[a:b], mode="clip"
            )
        return found

    return jax.tree.map(sort, *parts)


# Both passes of an evaluation, with all sessions side by side where that can be done.
#
# The strategy pass holds the same positions as the account pass until an account ends, unless an
# agent sees its account. So the account at the start of every session can be worked out from the
# strategy pass (`account_starts`), and the sessions of the account pass then need not wait for
# each other. What was worked out is only a claim: the end of each session is compared with the
# start of the next one, bit by bit. An agent whose sessions do not join is stepped one session
# after the other.

AHEAD = 16  # sessions over which accounts are followed that might open at any session
ENOUGH = 4  # sessions from which stepping them side by side is the faster way


def run_passes(
    env: TradingEnv,
    lanes: Sequence[Lane],
    rewarded: bool = False,
    programs: Programs | None = None,
    begun: Callable[[str], None] = lambda which: None,
) -> dict[Pass, list[Record]]:
    """Record both passes of every lane.

    begun: called before each pass, with its name. Else as `run_lanes`.
    """
    begun("strategy pass")
    if not (new := _starts(lanes)):
        strategy = run_lanes(env, lanes, "strategy", rewarded, programs)
        begun("account pass")
        return {
            "account": run_lanes(env, lanes, "account", rewarded, programs),
            "strategy": strategy,
        }
    strategy = _complete(run_sessions(env, lanes, "strategy", new, rewarded, programs))
    begun("account pass")
    starts = in_threads(lambda of: account_starts(env, *of), zip(lanes, strategy, strict=True))
    account = run_sessions(env, lanes, "account", starts, rewarded, programs)
    again = [place for place, record in enumerate(account) if not record]
    if again:
        in_turn = run_lanes(env, [lanes[place] for place in again], "account", rewarded)
        for place, record in zip(again, in_turn, strict=True):
            account[place] = record
    return {"account": _complete(account), "strategy": strategy}


def run_account(
    env: TradingEnv, lanes: Sequence[Lane], rewarded: bool, programs: Programs | None
) -> list[Record]:
    """Run the account pass alone.

    The strategy pass runs too where sessions can then be side by side, which is faster.
    """
    if not _starts(lanes):
        return run_lanes(env, lanes, "account", rewarded, programs)
    return run_passes(env, lanes, rewarded, programs)["account"]


def _starts(lanes: Sequence[Lane]) -> list[AccountStart] | None:
    """Open new accounts at all sessions of each lane; None where these cannot be side by side."""
    apart = max(lane.decisions.num_sessions for lane in lanes) >= ENOUGH and all(
        int(lane.params.episode_sessions) == 1 for lane in lanes
    )
    return [_make_accounts(lane) for lane in lanes] if apart else None


def _make_accounts(lane: Lane) -> AccountStart:
    """Open a new account at every session."""
    return AccountStart(*np.zeros((4, len(lane.decisions.ids)), np.int64))


def _complete(records: Sequence[Record | None]) -> list[Record]:
    assert None not in records
    return [record for record in records if record]


def account_starts(env: TradingEnv, lane: Lane, strategy: Record) -> AccountStart:
    """Find the account at the start of each session of the account pass, from the strategy pass.

    Leaves int64[n]. It is right for an agent that does not see its account. Accounts that end soon
    are found at once for all sessions at which one might open. Any other is followed over more and
    more sessions, until a rule ends it.
    """
    paths = session_paths(strategy, lane.decisions, lane.params, env.config)
    challenge, count = Challenge(paths, lane.params.account), len(lane.decisions.ids)
    soon, lasts = _play_first_sessions(challenge, count)
    starts, first, number = _make_accounts(lane), 0, 0
    while first < count:
        if lasts[first]:
            stop = first + int(lasts[first])
            accounts = Accounts(*(column[first] for column in soon))
        else:
            accounts, stop = _follow_account(challenge, first, count)
        for column, found in zip(starts, accounts, strict=False):
            column[first:stop] = found[: stop - first]
        starts.number[first:stop] = number
        first, number = stop, number + 1
    return (
        _make_accounts(lane)._replace(number=starts.number)
        if counts_money_per_session(lane.params)
        else starts
    )


def _find_ended(challenge: Challenge, accounts: Accounts, sessions: np.ndarray) -> np.ndarray:
    """Return whether a rule ends the account in its session (bool[...]).

    sessions: int64[...], as the leaves of the accounts.
    """
    flat = Accounts(*(column.reshape(-1) for column in accounts))
    return challenge.play(flat, sessions.reshape(-1)).end.reshape(sessions.shape) != EndReason.NONE


def _play_first_sessions(challenge: Challenge, count: int) -> tuple[Accounts, np.ndarray]:
    """Play the account that opens at each of n sessions over its first sessions.

    Returns the accounts at the start of these sessions, leaves int64[n, AHEAD], and how many
    sessions each lasts, int64[n]; 0 if it goes on.
    """
    sessions = np.arange(count)[:, None] + np.arange(AHEAD)
    inside = np.minimum(sessions, count - 1)
    accounts = challenge.in_a_row(inside)
    ended = _find_ended(challenge, accounts, inside) & (sessions < count)
    return accounts, np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, 0)


def _follow_account(challenge: Challenge, first: int, count: int) -> tuple[Accounts, int]:
    """Follow the account that opens at a session to its end.

    Returns it at the start of its sessions, and the session after its last one.
    """
    ahead = 4 * AHEAD
    while True:
        sessions = np.arange(first, min(first + ahead, count))
        accounts = challenge.in_a_row(sessions)
        ended = np.flatnonzero(_find_ended(challenge, accounts, sessions))
        if len(ended):
            return accounts, first + int(ended[0]) + 1
        if sessions[-1] == count - 1:
            return accounts, count
        ahead *= 4
