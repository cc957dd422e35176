"""The figures of a report as plain data: what `report.json` holds, and what each section is given.

Money is in dollars, shares are 0..1, dates are ISO 8601. A figure that cannot be given is None and
has a reason,
`why`. A section that a run does not have is None; the page then shows the command that computes it (`command`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

FORMAT = 1

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


def command(section: str, title: Mapping[str, Any]) -> str:
    """The command that computes a section. RUN stands for the run's folder. title: of `ReportData`.

    The policy is named where the run has several, except for the training sessions, which all of
    them have, and for the null markets, which pool the seeds.
    """
    split = (
        "" if section == "in_sample" or title["split"] == "test" else f" --split {title['split']}"
    )
    kind, _, number = (title["number"] or "").partition("_")
    named = number and section != "in_sample" and not (section == "nulls" and kind == "seed")
    which = f" --{kind} {int(number)}" if named else ""
    return f"jaxtrade evaluate RUN{split}{which} {FLAGS[section]}"


class Estimate(TypedDict):
    """A figure with its interval.

    value: None where it is undefined. low, high: the ends of the interval, None without one. why:
        the reason where the
    value or the interval is None.
    """

    value: float | None
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    why: NotRequired[str | None]


class StatisticsFigures(TypedDict):
    """The statistics of daily net profit, account rules off. docs/statistics.md explains each.

    days: independent sessions behind the figures. seeds: policies that differ by their seeds alone;
        1 in a sweep.
    level: of all intervals, 0.95. daily: interquartile mean over seeds of a day's net profit,
        dollars. agents: agent ->
    the same of each. improvement: baseline -> probability that a seed of the policy beats it. spa:
    p of the test of all these policies against all baselines (Hansen 2005). Of the policy that the
    report is about: psr: probability that the Sharpe ratio is above 0. dsr: deflated Sharpe ratio
    over `trials`, the distinct policies in the trial log. min_trl: days that the Sharpe ratio would
    need.
    pbo: probability of backtest overfitting over the trials; null_low, null_high: its 5 and 95 %
        points on noise of the
    same size. agents and improvement are absent where the sessions were trained on.
    """

    days: int
    seeds: int
    level: float
    daily: Estimate
    agents: NotRequired[dict[str, Estimate]]
    improvement: NotRequired[dict[str, Estimate]]
    psr: Estimate
    dsr: Estimate
    trials: int | None
    min_trl: Estimate
    spa: Estimate
    pbo: Estimate
    null_low: float | None
    null_high: float | None


class NullFigures(TypedDict):
    """The policy against null markets, as one result of a null test writes it.

    kind: of null market, e.g. `sign`. real: mean daily net profit on the real market, dollars;
        nulls: on each null
    market. draws_asked, draws_made: of null markets; fewer after an early stop. exceedances: nulls
    that reach the real value. p: (1 + exceedances) / (draws + 1), or after an early stop
    exceedances / draws. floor: the least p that so many draws allow. stop_at_exceedances: after
    which the test stops; None if it makes every draw.
    """

    name: str
    kind: str
    real: float
    nulls: list[float]
    draws_asked: int
    draws_made: int
    exceedances: int
    p: float
    floor: float
    seed: NotRequired[int]
    stop_at_exceedances: NotRequired[int | None]


class TrialFigures(TypedDict):
    """What the trial log said of the test sessions when the report was made.

    opened: times that they were looked at until then; the report itself is no look. at_evaluation:
        the same when the
    evaluation was made, it included; None where the evaluation does not say. trials: distinct
    policies that were evaluated on them. Where the log cannot tell, opened and trials are None, and
    `fault` says why. log: name of the file. first, last: UTC times.
    """

    opened: int | None
    at_evaluation: int | None
    trials: int | None
    fault: str | None
    log: str
    first: str | None
    last: str | None


class ChallengeOutcome(TypedDict):
    """Ends of simulated evaluation accounts of one agent: shares with intervals. days_to_pass:
    median sessions of accounts that passed. monte_carlo: standard error of `passed` from the number
    of accounts alone."""

    passed: Estimate
    bust: Estimate
    time_out: Estimate
    days_to_pass: float | None
    monte_carlo: float | None


class ChallengeFigures(TypedDict):
    """P(pass an evaluation account). rules: of the account, in words. days: sessions that were
    resampled. accounts,
    resamples: numbers of inner accounts and outer bootstraps. agents: agent -> ChallengeOutcome."""

    rules: str
    days: int
    accounts: int
    resamples: int
    agents: dict[str, ChallengeOutcome]
    notes: NotRequired[list[str]]


class GridFigures(TypedDict):
    """Net profit under other assumptions, as `evaluation.grids.to_json`. rows: assumption -> agent
    -> dollars. spread: agent -> largest less smallest."""

    rows: dict[str, dict[str, float | None]]
    spread: dict[str, float | None]
    notes: list[str]


class BreakdownCell(TypedDict):
    """One row of a breakdown. count: trades. mean: dollars per trade, None with few trades. total:
    dollars. p: against 0, corrected for the number of cells (Holm)."""

    name: str
    count: int
    mean: Estimate
    total: NotRequired[float | None]
    p: NotRequired[float | None]


class BreakdownTable(TypedDict):
    """A breakdown by one property of the trade. by: its name, e.g. `half hour`."""

    by: str
    cells: list[BreakdownCell]


class BreakdownFigures(TypedDict):
    """Trades by half hour, weekday, volatility tercile and exit reason."""

    tables: list[BreakdownTable]
    notes: list[str]


class AttributedPart(TypedDict):
    """A slot or feature group of the observation, and how much the policy depends on it."""

    name: str
    value: Estimate


class AttributionMethod(TypedDict):
    """One way to attribute. name: e.g. `gradient`. unit: of the values. about: what it measures, a
    sentence.
    """

    name: str
    unit: str
    about: str
    parts: list[AttributedPart]


class AttributionFigures(TypedDict):
    """Which parts of the observation the policy uses."""

    methods: list[AttributionMethod]
    notes: list[str]


class SeedFigures(TypedDict):
    """The agents of a run with several. shown: the one that the report is about. net: agent -> net
    profit, dollars.
    """

    shown: str
    net: dict[str, float]


class SessionRow(TypedDict):
    """One evaluated session of the shown agent, strategy pass. net, equity, drawdown: dollars;
    equity at its end, and the drop below the highest equity at any decision bar so far, at its
    deepest in the session."""

    date: str
    trades: int
    net: float
    equity: float
    drawdown: float


class AccountRow(TypedDict):
    """One account of the shown agent, account pass. floor: dollars, its last drawdown floor. end:
    None if open.
    """

    number: int
    first: str
    last: str
    sessions: int
    net: float
    floor: float | None
    end: str | None


class TrainingCurve(TypedDict):
    """A metric of training. x: environment steps. y: None where an update has no value."""

    name: str
    label: str
    x: list[int]
    y: list[float | None]


class TrainingFigures(TypedDict):
    """Training curves, at most some hundred points each, and what the run said of its health."""

    updates: int
    steps: int
    curves: list[TrainingCurve]
    health: list[dict[str, Any]]
    warnings: list[str]


class ReportData(TypedDict):
    """All figures of a report.

    title: market, split, agent, sessions, dates. settings, labels, agents, verdict: from
        `evaluation.json`.
    in_sample: settings and agents of the training sessions. seeds: None for a run of one agent.
        sessions, accounts,
    floor: of the shown agent. explorer: numbers of trades and bars, how many of them the page
        holds, and the curve of
    the equity. provenance: versions, commit, device, digests.
    """

    format: int
    title: dict[str, Any]
    settings: dict[str, Any]
    labels: list[str]
    agents: dict[str, Any]
    verdict: str
    in_sample: dict[str, Any] | None
    seeds: SeedFigures | None
    statistics: StatisticsFigures
    nulls: NullFigures | None
    other_nulls: list[NullFigures]
    trials: TrialFigures | None
    sessions: list[SessionRow]
    accounts: list[AccountRow]
    floor: dict[str, Any]
    challenge: ChallengeFigures | None
    costs: GridFigures | None
    intrabar: GridFigures | None
    latency: GridFigures | None
    breakdown: BreakdownFigures | None
    attribution: AttributionFigures | None
    training: TrainingFigures | None
    explorer: dict[str, Any]
    provenance: dict[str, Any]
