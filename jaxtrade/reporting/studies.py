"""What other commands leave for a report, and its statistics.

A study is a file of its name in the folder of the evaluation. The statistics say what its daily net
profit proves, and how often its test days were looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.nulls.spec import NULL_KINDS
from jaxtrade.evaluation.metrics import CHOSEN_HERE
from jaxtrade.evaluation.run_days import bars_of, evaluated_records
from jaxtrade.evaluation.statistics import (
    LEAST_SEEDS,
    LEVEL,
    ONE_POLICY,
    IntervalEstimate,
    Overfitting,
    iqm_estimate,
    min_trl,
    probability_of_improvement,
    psr,
    spa,
)
from jaxtrade.evaluation.test_set_history import (
    PREFIX,
    HeldOutDays,
    SplitHistory,
    with_policy,
    with_trials,
)
from jaxtrade.reporting import schema
from jaxtrade.reporting.schema import Figures
from jaxtrade.runs.trial_log import counted_until_now
from jaxtrade.storage import digests

NULLS = "nulls"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file as it was written.

    Raises DataError if it cannot be read, or has changed since.
    """
    return digests.read_json(path, "evaluate the run again: jaxtrade evaluate RUN")


def trained_on(split: str, labels: Sequence[str]) -> bool:
    """Return whether the policy was trained on some of the sessions. labels: of the evaluation."""
    return split in ("train", "all") or any(label.startswith("in sample") for label in labels)


def chosen_on(labels: Sequence[str]) -> bool:
    """Return whether the policy was chosen by its scores on the sessions.

    labels: of the evaluation.
    """
    return any(CHOSEN_HERE in label for label in labels)


@dataclass(frozen=True)
class ReportChoice:
    """Which evaluation a report is about.

    folder: of its files.
    number, agent: of the policy, and its folder, "" for a run of one.
    symbol: "" for a run of one symbol.
    """

    run: Path
    config: RunConfig
    manifest: dict[str, Any]
    split: str
    number: int
    agent: str
    symbol: str

    @property
    def folder(self) -> Path:
        """The folder of the evaluation's files."""
        return self.folder_of(self.split)

    def folder_of(self, split: str) -> Path:
        """Return the folder of the same agent and symbol, for another split."""
        parts = [each for each in (self.agent, self.symbol) if each]
        return self.run.joinpath("evaluation", split, *parts)


