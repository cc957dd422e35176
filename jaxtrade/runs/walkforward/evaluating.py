"""The policies of a walk-forward on the days that they were not trained on, the baselines on the
same days, and the policies on training days beside them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxtrade.data.splits import sessions_of
from jaxtrade.data.walks import Fold
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.backtest import Lane, run_lanes
from jaxtrade.evaluation.baselines import Agent, greedy
from jaxtrade.evaluation.evaluate import agent_key, standard_agents
from jaxtrade.evaluation.openings import day_bars
from jaxtrade.evaluation.passes import run_passes
from jaxtrade.evaluation.record import DecisionBars, Pass, Record, decision_bars
from jaxtrade.evaluation.walk_days import OutOfSampleDays, WalkDays
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import several
from jaxtrade.types import PyTree

MILLS = 1000  # of a dollar
OUT_OF_SAMPLE, UNDER_RULES = "policies, out of sample", "policies, under the account's rules"


def in_sample_ids(fold: Fold) -> np.ndarray:
    """The training sessions on which a fold's policies are shown in sample: the newest ones, as
    many as its test has.

    They are the nearest in time to the test of a forward fold, and as many days make the two
    figures equally noisy.
    """
    return fold.train[-len(fold.test) :]


def evaluate_walk(
    setup: Setup,
    policies: Sequence[PyTree],
    programs: Programs | None = None,
    screen: Screen | None = None,
) -> WalkDays:
    """The daily profit of all policies and of the baselines, and of the policies under the
    account's rules and in sample.

    setup: of a walk-forward. policies: of its agents, in order. Raises ConfigError as `backtest`
        does.
    """
    shown, folds = Screen() if screen is None else screen, setup.folds
    shown.phase(
        "evaluating",
        f"{several(len(folds), 'fold')} x {several(setup.config.walk.seeds, 'seed')}",
        4,
    )
    evaluation = _Evaluation(setup, policies, programs, shown)
    tested, account_net = evaluation.both_passes()
    in_sample = evaluation.in_sample()
    return WalkDays(**vars(tested), account_net=account_net, in_sample_net=in_sample)


def evaluate_out_of_sample(
    setup: Setup, policies: Sequence[PyTree], programs: Programs | None = None
) -> OutOfSampleDays:
    """The part of `evaluate_walk` that a null market is compared by. Arguments and errors as
    there.
    """
    return _Evaluation(setup, policies, programs, Screen()).out_of_sample()


class _Evaluation:
    """What the passes over all folds share. Each pass is one program for all policies."""

    def __init__(
        self, setup: Setup, policies: Sequence[PyTree], programs: Programs | None, screen: Screen
    ) -> None:
        self.setup, self.programs, self.screen = setup, programs, screen
        self.params = jax.device_put(setup.params)
        self.baselines = standard_agents(setup.env, setup.single, setup.config)
        self.tests, seeds = [fold.test for fold in setup.folds], setup.config.walk.seeds
        agents = [greedy(setup.algorithm, policy, setup.env) for policy in policies]
        self.by_fold = [
            agents[number * seeds : (number + 1) * seeds] for number in range(len(setup.folds))
        ]

    def out_of_sample(self) -> OutOfSampleDays:
        """Account rules off."""
        return self._days(self._strategy_net(OUT_OF_SAMPLE, self.tests, self.by_fold))

    def both_passes(self) -> tuple[OutOfSampleDays, np.ndarray]:
        """(account rules off, float64[S, D] under the account's rules). Sessions of the account
        pass are stepped side by side where that can be done, from accounts that follow from the
        strategy pass (`evaluation.passes`)."""
        lanes, names = self._lanes(self.tests, self.by_fold), iter((OUT_OF_SAMPLE, UNDER_RULES))
        records = run_passes(
            self.setup.env, lanes, False, self.programs, lambda _: self.screen.step(next(names))
        )
        net: dict[Pass, list[np.ndarray]] = {
            which: nets_of(found, lanes, self.by_fold, which) for which, found in records.items()
        }
        return self._days(net["strategy"]), np.concatenate(net["account"], axis=1)

    def in_sample(self) -> np.ndarray:
        """float64[S, F]: mean dollars per day on training sessions of each fold, account rules
        off.
        """
        sets = [in_sample_ids(fold) for fold in self.setup.folds]
        net = self._strategy_net("policies, in sample", sets, self.by_fold)
        return np.stack([each.mean(axis=1) for each in net], axis=1)

    def _days(self, net: Sequence[np.ndarray]) -> OutOfSampleDays:
        setup, tests = self.setup, self.tests
        dates, place = np.unique(
            setup.single.trade_dates[np.concatenate(tests)], return_inverse=True
        )
        [bars] = day_bars(setup.single, dates.astype(str).tolist()).values()
        counts = [len(each) for each in tests]
        return OutOfSampleDays(
            date=dates[place].astype("datetime64[D]").astype(np.int64),
            fold=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            day_bars=np.array(bars)[place],
            net=np.concatenate(net, axis=1),
            baseline_net=self._baseline_net(),
            baselines=np.array([agent.name for agent in self.baselines]),
            seeds=np.arange(
                setup.config.seed, setup.config.seed + setup.config.walk.seeds, dtype=np.int64
            ),
        )

    def _baseline_net(self) -> np.ndarray:
        """Dollars of each baseline on the test sessions of all folds, float64[baselines, sessions].
        What a session makes does not depend on the others, so one that several folds test is
        stepped once."""
        tested = np.concatenate(self.tests)
        every = np.unique(tested)
        [net] = self._strategy_net("baselines", [every], [self.baselines])
        return net[:, np.searchsorted(every, tested)]

    def _strategy_net(
        self, what: str, sets: Sequence[np.ndarray], agents: Sequence[Sequence[Agent]]
    ) -> list[np.ndarray]:
        """As `nets_of`, account rules off. what: is told. sets: the sessions of each fold. agents:
        of each fold.
        """
        self.screen.step(what)
        lanes = self._lanes(sets, agents)
        records = run_lanes(self.setup.env, lanes, "strategy", programs=self.programs)
        return nets_of(records, lanes, agents, "strategy")

    def _lanes(self, sets: Sequence[np.ndarray], agents: Sequence[Sequence[Agent]]) -> list[Lane]:
        """The agents of each fold on its sessions, fold by fold."""
        market, key, lanes = self.setup.single, jax.random.key(self.setup.config.seed), []
        for ids, own in zip(sets, agents, strict=True):
            sessions = sessions_of(market, ids)
            decisions, params = (
                decision_bars(market.data, sessions),
                self.params.replace(sessions=sessions),
            )
            lanes += [Lane(agent, params, decisions, agent_key(key, agent.name)) for agent in own]
        return lanes


def nets_of(
    records: Sequence[Record], lanes: Sequence[Lane], agents: Sequence[Sequence[Agent]], which: Pass
) -> list[np.ndarray]:
    """Dollars of the agents of each fold on each of its sessions, for each fold float64[agents,
    sessions].
    """
    every = iter(
        [
            session_net(record, lane.decisions, which)
            for record, lane in zip(records, lanes, strict=True)
        ]
    )
    return [np.stack([next(every) for _ in own]) for own in agents]


def session_net(record: Record, decisions: DecisionBars, which: Pass) -> np.ndarray:
    """float64[n]: dollars of each session. In the account pass every account starts from 0."""
    last = decisions.last
    pnl = (
        metrics.session_pnl(record.equity, last)
        if which == "strategy"
        else metrics.account_session_pnl(record.equity, record.account, last)
    )
    return pnl / MILLS
