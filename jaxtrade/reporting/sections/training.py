"""How the policy was trained: its curves, and what the run said of its health."""

from __future__ import annotations

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Child, Markup, joined, notes, paragraph, table, tag
from jaxtrade.reporting.names import spoken
from jaxtrade.reporting.schema import ReportData, TrainingCurve

TITLE = "Training"
POINTS = 8  # rows of the table of curves
HALF = 480  # width of one picture of two in a row


def section(data: ReportData) -> Markup:
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
