"""Sections about how far to believe the figures, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import (
    SPLITS,
    Child,
    Markup,
    chosen_on,
    joined,
    missing,
    notes,
    ordinal,
    paragraph,
    sentence,
    spoken,
    table,
    tag,
    times,
    trained_on,
)
from jaxtrade.reporting.schema import Estimate, NullFigures, ReportData, TrainingCurve, command
from jaxtrade.text import several

Row = tuple[str, Child, Child]


def honesty(data: ReportData) -> Markup:
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


Side = dict[str, Any]  # settings, and figures of the strategy pass


def _each(key: str) -> Callable[[Side], float | None]:
    return lambda side: side["figures"][key]


def _per_session(key: str) -> Callable[[Side], float | None]:
    return lambda side: side["figures"][key] / side["sessions"]


def _sharpe(side: Side) -> float | None:
    return side["figures"]["sharpe_daily"] if side["sessions"] >= MIN_SESSIONS else None


def _costs(side: Side) -> float:
    return (side["figures"]["commission"] + side["figures"]["slippage"]) / side["sessions"]


ROWS: tuple[tuple[str, Callable[[Side], float | None], Callable[..., Child]], ...] = (
    ("Sessions", lambda side: side["sessions"], figures.count),
    ("Net profit", _each("net_profit"), figures.signed),
    ("Net profit per session", _per_session("net_profit"), figures.signed),
    ("Best session", _each("best_session"), figures.signed),
    ("Worst session", _each("worst_session"), figures.signed),
    ("Daily Sharpe ratio, annual", _sharpe, figures.number),
    ("Largest drawdown", _each("max_drawdown"), figures.money),
    ("Trades", _each("trades"), figures.count),
    ("Trades per session", _per_session("trades"), figures.number),
    ("Win rate", _each("win_rate"), figures.share),
    ("Profit factor", _each("profit_factor"), figures.number),
    ("Average trade", _each("average_trade"), figures.signed),
    ("Time in market", _each("exposure"), figures.share),
    ("Costs per session", _costs, figures.money),
)


def sides(data: ReportData) -> list[tuple[str, Side]]:
    """(name, figures) of each set of sessions that was evaluated: the report's own first."""
    agent = data["title"]["agent"]
    own = (
        SPLITS[data["title"]["split"]],
        {"sessions": data["settings"]["sessions"], "figures": data["agents"][agent]["strategy"]},
    )
    other = data["in_sample"]
    if other is None:
        return [own]
    return [
        own,
        (
            SPLITS["train"],
            {
                "sessions": other["settings"]["sessions"],
                "figures": other["agents"][agent]["strategy"],
            },
        ),
    ]


def sample(data: ReportData) -> Markup:
    """The table of both, or what is missing of it."""
    found = sides(data)
    rows = [(label, *(form(of(side)) for _, side in found)) for label, of, form in ROWS]
    heads = [f"{name[0].upper()}{name[1:]}" for name, _ in found]
    parts: list[Child] = [
        paragraph(
            "The same policy on both sets, account rules off. A policy that has learned something keeps most of "
            "its profit per session on days that it has not seen. Totals grow with the number of sessions, so "
            "compare the figures per session."
        ),
        table("Figures of the policy on both sets of sessions", ("Figure", *heads), rows),
    ]
    if data["in_sample"] is None and data["title"]["split"] != "train":
        parts.append(
            missing(command("in_sample", data["title"]), "In-sample figures are not computed")
        )
    return joined(parts)


POINTS = 8  # rows of the table of curves
HALF = 480  # width of one picture of two in a row


def training(data: ReportData) -> Markup:
    """Small pictures of the curves, a table of them at some steps, and the checks of health."""
    found = data["training"]
    if found is None:
        return paragraph("This folder has no metrics of a training (metrics.jsonl).", "missing")
    curves = found["curves"]
    parts: list[Child] = [
        paragraph(
            f"{found['updates']:,} updates, {found['steps']:,} environment steps. Many updates are averaged in "
            "groups."
        ),
        tag("div", *(_picture(curve) for curve in curves), class_="pair"),
    ]
    if curves:
        parts.append(_table(curves))
    if found["health"]:
        parts.append(
            table(
                "Checks of the training's health",
                ("Check", "Value", "Result"),
                [
                    (
                        spoken(each["name"]),
                        _value(each["value"]),
                        tag(
                            "span",
                            "passed" if each["passed"] else "failed",
                            class_=None if each["passed"] else "loss",
                        ),
                    )
                    for each in found["health"]
                ],
                words=(2,),
            )
        )
    return joined([*parts, notes(found["warnings"])])


def _picture(curve: TrainingCurve) -> Markup:
    last = curve["x"][-1]
    marks = [(at, short(at)) for at in svg.ticks(0, last, 4)]
    return tag(
        "figure",
        tag("figcaption", curve["label"]),
        svg.small_lines(
            curve["label"],
            curve["x"],
            [svg.Line(curve["name"], curve["y"], "s0")],
            short_value,
            marks,
            height=175,
            width=HALF,
        ),
    )


def short(value: float) -> str:
    """Steps in few characters: `250k`, `1.5M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def short_value(value: float) -> str:
    """A value of a metric on an axis."""
    return f"{value:.4g}".replace("-", figures.MINUS)


def _table(curves: list[TrainingCurve]) -> Markup:
    """The curves at some steps. All curves of the updates share their x; the validation scores have
    their own.
    """
    own = curves[0]["x"]
    at = sorted({round(i * (len(own) - 1) / (POINTS - 1)) for i in range(POINTS)})
    shared = [curve for curve in curves if curve["x"] == own]
    rows = [(f"{own[i]:,}", *(_value(curve["y"][i]) for curve in shared)) for i in at]
    tables = [table("Curves at some steps", ("Steps", *(curve["label"] for curve in shared)), rows)]
    tables += [
        table(
            curve["label"],
            ("Steps", curve["label"]),
            [(f"{x:,}", _value(y)) for x, y in zip(curve["x"], curve["y"], strict=True)],
            tall=len(curve["x"]) > 14,
        )
        for curve in curves
        if curve["x"] != own
    ]
    return joined(tables)


def _value(value: float | None) -> Markup:
    return (
        tag("span", figures.NONE, class_="na") if value is None else tag("span", short_value(value))
    )


def provenance(data: ReportData) -> Markup:
    """Versions, commit, device and digests; and the settings of the evaluation."""
    return joined(
        [
            paragraph(
                "The figures come from the files of the run's folder; nothing was trained or traded for this page."
            ),
            table(
                "Where the run comes from",
                ("Fact", "Value"),
                list(flat(data["provenance"])),
                words=(1,),
            ),
            table(
                "Settings of the evaluation",
                ("Setting", "Value"),
                list(flat(data["settings"])),
                words=(1,),
            ),
        ]
    )


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(name, value) of nested facts, in the order given."""
    for key, value in values.items():
        name = f"{before}{spoken(str(key))}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield (
                name,
                "none"
                if value is None
                else "yes"
                if value is True
                else "no"
                if value is False
                else str(value),
            )
