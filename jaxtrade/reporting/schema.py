"""The content of a report as plain data: what `report.json` holds, and what each section is given.

Money is in dollars, shares are 0..1, dates are ISO 8601. A metric that cannot be given is None and
has a reason, `why`. A section that a run does not have is None; the page then shows the command
that computes it (`command`). A section that its kind of run cannot have is absent, on the page too.
The templates refuse any other entry that is not there.

An estimate is a metric with its interval:
    value: None where it is undefined.
    low, high: the ends of the interval, None or absent without one.
    why: the reason where the value or the interval is None.

The document (`collect`):

title: market, split, agent, sessions, dates, the run, its folder as commands name it, its symbol,
    None for a run of one.
settings, labels, agents, verdict: from `evaluation.json`.
trained: one line: learner, reward, steps, seed, and the keys that differ from the defaults.
in_sample: settings and agents of the training sessions.
provenance: versions, commit, device, digests.

seeds: the agents of a run with several; None for a run of one.
    shown: the one that the report is about.
    labels: agent -> its seed, of a sweep its number and its setting.
    net: agent -> net profit.

statistics: of daily net profit, account rules off. docs/believe_numbers.md explains each.
    days: independent sessions behind the metrics.
    seeds: policies that differ by their seeds alone; 1 in a sweep.
    level: of all intervals, 0.95.
    daily: interquartile mean over seeds of a day's net profit.
    agents: agent -> the same of each. Absent where the sessions were trained on.
    improvement: baseline -> probability that a seed of the policy beats it. Absent where the
        sessions were trained on.
    spa: p of the test of all these policies against all baselines (Hansen 2005).
  Of the policy that the report is about:
    psr: probability that the Sharpe ratio is above 0.
    dsr: deflated Sharpe ratio over `trials`, the distinct policies in the trial log.
    min_trl: days that the Sharpe ratio would need.
    pbo: probability of backtest overfitting over the trials; null_low, null_high: its 5 and 95 %
        points on noise of the same size.

nulls, other_nulls: the policy against null markets, as one result of a null test writes it
    (`evaluation.nulls.NullResult`).

trials: what the trial log said of the test sessions when the report was made.
    opened: times that they were looked at until then; the report itself is no look.
    at_evaluation: the same when the evaluation was made, it included; None where the evaluation
        does not say.
    trials: distinct policies that were evaluated on them. Where the log does not show it, opened
        and trials are None, and `fault` says why.
    log: name of the file.
    first, last: UTC times.

sessions: of the shown agent, strategy pass.
    net, equity, drawdown: dollars; equity at its end, and the drop below the highest equity at any
        decision bar so far, at its deepest in the session.
accounts: of the shown agent, account pass.
    floor: its last drawdown floor.
    end: None if open.
floor: the floor and the equity of these accounts in few points.

symbols: of an account that holds several, strategy pass, what each contributed: its profit in
    dollars in few points, and its metrics.
    costs: all but slippage.

challenge: P(pass an evaluation account), as `evaluation.challenge.pass_probability`.
costs, intrabar, latency: net profit under other assumptions, as `evaluation.grids.Grid.to_json`.
breakdown: trades by half hour, weekday, volatility tercile and exit reason, as
    `evaluation.breakdown.breakdown`.
attribution: which parts of the observation the policy uses, as
    `evaluation.attribution.SlotAttribution.to_json`.

training: curves of at most some hundred points each (x: environment steps; y: None where an update
    has no value), and what the run said of its health.
explorer: numbers of trades and bars, how many of them the page holds, the curve of the equity,
    and the time zone.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
Figures = dict[str, Any]  # a part of the document, described above

SPLITS = {
    "test": "held-out test sessions",
    "validation": "validation sessions",
    "train": "training sessions",
    "all": "all sessions",
}

# Section -> the flags of `jaxtrade evaluate RUN` that compute it.
FLAGS = {
    "in_sample": "--split train",
    "nulls": "--nulls sign:99",
    "challenge": "--pass-probability",
    "costs": "--cost-grid",
    "intrabar": "--intrabar-grid",
    "latency": "--latency-grid",
    "breakdown": "--breakdown",
    "attribution": "--attribution",
}
OPTIONAL = tuple(FLAGS)  # sections that other commands compute
OF_ACCOUNT = ("in_sample", "costs")  # of them those of an account that holds several symbols


def name_folder(run: Path) -> str:
    """Return the folder of a run as commands of the page name it.

    It is `runs/NAME` in the default folder of runs, else its name, so that the page does not say
    where it was made.
    """
    whole = run.resolve()
    return shlex.quote(f"runs/{whole.name}" if whole.parent.name == "runs" else whole.name)


def _policy_flags(title: Mapping[str, Any], every_policy: bool = False) -> str:
    """Return the flags that choose what a report is about."""
    split = "" if title["split"] == "test" else f" --split {title['split']}"
    kind, _, number = (title["number"] or "").partition("_")
    return split + (f" --{kind} {int(number)}" if number and not every_policy else "")


def report_command(title: Mapping[str, Any]) -> str:
    """Return the command that makes this report again. title: of the report."""
    symbol = f" --symbol {title['symbol']}" if title["symbol"] else ""
    return f"jaxtrade report {title['folder']}{_policy_flags(title)}{symbol}"


def command(section: str, title: Mapping[str, Any]) -> str:
    """Return the command that computes a section. title: of the report.

    The policy is named where the run has several, except for the training sessions, which all of
    them have, and for the null markets, which pool the seeds.

    title: of the report.
    """
    pooled = section == "nulls" and (title["number"] or "").startswith("seed")
    chosen = "" if section == "in_sample" else _policy_flags(title, pooled)
    return f"jaxtrade evaluate {title['folder']}{chosen} {FLAGS[section]}"
