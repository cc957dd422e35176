"""Where the figures come from: what would have to be equal for them to be made again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jaxtrade.reporting.markup import Markup, joined, paragraph, table
from jaxtrade.reporting.names import spoken
from jaxtrade.reporting.schema import ReportData

TITLE = "Provenance"


def section(data: ReportData) -> Markup:
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
