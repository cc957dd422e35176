"""The page of a walk-forward: `report.html` and `report.json` from its folder.

Nothing is trained, traded or compiled; sections compute sums for plots, and no statistics.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.run_days import DAILY, WALK, WalkDays, evidence_of, read_walk_days
from jaxtrade.evaluation.statistics import iqm_estimate
from jaxtrade.reporting.make import MB, ReportFiles, check_limit
from jaxtrade.reporting.page import document
from jaxtrade.reporting.schema import Figures, name_folder
from jaxtrade.reporting.studies import read_json
from jaxtrade.runs import rundir
from jaxtrade.text import json_text

FORMAT = 1
NULLS = "nulls.json"  # of `--nulls`, in the folder of the walk-forward
POLICY = "policy"  # its result there


def is_walk(run: Path) -> bool:
    """Return whether a run is a walk-forward. Raises ConfigError if the folder is no run's."""
    return rundir.read_run(run)[0].walk.on


def collect(run: Path) -> Figures:
    """Collect all content of the page; what its `report.json` holds.

    run: name of the folder.
    walk: the content of `walkforward.json`.
    policy, baselines: what a day earns, interquartile mean over seeds, with interval.
    evidence: as `walk_days.evidence_of`, of the moment at which the page is made.
    days: as `daily`.
    nulls: against null markets, None without.
    provenance: versions, commit, device.

    Raises ConfigError if the walk-forward has not ended, DataError if a file is damaged or
    two disagree.
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
        "folder": name_folder(run),
        "walk": walk,
        "policy": iqm_estimate(net, fold)._asdict(),
        "baselines": {name: iqm_estimate(own[None], rule=True)._asdict() for name, own in rules},
        "evidence": evidence_of(days),
        "days": daily(days),
        "nulls": nulls,
        "provenance": manifest,
    }


def daily(days: WalkDays) -> Figures:
    """Return the net profit of each trade date in dollars, account rules off, in time order.

    A date that several folds test has its mean over them.

    date: ISO.
    mean, lowest, highest: over the seeds.
    baselines: baseline -> the same of each.
    """
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


def page(data: Figures) -> str:
    """Render the whole HTML document."""
    return document("walk.html", ("theme.js",), data=data)


def make(data: Figures, max_mb: float = 3.0) -> ReportFiles:
    """Make the page and its `report.json`.

    Raises ConfigError if the page would take more than `max_mb` millions of bytes, or that is not
    above 0.
    """
    check_limit(max_mb)
    html = page(data)
    if (size := len(html.encode()) / MB) > max_mb:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: the page takes {size:.2f} MB; give {size + 0.1:.1f} or more"
        )
    return ReportFiles(html, json_text(data) + "\n")
