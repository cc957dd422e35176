"""The page of a walk-forward: `report.html` and `report.json` from its folder. Nothing is trained,
traded or compiled; sections compute sums for pictures, and no statistics.
"""

from __future__ import annotations

import json
import math
from itertools import accumulate
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.run_days import WALK
from jaxtrade.evaluation.statistics import LEVEL, iqm_estimate
from jaxtrade.evaluation.walk_days import DAILY, WalkDays, evidence_of, read_walk_days
from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.collect import read_json
from jaxtrade.reporting.make import MB
from jaxtrade.reporting.markup import (
    Child,
    Markup,
    joined,
    kinds,
    notes,
    paragraph,
    sentence,
    spoken,
    table,
    tag,
    times,
)
from jaxtrade.reporting.page import document, header
from jaxtrade.reporting.schema import Estimate, NullFigures
from jaxtrade.reporting.sections.trust import Row, absent, days_row, figure_row, flat, nulls_row
from jaxtrade.runs import rundir
from jaxtrade.storage.staged import staged
from jaxtrade.text import several

FORMAT = 1
NULLS = "nulls.json"  # of `--nulls`, in the folder of the walk-forward
POLICY = "policy"  # its result there


class DailyFigures(TypedDict):
    """Net profit of each trade date in dollars, account rules off, in time order; a date that
    several folds test has its mean over them.

    date: ISO. mean, lowest, highest: over the seeds. baselines: baseline -> the same of each.
    """

    date: list[str]
    mean: list[float]
    lowest: list[float]
    highest: list[float]
    baselines: dict[str, list[float]]


class WalkReportData(TypedDict):
    """All figures of the page; what its `report.json` holds.

    run: name of the folder. walk: the content of `walkforward.json`. policy, baselines: what a day
        earns,
    interquartile mean over seeds, with interval. evidence: as `walk_evidence.evidence_of`, of the
    moment at which the page is made. days: see there. nulls: against null markets, None without.
    provenance: versions, commit, device.
    """

    format: int
    kind: str
    run: str
    walk: dict[str, Any]
    policy: Estimate
    baselines: dict[str, Estimate]
    evidence: dict[str, Any]
    days: DailyFigures
    nulls: NullFigures | None
    provenance: dict[str, Any]


def is_walk(run: Path) -> bool:
    """Whether a run is a walk-forward. Raises ConfigError if the folder is no run's."""
    return rundir.read_run(run)[0].walk.on


def collect(run: Path) -> WalkReportData:
    """All figures of the page.

    Raises ConfigError if the walk-forward has not ended, DataError if a file is damaged or two
    disagree.
    """
    manifest = rundir.read_run(run)[1]
    if not (run / WALK).is_file():
        raise ConfigError(
            f"{run / WALK}: there is no such file: the walk-forward has not ended; continue it with "
            f"`jaxtrade walkforward --resume {run}`"
        )
    walk, days = read_json(run / WALK), read_walk_days(run / DAILY)
    if walk["pooled"]["seeds"] != days.seeds.tolist() or walk["pooled"]["tested_days"] != len(
        days.date
    ):
        raise DataError(
            f"{run}: {WALK} and {DAILY} are of different walk-forwards; write them again with `jaxtrade "
            f"walkforward --resume {run}`"
        )
    net, fold = days.by_date(days.net)
    rules = zip(days.baselines.tolist(), days.by_date(days.baseline_net)[0], strict=True)
    nulls = read_json(run / NULLS)["results"].get(POLICY) if (run / NULLS).is_file() else None
    return {
        "format": FORMAT,
        "kind": "walkforward",
        "run": run.resolve().name,
        "walk": walk,
        "policy": _estimate(iqm_estimate(net, fold)),
        "baselines": {name: _estimate(iqm_estimate(own[None], rule=True)) for name, own in rules},
        "evidence": evidence_of(days),
        "days": daily(days),
        "nulls": nulls,
        "provenance": manifest,
    }


def daily(days: WalkDays) -> DailyFigures:
    """The net profit of each trade date."""
    net, rules = days.by_date(days.net)[0], days.by_date(days.baseline_net)[0]
    return {
        "date": np.unique(days.date).astype("datetime64[D]").astype(str).tolist(),
        "mean": net.mean(axis=0).tolist(),
        "lowest": net.min(axis=0).tolist(),
        "highest": net.max(axis=0).tolist(),
        "baselines": {
            str(name): own.tolist() for name, own in zip(days.baselines, rules, strict=True)
        },
    }


def _estimate(found: Any) -> Estimate:
    return {"value": found.value, "low": found.low, "high": found.high, "why": found.why}


