"""Results of a walk-forward: plain data (`walkforward.json`), `folds.csv`, a printed table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from jaxtrade.config.accounts import name_account, resolve_account
from jaxtrade.config.market import AccountConfig
from jaxtrade.data.splits import Fold, Reach, paths_of, reach_of, sessions_of
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.backtest import Lane, run_lanes, run_passes
from jaxtrade.evaluation.baselines import Agent, greedy
from jaxtrade.evaluation.evaluate import lanes_of, rules_of, standard_agents
from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.record import Pass, Record
from jaxtrade.evaluation.results_table import AgentStanding, compare_agents, has_limits
from jaxtrade.evaluation.run_days import OutOfSampleDays, WalkDays, evidence_lines, evidence_of
from jaxtrade.evaluation.statistics import LEVEL, iqm_estimate
from jaxtrade.evaluation.test_set_history import day_bars
from jaxtrade.formatting import POLICY, money
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import align, several
from jaxtrade.types import PyTree

# The policies of a walk-forward on the days that they were not trained on, the baselines on the
# same days, and the policies on training days beside them.

MILLS = 1000  # of a dollar
OUT_OF_SAMPLE, UNDER_RULES = "policies, out of sample", "policies, under the account's rules"


def in_sample_ids(fold: Fold) -> np.ndarray:
    """Choose the training sessions on which a fold's policies are shown in sample.

    They are the newest ones, as many as its test has.

    They are the nearest in time to the test of a forward fold, and as many days make the two
    metrics equally noisy.
    """
    return fold.train[-len(fold.test) :]


class WalkEvaluation:
    """The daily profit of a walk-forward's policies, in the order of its agents, and of baselines.

    Each pass over all folds is one program for all policies.

    Raises ConfigError as `backtest` does.
    """

    def __init__(
        self, setup: Setup, policies: Sequence[PyTree], programs: Programs, screen: Screen
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
        """Evaluate the test days of each fold, account rules off.

        A null market is compared by them.
        """
        return self._days(self._strategy_net(OUT_OF_SAMPLE, self.tests, self.by_fold))

    def whole(self) -> WalkDays:
        """Evaluate test days, account rules off and on, and training days of each fold, rules off.

        Sessions of the account pass are stepped side by side where that can be done, from accounts
        that follow from the strategy pass (`evaluation.backtest`).
        """
        folds, seeds = self.setup.folds, self.setup.config.walk.seeds
        about = f"{several(len(folds), 'fold')} x {several(seeds, 'seed')}"
        self.screen.phase("evaluating", about, 4)
        lanes, names = self._lanes(self.tests, self.by_fold), iter((OUT_OF_SAMPLE, UNDER_RULES))
        records = run_passes(
            self.setup.env, lanes, False, self.programs, lambda _: self.screen.step(next(names))
        )
        net: dict[Pass, list[np.ndarray]] = {
            which: nets_of(found, lanes, self.by_fold, which) for which, found in records.items()
        }
        tested = self._days(net["strategy"])
        trained = [in_sample_ids(fold) for fold in folds]
        in_sample = self._strategy_net("policies, in sample", trained, self.by_fold)
        return WalkDays(
            **vars(tested),
            account_net=np.concatenate(net["account"], axis=1),
            in_sample_net=np.stack([each.mean(axis=1) for each in in_sample], axis=1),
        )

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
        """Compute dollars of each baseline on all folds' test days (float64[baselines, sessions]).

        What a session makes does not depend on the others, so one that several folds test is
        stepped once.
        """
        tested = np.concatenate(self.tests)
        every = np.unique(tested)
        [net] = self._strategy_net("baselines", [every], [self.baselines])
        return net[:, np.searchsorted(every, tested)]

    def _strategy_net(
        self, what: str, sets: Sequence[np.ndarray], agents: Sequence[Sequence[Agent]]
    ) -> list[np.ndarray]:
        """Do as `nets_of`, account rules off.

        what: is logged.
        sets: the sessions of each fold.
        agents: of each fold.
        """
        self.screen.step(what)
        lanes = self._lanes(sets, agents)
        records = run_lanes(self.setup.env, lanes, "strategy", programs=self.programs)
        return nets_of(records, lanes, agents, "strategy")

    def _lanes(self, sets: Sequence[np.ndarray], agents: Sequence[Sequence[Agent]]) -> list[Lane]:
        """List the agents of each fold on its sessions, fold by fold."""
        market, lanes = self.setup.single, []
        for ids, own in zip(sets, agents, strict=True):
            sessions = sessions_of(market, ids)
            lanes += lanes_of(own, self.params, market, sessions, self.setup.config)
        return lanes


def nets_of(
    records: Sequence[Record], lanes: Sequence[Lane], agents: Sequence[Sequence[Agent]], which: Pass
) -> list[np.ndarray]:
    """Return the dollars of each fold's agents on its sessions (float64[agents, sessions] by fold).

    In the account pass every account starts from 0.
    """
    every = []
    for record, lane in zip(records, lanes, strict=True):
        last = lane.decisions.last
        pnl = (
            metrics.session_pnl(record.equity, last)
            if which == "strategy"
            else metrics.account_session_pnl(record.equity, record.account, last)
        )
        every.append(pnl / MILLS)
    found = iter(every)
    return [np.stack([next(found) for _ in own]) for own in agents]


FORMAT = 1
COLUMNS = (
    "fold",
    "train_first",
    "train_last",
    "train_sessions",
    "test_first",
    "test_last",
    "test_sessions",
    "purged",
    "embargoed",
    "net_per_day",
    "net_per_day_lowest_seed",
    "net_per_day_highest_seed",
    "account_net_per_day",
    "in_sample_net_per_day",
)


def walk_document(setup: Setup, days: WalkDays) -> dict[str, Any]:
    """Make the content of `walkforward.json`.

    Dollars are per day, of the greedy policies; account rules are off unless a name says `account`.
    """
    config, market = setup.config, setup.single
    walk, reach = config.walk, reach_of(config)
    document = {
        "format": FORMAT,
        "market": market.contract.symbol,
        "synthetic": market.synthetic,
        "config_sha256": config.digest(),
        "data_sha256": market.fingerprint,
        "walk": walk.model_dump(mode="json", exclude={"on"})
        | {"embargo": walk.embargo_of(market.num_sessions)},
        "sessions": market.num_sessions,
        "steps_per_agent": setup.plan.total_steps,
        "agents": setup.stack.count,
        "baselines": days.baselines.tolist(),
        "reach": reach._asdict() | {"how": how_reach(reach)},
        "in_sample_days": "the newest training sessions of each fold, as many as it tests",
        "folds": [_fold(number, fold, setup, days) for number, fold in enumerate(setup.folds)],
        "pooled": _pool(days),
        "verdict": walk_verdict(days, config.account),
    }
    if walk.mode == "cpcv":
        document["paths"] = _paths(setup, days)
    return document


def walk_verdict(days: WalkDays, account: AccountConfig) -> str:
    """Compare the mean over the seeds with the baselines, in words, as the verdict of a run does.

    account: of the run; where it has limits, a second sentence says what was made under them.
    """
    net, under = (days.by_date(each)[0].mean(axis=0) for each in (days.net, days.account_net))
    rules = zip(days.baselines.tolist(), days.by_date(days.baseline_net)[0], strict=True)
    standings = [
        AgentStanding(name, float(own.sum()), 1, 1000 * own)
        for name, own in ((POLICY, net), *rules)
    ]
    limits = has_limits({"rules": rules_of(resolve_account(account))})
    seeds = f"mean over {several(len(days.seeds), 'seed')}"
    span = f"{several(days.independent, 'day')} out of sample ({seeds}{', account rules off' if limits else ''})"
    compared = compare_agents(standings, span, "day")
    ended = f"Under {name_account(account)} it made {money(float(under.sum()))}."
    return f"{compared} {ended}" if limits else compared


def how_reach(reach: Reach) -> str:
    """Explain how the reach follows from the configuration."""
    dated = (
        ""
        if reach.date_back is None
        else (
            f", and from its first bar on the trade date of the bar {several(reach.date_back, 'bar')} before it (vwap)"
        )
    )
    return (
        f"an observation uses {reach.look_back} bars before its decision bar (env.window and the longest reach of "
        f"a feature){dated}, a decision is filled within {several(reach.look_ahead, 'bar')}, and an episode has "
        f"{several(reach.episode, 'session')} (episode.sessions); a session of which any of this lies in a test "
        "session is purged"
    )


def _dates(setup: Setup, ids: np.ndarray) -> list[str]:
    return [str(day) for day in setup.single.trade_dates[ids]]


def _block(setup: Setup, ids: np.ndarray) -> dict[str, Any]:
    """Describe a set of sessions: first and last date, number, and runs of neighbouring sessions.

    The set consists of these runs.
    """
    edges = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]
    dates = _dates(setup, ids)
    return {
        "first": dates[0],
        "last": dates[-1],
        "sessions": len(ids),
        "runs": [[dates[a], dates[b - 1]] for a, b in pairwise(edges)],
    }


def _fold(number: int, fold: Fold, setup: Setup, days: WalkDays) -> dict[str, Any]:
    own = days.fold == number
    return {
        "fold": number,
        "train": _block(setup, fold.train),
        "test": _block(setup, fold.test),
        "groups": list(fold.groups),
        "purged": _dates(setup, fold.purged),
        "embargoed": _dates(setup, fold.embargoed),
        "in_sample": _block(setup, in_sample_ids(fold)),
        "net_per_day": _by_seed(days.net[:, own].mean(axis=1)),
        "account_net_per_day": _by_seed(days.account_net[:, own].mean(axis=1)),
        "in_sample_net_per_day": _by_seed(days.in_sample_net[:, number]),
        "baseline_net_per_day": {
            str(name): float(net[own].mean())
            for name, net in zip(days.baselines, days.baseline_net, strict=True)
        },
    }


def _by_seed(values: np.ndarray) -> dict[str, Any]:
    """Return float64[S] as a mean, the lowest and highest seed, and the list in order of seeds."""
    return {
        "mean": float(values.mean()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
        "by_seed": values.tolist(),
    }


def _pool(days: WalkDays) -> dict[str, Any]:
    net, fold = days.by_date(days.net)
    rules = {
        str(name): iqm_estimate(own[None], rule=True)
        for name, own in zip(days.baselines, days.by_date(days.baseline_net)[0], strict=True)
    }
    return {
        "independent_days": days.independent,
        "tested_days": len(days.date),
        "seeds": days.seeds.tolist(),
        "net_per_day": _by_seed(net.mean(axis=1)),
        "iqm_per_day": iqm_estimate(net, fold)._asdict() | {"level": LEVEL},
        "baseline_iqm_per_day": {
            name: each._asdict() | {"level": LEVEL} for name, each in rules.items()
        },
        "account_net_per_day": _by_seed(days.pool(days.account_net)),
        "in_sample_net_per_day": _by_seed(days.in_sample_net.mean(axis=1)),
        "baseline_net_per_day": {
            str(name): float(net)
            for name, net in zip(days.baselines, days.pool(days.baseline_net), strict=True)
        },
        **evidence_of(days),
    }


def _paths(setup: Setup, days: WalkDays) -> list[dict[str, Any]]:
    """List the paths of cpcv.

    Each tests every block of sessions once, with a fold that was not trained on it.
    """
    folds, groups = list(setup.folds), setup.config.walk.groups
    blocks = np.array_split(setup.single.trade_dates.astype(np.int64), groups)
    found = []
    for number, of_groups in enumerate(paths_of(folds, groups)):
        own = np.zeros(len(days.date), bool)
        for group, fold in enumerate(of_groups):
            own |= (days.fold == fold) & np.isin(days.date, blocks[group])
        found.append(
            {
                "path": number,
                "folds": of_groups.tolist(),
                "days": int(own.sum()),
                "net_per_day": _by_seed(days.net[:, own].mean(axis=1)),
            }
        )
    return found


def folds_csv(document: dict[str, Any]) -> str:
    """Write `folds.csv`: a row per fold, `COLUMNS` and then a column per baseline."""
    names = document["baselines"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"{name}_net_per_day" for name in names)])
    for each in document["folds"]:
        train, test = each["train"], each["test"]
        ends = [span[name] for span in (train, test) for name in ("first", "last", "sessions")]
        lost = [len(each[name]) for name in ("purged", "embargoed")]
        writer.writerow([each["fold"], *ends, *lost, *_metrics(each, names)])
    return out.getvalue()


def walk_table(document: dict[str, Any]) -> str:
    """Format the printed table: a row per fold, and all folds together.

    It says on how many days it rests.
    """
    names = document["baselines"]
    head = [
        "fold",
        "trained on",
        "days",
        "tested on",
        "days",
        "net",
        "lowest",
        "highest",
        "account",
        "in sample",
        *names,
    ]
    pooled = document["pooled"]
    rows = [head, *(_row(each, names) for each in document["folds"])]
    rows.append(
        ["all", "", "", "", str(pooled["independent_days"]), *_format_interval(pooled, names)]
    )
    lines = align(rows, left=(0, 1, 3))
    rule = "-" * max(map(len, lines))
    return "\n".join(
        [
            *([said, ""] if (said := document.get("verdict")) else []),
            *_heading(document),
            "",
            lines[0],
            rule,
            *lines[1:-1],
            rule,
            lines[-1],
            "",
            *_remarks(document),
        ]
    )


def _row(each: dict[str, Any], names: list[str]) -> list[str]:
    row = [str(each["fold"])]
    for part in (each["train"], each["test"]):
        span = "..".join(dict.fromkeys((part["first"], part["last"])))
        row += [span, str(part["sessions"])]
    return [*row, *_format_interval(each, names)]


def _format_interval(each: dict[str, Any], names: list[str]) -> list[str]:
    return [f"{value:,.2f}" for value in _metrics(each, names)]


def _metrics(each: dict[str, Any], names: list[str]) -> list[float]:
    """Return the dollars per day of a row, as in `COLUMNS`.

    names: of the baselines.
    """
    net = each["net_per_day"]
    return [
        *(net[name] for name in ("mean", "lowest", "highest")),
        each["account_net_per_day"]["mean"],
        each["in_sample_net_per_day"]["mean"],
        *(each["baseline_net_per_day"][name] for name in names),
    ]


def _heading(document: dict[str, Any]) -> Iterator[str]:
    walk, seeds = document["walk"], len(document["pooled"]["seeds"])
    bars = "SYNTHETIC bars" if document["synthetic"] else "real bars"
    yield (
        f"Walk-forward on {document['market']} ({bars}): {walk['mode']}, {several(len(document['folds']), 'fold')} "
        f"x {several(seeds, 'seed')}, {document['steps_per_agent']:,} steps per agent, embargo "
        f"{several(walk['embargo'], 'session')}"
    )
    yield (
        "dollars per day of the greedy policies, out of sample unless it says otherwise; account rules are off but "
        "for `account`"
    )
    yield "net, account and in sample are means over the seeds; lowest and highest are those of one seed"
    yield f"in sample: {document['in_sample_days']}"


def _with_interval(each: dict[str, Any]) -> str:
    """Format a metric with its interval, or with the reason why it has none."""
    ends = (
        f"n/a ({each['why']})"
        if each["why"] is not None
        else f"{each['low']:,.2f} to {each['high']:,.2f}"
    )
    return f"{each['value']:,.2f} a day, {each['level']:.0%} interval {ends}"


def _remarks(document: dict[str, Any]) -> Iterator[str]:
    pooled, walk = document["pooled"], document["walk"]
    days, net, inside = (
        pooled["independent_days"],
        pooled["net_per_day"],
        pooled["in_sample_net_per_day"],
    )
    few = ", which are too few to tell skill from luck" if days < MIN_SESSIONS else ""
    yield (
        f"every figure of the last line rests on {several(days, 'independent day')}{few}: seeds, and folds that "
        "test the same day, share its market"
    )
    yield (
        f"out of sample {net['mean']:,.2f} a day (one seed {net['lowest']:,.2f} to {net['highest']:,.2f}), in "
        f"sample {inside['mean']:,.2f}"
    )
    yield f"interquartile mean over the seeds: {_with_interval(pooled['iqm_per_day'])}"
    for name in document["baselines"]:
        yield f"{name}: {_with_interval(pooled['baseline_iqm_per_day'][name])}"
    yield from evidence_lines(pooled)
    if walk["mode"] == "anchored":
        yield (
            "all folds train for equally many steps, not epochs: a later fold meets each of its more numerous days "
            "less often"
        )
    for path in document.get("paths", ()):
        own = path["net_per_day"]
        yield (
            f"path {path['path']}: {own['mean']:,.2f} a day (one seed {own['lowest']:,.2f} to "
            f"{own['highest']:,.2f}), every day tested once"
        )
