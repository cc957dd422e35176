"""Which parts of the observation the policy uses."""

from __future__ import annotations

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Child, Markup, joined, missing, notes, paragraph, table, tag
from jaxtrade.reporting.names import capital, sentence
from jaxtrade.reporting.schema import AttributionMethod, ReportData, command

TITLE = "What the policy looks at"
FORMS = {"share": ("share", 1), "dollars": ("signed", 2)}  # unit -> how its values are shown


def section(data: ReportData) -> Markup:
    """A picture and a table for each method."""
    found = data["attribution"]
    if found is None:
        return missing(command("attribution", data["title"]))
    parts: list[Child] = [paragraph("The methods measure different things, and need not agree.")]
    for each in found["methods"]:
        parts += [
            tag("h3", capital(each["name"])),
            paragraph(sentence(each["about"])),
            _method(each),
        ]
    return joined([*parts, notes(found["notes"])])


def _method(each: AttributionMethod) -> Markup:
    form, digits = FORMS.get(each["unit"], ("number", 3))
    show = figures.FORMS[form]
    rows = [
        svg.Dot(
            part["name"],
            part["value"]["value"],
            show(part["value"]["value"], digits),
            "s0",
            part["value"].get("low"),
            part["value"].get("high"),
        )
        for part in each["parts"]
    ]
    cells = [
        (part["name"], figures.interval(part["value"], form, digits)) for part in each["parts"]
    ]
    return joined(
        [
            svg.dots(
                f"{each['name']}: {each['unit']} by part of the observation",
                rows,
                lambda value: show(value, 0 if form != "number" else 2),
            ),
            table(
                f"{capital(each['name'])}, by part of the observation",
                ("Part", each["unit"]),
                cells,
                tall=len(cells) > 14,
            ),
        ]
    )
