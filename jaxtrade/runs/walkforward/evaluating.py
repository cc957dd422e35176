"""The policies of a walk-forward on the days that they were not trained on, the baselines on the same days, and the
policies on training days beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxtrade.data.splits import sessions_of
from jaxtrade.data.walks import Fold
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.agents import Agent, greedy
from jaxtrade.evaluation.backtest import DecisionBars, Pass, Record, backtest, decision_bars
from jaxtrade.evaluation.evaluate import agent_key, standard_agents
from jaxtrade.evaluation.walk_days import WalkDays
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import several
from jaxtrade.types import Array, PyTree

MILLS = 1000  # of a dollar


class Lane(NamedTuple):
    """One agent on one set of sessions, in its own account. params: of the environment, on these sessions."""

    agent: Agent
    params: EnvParams
    decisions: DecisionBars
    key: Array


def run_lanes(env: TradingEnv, lanes: Sequence[Lane], which: Pass, rewarded: bool = False,
              programs: Programs | None = None) -> list[Record]:
    """`backtest` of every lane, one after the other, in one compiled program for agents of one kind."""
    return [backtest(env, lane.agent, lane.params, lane.decisions, which, lane.key, rewarded, programs)
            for lane in lanes]


def in_sample_ids(fold: Fold) -> np.ndarray:
    """The training sessions on which a fold's policies are shown in sample: the newest ones, as many as its test has.

    They are the nearest in time to the test of a forward fold, and as many days make the two figures equally noisy.
    """
    return fold.train[-len(fold.test):]


def evaluate_walk(setup: Setup, policies: Sequence[PyTree], programs: Programs | None = None,
                  screen: Screen | None = None) -> WalkDays:
    """The daily profit of all policies and of the baselines.

    setup: of a walk-forward. policies: of its agents, in order. Raises ConfigError as `backtest` does.
    """
    return _Evaluation(setup, programs, Screen() if screen is None else screen).days(policies)


class _Evaluation:
    """What the evaluations of all folds share."""

    def __init__(self, setup: Setup, programs: Programs | None, screen: Screen) -> None:
        self.setup, self.programs, self.screen = setup, programs, screen
        market, config = setup.single, setup.config
        self.params = jax.device_put(setup.params)
        self.baselines = standard_agents(setup.env, market, config)
        self.key = jax.random.key(config.seed)
        sets = [ids for fold in setup.folds for ids in (fold.test, in_sample_ids(fold))]
        self.steps = max(len(decision_bars(market.data, sessions_of(market, ids)).rows) for ids in sets)

    def days(self, policies: Sequence[PyTree]) -> WalkDays:
        setup, seeds = self.setup, self.setup.config.walk.seeds
        self.screen.phase("evaluating", f"{several(len(setup.folds), 'fold')} x {several(seeds, 'seed')}",
                          3 * len(setup.folds))
        found = [self._fold(number, fold, policies[number * seeds:(number + 1) * seeds])
                 for number, fold in enumerate(setup.folds)]
        dates, net, account, rules, in_sample = zip(*found, strict=True)
        counts = [len(each) for each in dates]
        return WalkDays(
            date=np.concatenate(dates), fold=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            net=np.concatenate(net, axis=1), account_net=np.concatenate(account, axis=1),
            baselines=np.array([agent.name for agent in self.baselines]), baseline_net=np.concatenate(rules, axis=1),
            in_sample_net=np.stack([each.mean(axis=1) for each in in_sample], axis=1),
            seeds=np.arange(setup.config.seed, setup.config.seed + seeds, dtype=np.int64))

    def _fold(self, number: int, fold: Fold, policies: Sequence[PyTree]) -> tuple[np.ndarray, ...]:
        """(dates, net, account_net, baseline_net on the test sessions, net on training sessions) of one fold."""
        agents = [greedy(self.setup.algorithm, policy, self.setup.env) for policy in policies]
        strategy, decisions = self._net(f"fold {number}, out of sample", fold.test, [*agents, *self.baselines],
                                        "strategy")
        account, _ = self._net(f"fold {number}, under the account's rules", fold.test, agents, "account")
        in_sample, _ = self._net(f"fold {number}, in sample", in_sample_ids(fold), agents, "strategy")
        dates = decisions.date.astype("datetime64[D]").astype(np.int64)
        return dates, strategy[:len(agents)], account, strategy[len(agents):], in_sample

    def _net(self, what: str, ids: np.ndarray, agents: Sequence[Agent], which: Pass
             ) -> tuple[np.ndarray, DecisionBars]:
        """Dollars of each agent on each session, float64[agents, sessions]."""
        self.screen.step(what)
        market = self.setup.single
        sessions = sessions_of(market, ids)
        decisions = decision_bars(market.data, sessions, self.steps)
        params = self.params.replace(sessions=sessions)
        lanes = [Lane(agent, params, decisions, agent_key(self.key, agent.name)) for agent in agents]
        records = run_lanes(self.setup.env, lanes, which, programs=self.programs)
        return np.stack([session_net(record, decisions, which) for record in records]), decisions


def session_net(record: Record, decisions: DecisionBars, which: Pass) -> np.ndarray:
    """float64[n]: dollars of each session. In the account pass every account starts from 0."""
    last = decisions.last
    pnl = metrics.session_pnl(record.equity, last) if which == "strategy" else metrics.account_session_pnl(
        record.equity, record.account, last)
    return pnl / MILLS
