"""The only evaluator. It steps every decision bar of a session set in time order, with the `transition` of training.

There are two passes, and every figure says from which one it comes. ACCOUNT: the account rules are on. After a bust, a
failed daily loss or a target, entries are locked and the rest of the session is stepped flat. A new account opens at
the next session. STRATEGY: the same agent with drawdown, daily loss and target off. Return, Sharpe ratio, drawdown and
trades come from this pass.

A policy's memory is reset where an episode would start in training: with each new account, and every
`episode.sessions` sessions. The trade record that the task `advised` shows is reset there too.

Nothing of the strategy pass lasts longer than an episode, so its episodes are stepped side by side. The account pass
steps one session after the other. Both step all agents at once, and each agent has the bits that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import OFF, EnvParams
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.record import DecisionBars, Pass, Record, Steps, checked, decision_bars, without_rules
from jaxtrade.evaluation.side_by_side import Inputs, Shape, inputs_of, step_all
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Array

__all__ = ["DecisionBars", "Lane", "Pass", "Plan", "Record", "Steps", "backtest", "begin_lanes", "decision_bars",
           "plan_of", "run_lanes", "step_all", "without_rules"]


class Lane(NamedTuple):
    """One agent to evaluate.

    params: its `sessions` must be the set from which `decisions` were made. The step limit is ignored. The length of an
    episode only determines when a policy's memory is reset. key: typed key. Each bar draws from `fold_in(key, row)`, so
    both passes and repeated calls draw the same.
    """

    agent: Agent
    params: EnvParams
    decisions: DecisionBars
    key: Array


class Plan(NamedTuple):
    """Lanes in one pass, ready to run. order: the lanes' places, group by group. episodes: of each lane, the first
    session of each episode that is stepped by itself."""

    shape: Shape
    inputs: Inputs
    order: list[list[int]]
    episodes: list[np.ndarray]
    renew: list[bool]


def backtest(env: TradingEnv, agent: Agent, params: EnvParams, decisions: DecisionBars, which: Pass, key: Array,
             rewarded: bool = False, programs: Programs | None = None) -> Record:
    """Run one pass of one agent over all decision bars. Arguments and errors as `Lane` and `run_lanes`."""
    return run_lanes(env, [Lane(agent, params, decisions, key)], which, rewarded, programs)[0]


def run_lanes(env: TradingEnv, lanes: Sequence[Lane], which: Pass, rewarded: bool = False,
              programs: Programs | None = None) -> list[Record]:
    """Run one pass of every lane over all its decision bars, as one program. The leaves of a record are NumPy arrays.

    A record has the same bits whatever other lanes there are.

    Args:
        lanes: agents on one market. They may differ in everything else: session sets, account, costs, weights.
        which: "account" or "strategy".
        rewarded: also record rewards, by `params.reward_weights`.
        programs: holds the program if `begin_lanes` was called for it. Else it is compiled here.
    Raises:
        ValueError: the lanes have different markets, or there is none.
        ConfigError: equity came near the int32 limit of mills.
        RuntimeError: a decision bar was missed, or an account or a session ended with a position (a bug of this
            package, never the user's fault).
    """
    made = plan_of(env, lanes, which, rewarded)
    begun = None if programs is None else programs.begun(step_all, (made.inputs,), (made.shape,))
    found = jax.device_get(step_all(made.shape, made.inputs) if begun is None else begun.wait()(made.inputs))
    records: dict[int, Record] = {}
    for group, places in zip(found, made.order, strict=True):
        for k, place in enumerate(places):
            own = jax.tree.map(lambda x, k=k: x[:, k], group)
            cut = _in_time_order(own, lanes[place].decisions, made.episodes[place])
            records[place] = checked(cut, lanes[place].agent.name, lanes[place].decisions, made.renew[place])
    return [records[place] for place in range(len(lanes))]


def begin_lanes(programs: Programs, env: TradingEnv, lanes: Sequence[Lane], which: Pass, rewarded: bool = False
                ) -> None:
    """Begin to compile the program of `run_lanes`.

    lanes: a carry may be abstract (`jax.ShapeDtypeStruct`). The agents must be such that the configuration determines
    them, because their names stand for what they do in the key of a kept program.
    """
    made = plan_of(env, lanes, which, rewarded)
    if programs.begun(step_all, (made.inputs,), (made.shape,)) is None:
        names = ", ".join(lane.agent.name for lane in lanes)
        name = f"{which} pass of {names}, {made.shape.length} bars" + (", with rewards" if rewarded else "")
        programs.begin(name, step_all, (made.inputs,), (made.shape,), later=True)


def plan_of(env: TradingEnv, lanes: Sequence[Lane], which: Pass, rewarded: bool = False) -> Plan:
    """The program of a pass and its arguments. As `run_lanes`; carries may be abstract."""
    if not lanes:
        raise ValueError("no agent to evaluate")
    groups: dict[Any, list[int]] = {}
    for place, lane in enumerate(lanes):
        groups.setdefault(_kind(lane.agent), []).append(place)
    order = list(groups.values())
    params = [_of_pass(lane.params, which) for lane in lanes]
    renew = [_renews(each) for each in params]
    episodes = [_episodes(lane, which) for lane in lanes]
    slots = []
    for places in order:
        most = max(_episode_count(lanes[place], which) for place in places)  # filled up by copies of the last episode
        slots.append(np.stack([np.pad(each, (0, most - len(each)), mode="edge") for place in places
                               for each in [episodes[place]]]))
    flat = [place for places in order for place in places]
    length = max(_length(lane, which) for lane in lanes)
    shape, inputs = inputs_of(env, [[lanes[place].agent for place in places] for places in order],
                              [params[place] for place in flat], [lanes[place].key for place in flat],
                              [renew[place] for place in flat], slots, length, rewarded)
    return Plan(shape, inputs, order, episodes, renew)


def _kind(agent: Agent) -> Any:
    """What agents of one group have in common: functions, and structure and shapes of the carry."""
    leaves, tree = jax.tree.flatten(agent.carry)
    return agent.act, agent.forget, tree, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def _episodes(lane: Lane, which: Pass) -> np.ndarray:
    """int[E]: the sessions of the set at which a lane of the program begins."""
    if which == "account":
        return np.zeros(1, np.int64)
    return np.arange(0, len(lane.decisions.ids), int(lane.params.episode_sessions))


def _episode_count(lane: Lane, which: Pass) -> int:
    """The number of lanes of the program that step the episodes of an agent."""
    return 1 if which == "account" else -(-lane.decisions.num_sessions // int(lane.params.episode_sessions))


def _length(lane: Lane, which: Pass) -> int:
    """The number of bars that a program needs for a lane."""
    if which == "account":
        return lane.decisions.length
    sessions = min(int(lane.params.episode_sessions), lane.decisions.num_sessions)
    return sessions * lane.decisions.longest


def _of_pass(params: EnvParams, which: Pass) -> EnvParams:
    account = params.account if which == "account" else without_rules(params.account)
    return params.replace(account=account, max_steps=np.int32(0), monitor=False)


def _renews(params: EnvParams) -> bool:
    """Whether the device counts money per session. params: of a pass.

    If no rule looks back beyond the session, each session starts from 0 on device, and the host adds the sessions up in
    int64. Years of trading then fit int32.
    """
    return bool(np.asarray(params.account.drawdown) >= OFF and np.asarray(params.account.target) >= OFF)


def _in_time_order(record: Record, decisions: DecisionBars, episodes: np.ndarray) -> Record:
    """The decision bars of a record [length, lanes, ...] in time order, without what the program stepped beyond them.

    episodes: int[lanes], the session at which each lane begins. No bar depends on a later one.
    """
    lane = np.searchsorted(episodes, decisions.session, side="right") - 1
    first = np.searchsorted(decisions.session, episodes)  # decision bars before each lane
    step = np.arange(len(decisions.rows)) - first[lane]
    if len(episodes) == 1:
        return jax.tree.map(lambda x: x[:len(step), 0], record)
    return jax.tree.map(lambda x: x[step, lane], record)