OWN, RANDOM = "policies", "random"
MARKS = 6  # dates of an x axis
COUNTED = 14  # rows from which a table scrolls


def honesty(data: WalkReportData) -> Markup:
    """The panel: a question, its figure, and what the figure says; then the limits."""
    walk, pooled = data["walk"], data["walk"]["pooled"]
    seeds, folds = len(pooled["seeds"]), len(walk["folds"])
    size = (
        "How many policies were trained?",
        figures.count(seeds * folds),
        f"{several(folds, 'fold')} with {several(seeds, 'seed')} each. Folds share training days, and seeds share "
        "all of them, so none of them adds a day to the record.",
    )
    nulls = nulls_row(data["nulls"], "jaxtrade walkforward --resume RUN --nulls sign:19")
    rows = [
        days_row(pooled["independent_days"]),
        size,
        *_statistics(data),
        nulls,
        *_selection(walk),
        _opened(walk),
    ]
    return joined(
        [
            table(
                "What stands behind the figures of this page",
                ("Question", "Figure", "What it says"),
                rows,
                words=(2,),
            ),
            notes(_limits(walk)),
        ]
    )


def _statistics(data: WalkReportData) -> list[Row]:
    evidence, days = data["evidence"], data["walk"]["pooled"]["independent_days"]
    tested: Estimate = {"value": evidence["spa"]["p"], "why": evidence["spa"]["why"]}
    daily = f"Interquartile mean over the seeds, out of sample. In brackets its {100 * LEVEL:.0f} % interval, if any."
    return [
        figure_row("What does a day earn?", data["policy"], "signed", 2, daily),
        figure_row(
            "Is the Sharpe ratio above 0?",
            evidence["psr"]["of_mean"],
            "share",
            1,
            "Probabilistic Sharpe ratio of the mean over the seeds, an account that follows all of them in "
            f"equal parts.{_span(evidence['psr']['by_seed'], 'share', 1)}",
        ),
        figure_row(
            "How many days would it need?",
            evidence["min_trl"]["of_mean"],
            "number",
            0,
            f"Minimum track record: days after which such a Sharpe ratio excludes 0 at 95 %. There are {days:,}."
            f"{_span(evidence['min_trl']['by_seed'], 'number', 0)}",
        ),
        figure_row(
            "Does it beat every baseline?",
            tested,
            "number",
            3,
            "p of the test for superior predictive ability: whether a seed beats each of the baselines. Small "
            "is good.",
        ),
    ]


def _span(found: list[dict[str, Any]], form: str, digits: int) -> str:
    """Lowest and highest figure of single seeds, where there are several."""
    values = [each["value"] for each in found if each["value"] is not None]
    if len(found) == 1 or not values:
        return ""
    ends = [figures.FORMS[form](end, digits) for end in (min(values), max(values))]
    without = (
        f", none of {several(len(found) - len(values), 'seed')}" if len(values) < len(found) else ""
    )
    return f" Of one seed {ends[0]} to {ends[1]}{without}."


def _selection(walk: dict[str, Any]) -> list[Row]:
    """Whether a seed was picked from many trials, as the trial log said when the walk-forward was
    tested.
    """
    found = walk.get("trials")
    if found is None:
        return []
    seeds = [each["dsr"] for each in found.get("by_seed", {}).values() if each.get("dsr")]
    known = [each["value"] for each in seeds if each["value"] is not None]
    name = "Was it picked from many?"
    if known:
        ends = [figures.plain_share(end) for end in sorted({min(known), max(known)})]
        says = (
            f"Deflated Sharpe ratio of single seeds over {several(found['trials'], 'trial')}: the probability that "
            "the ratio beats the best of so many trials without skill."
        )
        row: Row = name, " to ".join(ends), says
    else:
        why = seeds[0]["why"] if seeds else found.get("fault")
        row = name, absent(), sentence(why or "the trial log does not say")
    return (
        [
            row,
            figure_row(
                "Is the best of them overfitted?",
                found["pbo"],
                "share",
                1,
                "Probability of backtest overfitting: how often the trial that is best on one half of the "
                "days is below the median on the other.",
            ),
        ]
        if found.get("pbo")
        else [row]
    )


def _opened(walk: dict[str, Any]) -> Row:
    question, found = "How often were these days looked at?", walk.get("trials")
    if found is None:
        return (
            question,
            absent(),
            "This walk-forward is of an earlier version, which did not count.",
        )
    if found["opened"] is None:
        return question, absent(), "The trial log cannot tell."
    return (
        question,
        times(found["opened"]),
        (
            "Counted when the walk-forward was tested, that time included. Each "
            "further look makes a good result less surprising."
        ),
    )


