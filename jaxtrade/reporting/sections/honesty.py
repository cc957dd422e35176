"""How far the figures can be believed: what stands before everything else."""

from __future__ import annotations

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures
from jaxtrade.reporting.markup import Child, Markup, joined, notes, paragraph, table, tag
from jaxtrade.reporting.names import chosen_on, ordinal, sentence, spoken, times, trained_on
from jaxtrade.reporting.schema import Estimate, NullFigures, ReportData, command
from jaxtrade.text import several

TITLE = "How far to believe this"
Row = tuple[str, Child, Child]


def section(data: ReportData) -> Markup:
    """The panel: a question, its figure, and what the figure says; then the labels of the
    evaluation.
    """
    how, found = command("nulls", data["title"]), [data["nulls"], *data["other_nulls"]]
    rows = [
        days_row(days_held_out(data), chosen_on(data["labels"])),
        *_seeds(data),
        *_statistics(data),
        *(nulls_row(each, how) for each in found),
        *_selection(data),
        _opened(data),
    ]
    found = [
        table(
            "What stands behind the figures of this report",
            ("Question", "Figure", "What it says"),
            rows,
            words=(2,),
        )
    ]
    if data["labels"]:
        found += [tag("h3", "Limits of this evaluation"), notes(data["labels"])]
    return joined([paragraph(data["verdict"], "verdict"), *found])


def days_held_out(data: ReportData) -> int:
    """Sessions that neither trained the policy nor chose it. 0 if any of them may have done so."""
    used = trained_on(data["title"]["split"], data["labels"]) or chosen_on(data["labels"])
    return 0 if used else data["settings"]["sessions"]


def days_row(days: int, chosen: bool = False) -> Row:
    """How many days were held out, and what that number is worth. chosen: whether the policy was
    chosen on them.
    """
    if chosen:
        says = "The policy was chosen by its scores on these sessions. They flatter it, and prove nothing."
    elif not days:
        says = "The policy was trained on these sessions. They show how well it fits, and nothing about other days."
    elif days == 1:
        says = "One day proves nothing, whichever way it went."
    elif days < MIN_SESSIONS:
        says = f"Too few days to tell skill from luck. Below {MIN_SESSIONS} sessions no annual Sharpe ratio is shown."
    else:
        says = "Each session counts as one observation: trades of the same day are not independent."
    return "How many days were held out?", figures.count(days), says


def _seeds(data: ReportData) -> list[Row]:
    """What the other agents of the run made; nothing for a run of one."""
    found = data["seeds"]
    if found is None:
        return []
    nets = list(found["net"].values())
    least, most = (
        tag("span", figures.plain_money(end, plus=True), class_="whole")
        for end in (min(nets), max(nets))
    )
    says = joined(
        [
            f"This page shows {spoken(found['shown'])} alone. The {len(nets)} policies made ",
            least,
            " to ",
            most,
            "; the table of policies has each.",
        ]
    )
    return [("How many policies were trained?", figures.count(len(nets)), says)]


def figure_row(name: str, estimate: Estimate, form: str, digits: int, says: str) -> Row:
    """A row of the panel with a figure of the statistics. An undefined figure says why instead."""
    if estimate["value"] is None:
        return name, absent(), sentence(estimate.get("why") or "undefined")
    return name, figures.interval(estimate, form, digits), says


def absent() -> Markup:
    """The figure of a row that has none."""
    return tag("span", figures.NONE, class_="na")


def _statistics(data: ReportData) -> list[Row]:
    found = data["statistics"]
    seeds = found["seeds"]
    daily = (
        "Mean of a day's net profit."
        if seeds == 1
        else f"Interquartile mean of a day's net profit over {several(seeds, 'seed')}."
    )
    if found["daily"].get("low") is not None:
        daily += f" In brackets its {100 * found['level']:.0f} % interval: if it contains 0, luck is not excluded."
    of = "" if data["seeds"] is None else f" of {spoken(data['seeds']['shown'])}"
    policies = (
        "the policy beats"
        if seeds == 1
        else (f"at least one of the {seeds} policies, perhaps another one for each baseline, beats")
    )
    return [
        figure_row("What does a day earn?", found["daily"], "signed", 2, daily),
        figure_row(
            "Is the Sharpe ratio above 0?",
            found["psr"],
            "share",
            1,
            f"Probabilistic Sharpe ratio{of}: the probability that the true ratio is above 0, given skew and "
            "tails. In brackets: how far that of another record of the same length may lie.",
        ),
        figure_row(
            "How many days would it need?",
            found["min_trl"],
            "number",
            0,
            f"Minimum track record: days after which such a Sharpe ratio excludes 0 at 95 %. There are "
            f"{found['days']:,}.",
        ),
        figure_row(
            "Does it beat every baseline?",
            found["spa"],
            "number",
            3,
            f"p of the test for superior predictive ability: whether {policies} each of the baselines. Small is "
            "good.",
        ),
    ]


def nulls_row(found: NullFigures | None, how: str) -> Row:
    """The result among those of null markets. how: the command that computes them."""
    question = "Do markets without structure do as well?"
    if found is None:
        return question, absent(), joined(["Not computed: run ", tag("code", how)])
    reached = times(found["exceedances"]) if found["exceedances"] else "not once"
    stopped = found["draws_made"] < found["draws_asked"]
    limit = (
        "The test stopped there."
        if stopped
        else f"So many draws cannot give a p below {found['floor']:.3g}."
    )
    says = (
        f"Of {several(found['draws_made'], 'null market')} ({found['kind']}) the real result was reached "
        f"{reached}. {limit}"
    )
    return question, f"p = {found['p']:.3f}", says


def _selection(data: ReportData) -> list[Row]:
    found = data["statistics"]
    low, high = found["null_low"], found["null_high"]
    of = "" if data["seeds"] is None else f" of {spoken(data['seeds']['shown'])}"
    band = (
        f" Noise of this size gives {figures.plain_share(low, 0)} to {figures.plain_share(high, 0)}."
        if low is not None and high is not None
        else ""
    )
    return [
        figure_row(
            "Was it picked from many?",
            found["dsr"],
            "share",
            1,
            f"Deflated Sharpe ratio{of} over {several(found['trials'] or 0, 'trial')}: the probability that "
            "the ratio beats the best of so many trials without skill.",
        ),
        figure_row(
            "Is the best of them overfitted?",
            found["pbo"],
            "share",
            1,
            "Probability of backtest overfitting: how often the trial that is best on one half of the days is "
            f"below the median on the other.{band}",
        ),
    ]


def _opened(data: ReportData) -> Row:
    question, found = "How often were these sessions looked at?", data["trials"]
    if found is None:
        return question, absent(), "The trial log counts the test split alone."
    opened, then = found["opened"], found["at_evaluation"]
    if opened is None:
        return question, absent(), f"The trial log cannot tell: {found['fault']}"
    says = [
        "The trial log beside the run knows of no earlier look."
        if opened == 1
        else "Counted until this report was made. Each further look makes a good result less surprising."
    ]
    if then is not None and opened > 1:
        says.append(f"This evaluation was the {ordinal(then)} look.")
    if (found["trials"] or 0) > 1:
        says.append(f"{found['trials']:,} policies were evaluated on them.")
    return question, times(opened), " ".join(says)
