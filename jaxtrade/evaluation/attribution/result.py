"""What an attribution found, as text and as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtrade.text import aligned, several


@dataclass(frozen=True)
class SlotMethod:
    """One method. unit: of its values, `share` or `dollars`. about: what it measures, a sentence.
    values: one for each group; None where it cannot be given, and why."""

    name: str
    unit: str
    about: str
    values: tuple[float | None, ...]
    why: str | None = None


@dataclass(frozen=True)
class SlotAttribution:
    """How much a policy depends on each group of slots. groups: names, and how many slots each
    has.
    """

    groups: tuple[tuple[str, int], ...]
    methods: tuple[SlotMethod, ...]
    notes: tuple[str, ...] = ()
    title: str = "attribution"


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "n/a"
    return f"{100 * value:.2f} %" if unit == "share" else f"{value:+,.2f}"


def table(found: SlotAttribution) -> str:
    """The attribution as text: a row for each group, in the order of the observation, and a column
    for each method.
    """
    cells = [
        [
            "part of the observation",
            "slots",
            *(f"{each.name}{' ($)' if each.unit == 'dollars' else ''}" for each in found.methods),
        ]
    ]
    for number, (name, size) in enumerate(found.groups):
        cells.append(
            [
                f"  {name}",
                f"{size}",
                *(_cell(each.values[number], each.unit) for each in found.methods),
            ]
        )
    notes = [
        f"{each.name}: {each.about}" if each.why is None else f"{each.name}: n/a: {each.why}"
        for each in found.methods
    ]
    return "\n".join([*aligned(cells), *(f"NOTE: {note}" for note in [*notes, *found.notes])])


def to_json(found: SlotAttribution) -> dict[str, Any]:
    """The attribution as JSON values: for each method its parts, with `why` where there is no
    value.
    """

    def part(name: str, value: float | None, why: str | None) -> dict[str, Any]:
        return {
            "name": name,
            "value": {"value": value} | ({} if value is not None else {"why": why}),
        }

    methods = [
        {
            "name": each.name,
            "unit": each.unit,
            "about": each.about,
            "parts": [
                part(name, value, each.why)
                for (name, _), value in zip(found.groups, each.values, strict=True)
            ],
        }
        for each in found.methods
    ]
    return {"methods": methods, "notes": list(found.notes), "slots": dict(found.groups)}


def counted(decisions: int, used: int) -> str:
    """Which decisions two of the methods looked at."""
    choices = f"{several(decisions, 'decision')} with at least two legal actions"
    return choices if used == decisions else f"{used:,} of {choices}, drawn by the run's seed"