def _limits(walk: dict[str, Any]) -> list[str]:
    lines = list(walk.get("labels", ()))
    if walk["synthetic"]:
        lines.append("The bars are synthetic.")
    if walk["walk"]["mode"] == "cpcv":
        lines.append(
            "Folds of cpcv also train on days after their test, and they overlap: the figures show how robust "
            "the method is, not what a trader could have earned."
        )
    return lines


def folds(data: WalkReportData) -> Markup:
    """A row per fold, out of sample beside in sample."""
    walk, names = data["walk"], data["walk"]["baselines"]
    rows = []
    for each in walk["folds"]:
        net = each["net_per_day"]
        rows.append(
            (
                str(each["fold"]),
                _dates(each["train"]),
                figures.count(each["train"]["sessions"]),
                _dates(each["test"]),
                figures.count(each["test"]["sessions"]),
                figures.count(len(each["purged"]) + len(each["embargoed"])),
                figures.signed(net["mean"]),
                figures.signed(net["lowest"]),
                figures.signed(net["highest"]),
                figures.signed(each["account_net_per_day"]["mean"]),
                figures.signed(each["in_sample_net_per_day"]["mean"]),
                *(figures.signed(each["baseline_net_per_day"][name]) for name in names),
            )
        )
    head = (
        "Fold",
        "Trained on",
        "Sessions",
        "Tested on",
        "Sessions",
        "Left out",
        "Out of sample",
        "Lowest seed",
        "Highest seed",
        "Under account rules",
        "In sample",
        *map(spoken, names),
    )
    return joined(
        [
            paragraph(
                "Net profit of a day in dollars, mean over the seeds, account rules off unless the column says "
                "otherwise. Each policy is tested on days that it was not trained on. Left out: sessions between "
                f"training and test. In sample: {walk['in_sample_days']}."
            ),
            table("Folds", head, rows, words=(1, 3), tall=len(rows) > COUNTED),
            *_paths(walk),
        ]
    )


def _dates(block: dict[str, Any]) -> Markup:
    """First and last date; each stays on one line."""
    first, last = (tag("span", block[end], class_="whole") for end in ("first", "last"))
    return first if block["first"] == block["last"] else joined([first, " to ", last])


def _paths(walk: dict[str, Any]) -> list[Markup]:
    """The paths of cpcv; nothing of another mode."""
    rows = [
        (
            str(path["path"]),
            figures.count(path["days"]),
            *(figures.signed(path["net_per_day"][name]) for name in ("mean", "lowest", "highest")),
        )
        for path in walk.get("paths", ())
    ]
    return (
        [
            table(
                "Paths, each of which tests every day once",
                ("Path", "Days", "Net profit of a day", "Lowest seed", "Highest seed"),
                rows,
            )
        ]
        if rows
        else []
    )


def sample(data: WalkReportData) -> Markup:
    """All folds together: out of sample, under the account's rules, and in sample."""
    pooled = data["walk"]["pooled"]
    rows = [
        (name, *(figures.signed(pooled[key][end]) for end in ("mean", "lowest", "highest")))
        for name, key in (
            ("Out of sample", "net_per_day"),
            ("Out of sample, under account rules", "account_net_per_day"),
            ("In sample", "in_sample_net_per_day"),
        )
    ]
    return joined(
        [
            paragraph(
                "A method that has learned something keeps most of its profit on days that it has not seen."
            ),
            table(
                "Net profit of a day, all folds together",
                ("Days", "Mean over the seeds", "Lowest seed", "Highest seed"),
                rows,
            ),
        ]
    )


def baselines(data: WalkReportData) -> Markup:
    """What a day earns, of the policies and of each baseline, and how often a seed earns more."""
    daily, better = {OWN: data["policy"], **data["baselines"]}, data["evidence"]["improvement"]
    colours = kinds(daily)
    rows = [
        svg.Dot(
            spoken(name),
            each["value"],
            figures.plain_money(each["value"], plus=True),
            colours[name],
            each.get("low"),
            each.get("high"),
        )
        for name, each in daily.items()
    ]
    lines: list[tuple[Child, ...]] = [
        (spoken(name), figures.bare(each, "signed", 2), figures.bare(better.get(name), "share", 1))
        for name, each in daily.items()
    ]
    whys = figures.reasons("net profit of a day", daily) + figures.reasons(
        "probability that a seed does better", better
    )
    return joined(
        [
            paragraph(
                "All trade the same days under the same costs, account rules off. A bar is the interval."
            ),
            svg.dots(
                "Net profit of a day of the policies and of each baseline, with intervals, in dollars",
                rows,
                lambda value: figures.plain_money(value, 0),
            ),
            table(
                f"Net profit of a day, with intervals of {100 * LEVEL:.0f} %",
                ("Agent", "Net profit of a day", "A seed does better, probability"),
                lines,
                marked=(0,),
            ),
            notes(whys),
        ]
    )


