"""How far the figures can be believed: what stands before everything else."""

from __future__ import annotations

from typing import Any

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures
from jaxtrade.reporting.markup import Child, Markup, joined, notes, paragraph, table, tag
from jaxtrade.reporting.names import spoken, times
from jaxtrade.reporting.schema import COMMANDS, ReportData
from jaxtrade.text import several

TITLE = "How far to believe this"
Row = tuple[str, Child, Child]


def section(data: ReportData) -> Markup:
    """The panel: a question, its figure, and what the figure says; then the labels of the evaluation."""
    rows = [_days(data), *_seeds(data), *_statistics(data), _nulls(data), *_selection(data), _opened(data)]
    found = [table("What stands behind the figures of this report", ("Question", "Figure", "What it says"),
                   rows, words=(2,))]
    if data["labels"]:
        found += [tag("h3", "Limits of this evaluation"), notes(data["labels"])]
    return joined([paragraph(data["verdict"], "verdict"), *found])


def days_held_out(data: ReportData) -> int:
    """Sessions that the policy was not trained on. 0 if any of them may have been trained on."""
    seen = any(label.startswith("in sample") for label in data["labels"])
    return 0 if seen or data["title"]["split"] not in ("test", "validation") else data["settings"]["sessions"]


def _days(data: ReportData) -> Row:
    days = days_held_out(data)
    if not days:
        says = "The policy was trained on these sessions. They show how well it fits, and nothing about other days."
    elif days == 1:
        says = "One day proves nothing, whichever way it went."
    elif days < MIN_SESSIONS:
        says = (f"Too few days to tell skill from luck. Below {MIN_SESSIONS} sessions no Sharpe ratio is shown.")
    else:
        says = "Each session counts as one observation: trades of the same day are not independent."
    return "How many days were held out?", figures.count(days), says


def _seeds(data: ReportData) -> list[Row]:
    """What the other agents of the run made; nothing for a run of one."""
    found = data["seeds"]
    if found is None:
        return []
    nets = list(found["net"].values())
    says = (f"This page shows {spoken(found['shown'])} alone. The {len(nets)} policies made "
            f"{figures.plain_money(min(nets), plus=True)} to {figures.plain_money(max(nets), plus=True)}; the table "
            "of policies has each.")
    return [("How many policies were trained?", figures.count(len(nets)), says)]


def _absent(section: str) -> tuple[Child, Child]:
    """n/a, and the command that would compute it."""
    return tag("span", figures.NONE, class_="na"), joined(["Not computed: run ", tag("code", COMMANDS[section])])


def _figure(name: str, estimate: Any, form: str, digits: int, says: str) -> Row:
    """A row of the statistics. An undefined figure says why instead."""
    if estimate is None:
        return name, *_absent("statistics")
    if estimate["value"] is None:
        return name, tag("span", figures.NONE, class_="na"), estimate.get("why") or "Undefined."
    return name, figures.interval(estimate, form, digits), says


def _statistics(data: ReportData) -> list[Row]:
    found: Any = data["statistics"] or {}
    level = f"{100 * found['level']:.0f} %" if found else "95 %"
    seeds = several(found["seeds"], "seed") if found else ""
    return [
        _figure("What does a day earn?", found.get("daily"), "signed", 2,
                f"Interquartile mean of a day's net profit over {seeds}, with its {level} interval. An interval that "
                "contains 0 does not exclude luck."),
        _figure("Is the Sharpe ratio above 0?", found.get("psr"), "share", 1,
                "Probabilistic Sharpe ratio: the probability that the true ratio is above 0, given skew and tails."),
        _figure("How many days would it need?", found.get("min_trl"), "number", 0,
                "Minimum track record: days after which a Sharpe ratio of this size excludes 0 at 95 %."),
        _figure("Does it beat every baseline?", found.get("spa"), "number", 3,
                "p of the test for superior predictive ability against all baselines together. Small is good."),
    ]


def _nulls(data: ReportData) -> Row:
    question, found = "Do markets without structure do as well?", data["nulls"]
    if found is None:
        return question, *_absent("nulls")
    reached = times(found["exceedances"]) if found["exceedances"] else "not once"
    stopped = found["draws_made"] < found["draws_asked"]
    limit = "The test stopped there." if stopped else f"So many draws cannot give a p below {found['floor']:.3g}."
    says = (f"Of {several(found['draws_made'], 'null market')} ({found['kind']}) the real result was reached "
            f"{reached}. {limit}")
    return question, f"p = {found['p']:.3f}", says


def _selection(data: ReportData) -> list[Row]:
    found: Any = data["statistics"] or {}
    tried = found.get("trials")
    pbo = _figure("Is the best of them overfitted?", found.get("pbo"), "share", 1, "")
    if (found.get("pbo") or {}).get("value") is not None:
        low, high = found.get("null_low"), found.get("null_high")
        band = f" Noise of this size gives {figures.plain_share(low, 0)} to {figures.plain_share(high, 0)}." \
            if low is not None and high is not None else ""
        pbo = (pbo[0], pbo[1], f"Probability of backtest overfitting: how often the best trial in one half of the days "
               f"is below the median in the other.{band}")
    return [_figure("Was it picked from many?", found.get("dsr"), "share", 1,
                    f"Deflated Sharpe ratio over {several(tried, 'trial')}: the probability that the ratio beats the "
                    "best of so many trials without skill." if tried else ""), pbo]


def _opened(data: ReportData) -> Row:
    question, found = "How often were these sessions looked at?", data["trials"]
    if found is None:
        return question, *_absent("trials")
    opened = found["opened"]
    if opened is None:
        return question, tag("span", figures.NONE, class_="na"), f"The trial log cannot tell: {found['fault']}"
    says = ("This is the first look, the only one that is free of choice." if opened == 1 else
            "Each further look makes a good result less surprising.")
    tried = f" {found['trials']:,} policies were evaluated on them." if (found["trials"] or 0) > 1 else ""
    return question, times(opened), f"{says}{tried}"
