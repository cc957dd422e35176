"""What a walk-forward found, as plain data (`walkforward.json`), rows (`folds.csv`) and a printed
table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from jaxtrade.data.walks import Fold, Reach, paths_of, reach_of
from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.statistics import LEVEL, iqm_estimate
from jaxtrade.evaluation.walk_days import WalkDays, evidence_lines, evidence_of
from jaxtrade.runs.setup import Setup
from jaxtrade.runs.walkforward.evaluating import in_sample_ids
from jaxtrade.text import aligned, several

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
    """The content of `walkforward.json`. Dollars are per day, of the greedy policies; account rules
    are off unless a name says `account`."""
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
        "pooled": _pooled(days),
    }
    if walk.mode == "cpcv":
        document["paths"] = _paths(setup, days)
    return document


def how_reach(reach: Reach) -> str:
    """How the reach follows from the configuration, in words."""
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
    """A set of sessions: first and last date, number, and the runs of neighbouring sessions that it
    consists of.
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
    """float64[S] as a mean, the lowest and highest seed, and the list in the order of the seeds."""
    return {
        "mean": float(values.mean()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
        "by_seed": values.tolist(),
    }


def _pooled(days: WalkDays) -> dict[str, Any]:
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
        "account_net_per_day": _by_seed(days.pooled(days.account_net)),
        "in_sample_net_per_day": _by_seed(days.in_sample_net.mean(axis=1)),
        "baseline_net_per_day": {
            str(name): float(net)
            for name, net in zip(days.baselines, days.pooled(days.baseline_net), strict=True)
        },
        **evidence_of(days),
    }


def _paths(setup: Setup, days: WalkDays) -> list[dict[str, Any]]:
    """The paths of cpcv: each tests every block of sessions once, with a fold that was not trained
    on it.
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
    """`folds.csv`: a row per fold, `COLUMNS` and then a column per baseline."""
    names = document["baselines"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"{name}_net_per_day" for name in names)])
    for each in document["folds"]:
        train, test, net = each["train"], each["test"], each["net_per_day"]
        writer.writerow(
            [
                each["fold"],
                train["first"],
                train["last"],
                train["sessions"],
                test["first"],
                test["last"],
                test["sessions"],
                len(each["purged"]),
                len(each["embargoed"]),
                net["mean"],
                net["lowest"],
                net["highest"],
                each["account_net_per_day"]["mean"],
                each["in_sample_net_per_day"]["mean"],
                *(each["baseline_net_per_day"][name] for name in names),
            ]
        )
    return out.getvalue()


def walk_table(document: dict[str, Any]) -> str:
    """The printed table: a row per fold, all folds together, and on how many days it rests."""
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
    rows = [head, *(_row(str(each["fold"]), each, names) for each in document["folds"])]
    pooled = document["pooled"]
    rows.append(_figures(["all", "", "", "", str(pooled["independent_days"])], pooled, names))
    lines = aligned(rows, left=(0, 1, 3))
    rule = "-" * max(map(len, lines))
    return "\n".join(
        [
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


def _row(name: str, each: dict[str, Any], names: list[str]) -> list[str]:
    train, test = each["train"], each["test"]
    spans = ["..".join(dict.fromkeys((part["first"], part["last"]))) for part in (train, test)]
    return _figures(
        [name, spans[0], str(train["sessions"]), spans[1], str(test["sessions"])], each, names
    )


def _figures(cells: list[str], each: dict[str, Any], names: list[str]) -> list[str]:
    net = each["net_per_day"]
    values = [
        net["mean"],
        net["lowest"],
        net["highest"],
        each["account_net_per_day"]["mean"],
        each["in_sample_net_per_day"]["mean"],
        *(each["baseline_net_per_day"][name] for name in names),
    ]
    return [*cells, *(f"{value:,.2f}" for value in values)]


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
    """A figure with its interval, or with the reason why it has none."""
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