def equity(data: WalkReportData) -> Markup:
    """The sum of daily net profit, of the mean over the seeds and of the baselines, and a table of
    the days.
    """
    days = data["days"]
    colours = kinds([OWN, *days["baselines"]])
    count = len(days["date"])
    sums = {OWN: days["mean"], **days["baselines"]}
    drawn = [
        svg.Line(spoken(name), list(accumulate(net)), colours[name])
        for name, net in sums.items()
        if name != RANDOM
    ]
    marks = [(i, days["date"][i]) for i in range(0, count, -(-count // MARKS))]
    rows = [
        (date, *(figures.signed(value) for value in values))
        for date, *values in zip(
            days["date"],
            days["mean"],
            days["lowest"],
            days["highest"],
            *days["baselines"].values(),
            strict=True,
        )
    ]
    left_out = (
        " The baseline that draws its actions is in the table alone: its losses would hide the rest."
        if (RANDOM in sums)
        else ""
    )
    return joined(
        [
            paragraph(
                "The tested days one after the other, each by policies that were not trained on it, account rules "
                f"off: the sum of the net profit so far, of policies the mean over the seeds.{left_out}"
            ),
            svg.lines(
                "Sum of daily net profit out of sample, in dollars",
                list(range(count)),
                drawn,
                lambda value: figures.plain_money(value, 0),
                marks,
                zero=True,
            ),
            table(
                "Net profit of each tested day",
                (
                    "Day",
                    "Mean over the seeds",
                    "Lowest seed",
                    "Highest seed",
                    *map(spoken, days["baselines"]),
                ),
                rows,
                tall=len(rows) > COUNTED,
            ),
        ]
    )


def provenance(data: WalkReportData) -> Markup:
    """Versions, commit, device and digests; the settings of the folds, and what the purge
    counted.
    """
    walk = data["walk"]
    settings = {
        "market": walk["market"],
        "synthetic bars": walk["synthetic"],
        "sessions": walk["sessions"],
        "steps of an agent": walk["steps_per_agent"],
        **walk["walk"],
        "reach": walk["reach"]["how"],
    }
    return joined(
        [
            paragraph(
                "The figures come from the files of the walk-forward's folder; nothing was trained or traded for "
                "this page."
            ),
            table(
                "Where the walk-forward comes from",
                ("Fact", "Value"),
                list(flat(data["provenance"])),
                words=(1,),
            ),
            table("Settings of the folds", ("Setting", "Value"), list(flat(settings)), words=(1,)),
        ]
    )


SCRIPTS = ("theme.js",)  # the page draws nothing by scripts
PARTS = {
    "honesty": ("How far to believe this", honesty),
    "folds": ("Folds", folds),
    "sample": ("Out of sample and in sample", sample),
    "baselines": ("Baselines", baselines),
    "equity": ("Days out of sample", equity),
    "provenance": ("Provenance", provenance),
}


def page(data: WalkReportData) -> str:
    """The whole HTML document."""
    walk, days = data["walk"], data["days"]["date"]
    title = f"{walk['market']}, walk-forward"
    pooled = walk["pooled"]
    facts = (
        f"{walk['walk']['mode']}, {several(len(walk['folds']), 'fold')} x {several(len(pooled['seeds']), 'seed')}",
        several(pooled["independent_days"], "tested day"),
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        f"run {data['run']}",
    )
    parts: dict[str, tuple[str, Markup]] = {
        name: (head, made(data)) for name, (head, made) in PARTS.items()
    }
    return document(title, header("Walk-forward report", title, facts), parts, data["run"], SCRIPTS)


def write(data: WalkReportData, folder: Path, max_mb: float = 3.0) -> dict[str, Path]:
    """Write `report.html` and `report.json` into a folder, both or none -> their paths.

    Raises ConfigError if the page would take more than `max_mb` millions of bytes, or that is not
    above 0, and OSError (disk).
    """
    if not 0 < max_mb < math.inf:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: expected a size above 0, in millions of bytes"
        )
    html = page(data)
    if (size := len(html.encode()) / MB) > max_mb:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: the page takes {size:.2f} MB; give {size + 0.1:.1f} or more"
        )
    texts = {"report.html": html, "report.json": json.dumps(data, indent=2, allow_nan=False) + "\n"}
    with staged(folder, noted=False) as new:
        for name, text in texts.items():
            (new / name).write_bytes(text.encode("utf-8"))
    return {name: folder / name for name in texts}