def optional_sections(
    of: ReportChoice, policy: str | None, agent: str, title: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Collect the sections that other commands compute for this kind of run, and notes on them.

    A section is None where there is no file. The notes are what the reader has to know of them. A
    section that was made for another policy than the evaluation is left out, and a label says so:
    the run went on since then.

    Args:
        policy: its sha256, None in an evaluation of an earlier version.
        agent: the shown agent's name.
        title: of the report.
    """
    sections: dict[str, Any] = {}
    labels = []
    names = schema.OF_ACCOUNT if of.config.env.joint else schema.OPTIONAL
    for name in names:
        if name in ("in_sample", NULLS):
            continue
        sections[name] = _read(of.folder / f"{name}.json")
        if sections[name] and _other(sections[name], of.number, policy):
            sections[name] = None
            labels.append(_stale(name, title))
    if NULLS not in names:
        return sections, labels
    tests, about = _nulls(of, policy, agent, title)
    first, *others = tests or [None]
    return sections | {NULLS: first, "other_nulls": others}, [*labels, *about]


def _read(path: Path) -> dict[str, Any] | None:
    """Read a document without its part about the trial log: the page has the current count."""
    if not path.is_file():
        return None
    document = read_json(path)
    if "notes" in document:
        document["notes"] = [line for line in document["notes"] if not line.startswith(PREFIX)]
    return document


def _other(document: Mapping[str, Any], number: int, policy: str | None) -> bool:
    """Return whether a document is about another policy.

    One of an earlier version does not say of which it is.
    """
    found = document.get("policy_sha256")
    if isinstance(found, dict):  # of several policies, by their numbers
        found = found.get(str(number))
    return bool(found and policy) and found != policy


def _stale(section: str, title: Mapping[str, Any]) -> str:
    return (
        f"left out: {section.replace('_', ' ')} was made for an earlier policy of this run; make it again: "
        f"{schema.command(section, title)}"
    )


def _nulls(
    of: ReportChoice, policy: str | None, agent: str, title: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Collect the results of the shown agent against each kind of null market, and notes on them.

    The notes are what the reader has to know of the results. A run with several seeds keeps those
    that pool them in the folder of the split.
    """
    pooled = bool(of.agent) and not of.config.sweep.on
    folders = [*([of.run / "evaluation" / of.split] if pooled else []), of.folder]
    files = [f"{NULLS}_{kind}.json" for kind in NULL_KINDS]
    if not any((folder / name).is_file() for folder in folders for name in files):
        files = [
            f"{NULLS}.json"
        ]  # of an earlier version, which kept the kind that was asked for last
    found, labels, stale = [], [], False
    for name in files:
        document = next((each for folder in folders if (each := _read(folder / name))), None)
        if not document or agent not in document["results"]:
            continue
        if _other(document, of.number, policy):
            stale = True
            continue
        found.append(document["results"][agent])
        policies = document.get("policy_sha256", {})
        pooled = f" of {len(policies)} policies together" if len(policies) > 1 else ""
        labels.append(
            f"null markets ({found[-1]['kind']}): the result{pooled} without training anew; p is about these "
            "sessions alone, not about the way the policy was trained"
        )
    return found, [*([_stale(NULLS, title)] if stale else []), *labels]


TRAINED = "the policy was trained on some of these sessions"
CHOSEN = "the policy was chosen on these very sessions"
NOT_TEST = "the trial log counts the test split alone"
NO_COUNT = "the trial log cannot tell how many trials there were"
NO_RULES = "no baseline was evaluated"
OF_SET = "the trial log holds the profit of all symbols together, not that of one"
SAMPLED = "sampled"  # how the names of a policy's sampled agents begin


@dataclass(frozen=True)
class SeedDays:
    """Daily net profit of the policies of a run and of the agents beside them, on the same days.

    net: float64[S, A, D] dollars by policy, agent and day, account rules off.
    agents: A names, the policy's own first.
    own: index of the policy that the report is about.
    dates: datetime64[D][D].
    """

    net: np.ndarray
    agents: tuple[str, ...]
    own: int
    dates: np.ndarray

    @property
    def record(self) -> np.ndarray:
        """float64[D]: the daily net profit of the policy that the report is about."""
        return self.net[self.own, 0]

    @property
    def rules(self) -> list[int]:
        """The agents that no training changes, as places in `agents`."""
        return [i for i, name in enumerate(self.agents) if i and not name.startswith(SAMPLED)]


def read_days(of: ReportChoice, alike: bool) -> SeedDays:
    """Read the days of a run's evaluation.

    Raises DataError where a file is damaged, or policies have different days.

    alike: whether the run's policies differ by their seeds alone. If they do not, only the policy
        that the report is about is read: policies of different settings are no sample of one kind
        of training.
    """
    policy = of.agent.replace("_", " ")
    records = evaluated_records(of.run, of.split, of.symbol)
    chosen = records if alike else {policy: records[policy]}
    first = records[policy]
    order = [
        first.agents.index(first.shown),
        *(i for i, name in enumerate(first.agents) if name != first.shown),
    ]
    return SeedDays(
        np.stack([each.daily_net[order] for each in chosen.values()]),
        tuple(first.agents[i] for i in order),
        list(chosen).index(policy),
        first.dates,
    )


# --- the trial log ---------------------------------------------------------------------------------------------------


def history_now(of: ReportChoice, policy: str, days: SeedDays) -> SplitHistory | None:
    """Return the current trial log of the test days, with PSR, DSR and PBO that follow from it.

    They are as an evaluation gives them. The report itself is no look. None where the report shows
    no test day.

    policy: its sha256, or its number where that is known.
    """
    split, data = of.split, of.manifest["data_sha256"]
    if split in ("train", "validation"):
        return None
    if split == "all" and not (of.run / "evaluation" / "test").is_dir():
        return SplitHistory(
            None, None, "the test sessions were not evaluated by themselves", False, ""
        )
    # Of several symbols the days on which any of them traded.
    shown = "test" if split == "all" else split
    records = next(iter(evaluated_records(of.run, shown).values()))
    dates = tuple(records.dates.astype(str).tolist())
    trial = (of.manifest["config_sha256"], data, policy)
    found = counted_until_now(of.run, HeldOutDays(data, dates, bars_of(records)), trial)
    if split == "all":
        return found.history
    if of.symbol:
        return replace(
            found.history,
            psr=psr(days.record),
            dsr=IntervalEstimate(why=OF_SET),
            pbo=Overfitting(why=OF_SET),
        )
    return with_policy(with_trials(found.history, found.matrix), days.record, found.matrix)


def trial_metrics(history: SplitHistory | None, then: dict[str, Any] | None) -> Figures | None:
    """Return what the page says of the trial log.

    The log's folder is left out: runs move. None where the report shows no test day.

    then: what `evaluation.json` says of it, None where it says nothing.
    """
    if not history:
        return None
    fault, log = history.fault, Path(history.log)
    if fault:
        fault = fault.replace(f"{log.parent}/", "")
    return {
        "opened": history.opened,
        "at_evaluation": then and then["opened"],
        "trials": history.trials,
        "fault": fault,
        "log": log.name,
        "first": history.first,
        "last": history.last,
    }


# --- the figures -----------------------------------------------------------------------------------------------------


def metric_lines(days: SeedDays, history: SplitHistory | None, why: str | None) -> Figures:
    """Compute all statistics of the report.

    why: `TRAINED` or `CHOSEN` where the record of these days proves nothing; every metric is then
        None and says so.
    """
    seeds, _, count = days.net.shape
    trials = history and history.trials
    if why:
        none = {"value": None, "why": why}
        return {
            "days": count,
            "seeds": seeds,
            "level": LEVEL,
            **dict.fromkeys(("daily", "psr", "dsr", "min_trl", "spa", "pbo"), none),
            "trials": trials,
            **dict.fromkeys(("null_low", "null_high")),
        }
    agents = {name: _daily(days, i) for i, name in enumerate(days.agents)}
    deflated, overfitted = _of_trials(history)
    return {
        "days": count,
        "seeds": seeds,
        "level": LEVEL,
        "daily": agents[days.agents[0]],
        "agents": agents,
        "improvement": {days.agents[i]: _improvement(days, i) for i in days.rules},
        "psr": psr(days.record)._asdict(),
        "dsr": deflated._asdict(),
        "min_trl": min_trl(days.record)._asdict(),
        "spa": _spa(days),
        "pbo": {"value": overfitted.value, "why": overfitted.why},
        "trials": trials,
        "null_low": overfitted.null_low,
        "null_high": overfitted.null_high,
    }


def _of_trials(history: SplitHistory | None) -> tuple[IntervalEstimate, Overfitting]:
    """Return DSR and PBO, or why there are none."""
    if history and not history.fault and history.dsr and history.pbo:
        return history.dsr, history.pbo
    why = NO_COUNT if history and history.fault else NOT_TEST
    return IntervalEstimate(why=why), Overfitting(why=why)


def _spa(days: SeedDays) -> Figures:
    """Return p of the hypothesis that some baseline is beaten by no policy of the run."""
    if not days.rules:
        return {"value": None, "why": NO_RULES}
    names = [days.agents[i] for i in days.rules]
    found = spa(days.net[:, 0].T, days.net[days.own, days.rules].T, names=names)
    return {"value": found.consistent, "why": found.why}


def _daily(days: SeedDays, agent: int) -> Figures:
    """Estimate what a day earns, by agent.

    A rule that does the same for every policy is one row. Of it, and of fewer policies than give an
    interval of seeds, days alone are drawn: the interval says nothing of other seeds.
    """
    net = days.net[:, agent]
    rule = agent in days.rules and _same(net)
    alone = rule or len(net) < LEAST_SEEDS
    return iqm_estimate(net[:1] if rule else net, rule=alone)._asdict()


def _improvement(days: SeedDays, agent: int) -> Figures:
    """Estimate the probability that a seed of the policy makes more than a rule.

    n/a without an interval: one seed gives 0 or 1.
    """
    rival = days.net[:, agent]
    found = probability_of_improvement(days.net[:, 0], rival, rule=_same(rival))
    if len(days.net) == 1:
        return {"value": None, "why": ONE_POLICY}
    return found._asdict()


def _same(net: np.ndarray) -> bool:
    return bool((net == net[0]).all())
