"""The readable table of a result, and of two results side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxtrade.text import aligned

from . import figures
from .figures import Place, label, number

NOTHING = "-"
WIDEST = 60  # characters of a value in a table; a longer one has lines of its own, or every line were as wide
WORDS = ("side", "figure", "ratio of medians", "also", "")  # headings of columns of words
PROVENANCE = ("device", "platform", "devices", "cores", "commit")


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text: words to the left, figures to the right."""
    words = [i for i, name in enumerate(header) if name in WORDS]
    return [f"  {line}" for line in aligned((header, *rows), words)]


SIDE_HEADER = ("side", "steps/s", "range", "steps/CPU-s", "range", "repeats", "also")
TIME_HEADER = ("side", "seconds", "range", "CPU seconds", "range", "repeats", "also")
RATIO_HEADER = ("ratio of medians", "wall", "CPU")
FIGURES = ("figure", "value")


def _measured(place: Place, side: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Median and range by the wall clock, then by the CPU's, repeats, and what else the side
    says.
    """
    cells = [label(place)]
    for key in keys:
        low, high = side[f"{key}_range"]
        cells += [number(side[key]), f"{number(low)} to {number(high)}"]
    return [*cells, str(side["repeats"]), figures.extras(side) or NOTHING]


def tables(result: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], list[list[str]]]]:
    """Header and rows of speeds, times, ratios and other figures, of those that a result has."""
    found = figures.find(result)
    yield from (
        (header, rows)
        for header, rows in (
            (
                SIDE_HEADER,
                [
                    _measured(*item, ("steps_per_second", "steps_per_cpu_second"))
                    for item in found.sides.items()
                ],
            ),
            (
                TIME_HEADER,
                [_measured(*item, ("seconds", "cpu_seconds")) for item in found.times.items()],
            ),
            (
                RATIO_HEADER,
                [
                    [
                        label(place),
                        *(
                            figures.in_unit(ratio[clock], "x") if clock in ratio else NOTHING
                            for clock in figures.CLOCKS
                        ),
                    ]
                    for place, ratio in found.ratios.items()
                ],
            ),
            (
                FIGURES,
                [
                    [label(place), figures.plain(value, place)]
                    for place, value in found.others.items()
                ],
            ),
        )
        if rows
    )


def text(result: Mapping[str, Any]) -> str:
    """Everything that a result says, for a terminal."""
    found, stamp = figures.find(result), result["stamp"]
    title = f"{result['bench']}: {result['about']}" + (
        " (quick: to see that it works, not to quote)" if result["quick"] else ""
    )
    lines = [title, "  " + ", ".join(f"{key} {stamp.get(key)}" for key in PROVENANCE)]
    if busy := result.get("reasons"):
        lines.append(f"  NOT IDLE: {'; '.join(busy)}")
    for header, rows in tables(result):
        fits = [row for row in rows if header != FIGURES or len(row[-1]) <= WIDEST]
        lines += ["", *align(header, fits)] * bool(fits)
        lines += [f"  {row[0]}: {row[-1]}" for row in rows if row not in fits]
    lines += [""] * bool(found.left_out)
    lines += [f"  left out: {label(place)}: {reason}" for place, reason in found.left_out.items()]
    return "\n".join(lines)


def flat(node: Any, place: Place = ()) -> dict[Place, Any]:
    """Place -> plain value, of a tree of dicts."""
    if isinstance(node, Mapping):
        return {
            below: value
            for key, child in node.items()
            for below, value in flat(child, (*place, str(key))).items()
        }
    return {place: node}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What makes two results hard to compare: machine, versions, configuration, a quick run."""

    def about(result: Mapping[str, Any]) -> dict[Place, Any]:
        stamp = {key: result["stamp"].get(key) for key in (*PROVENANCE, "versions")}
        return flat({"quick": result["quick"], **stamp, "config": result.get("config", {})})

    before, after = about(old), about(new)
    for place in dict.fromkeys((*before, *after)):
        if (one := before.get(place)) != (other := after.get(place)):
            yield f"{'.'.join(place)}: {json.dumps(one)} -> {json.dumps(other)}"


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _speeds(old: figures.Found, new: figures.Found) -> Iterator[list[str]]:
    kinds = (
        (
            old.sides,
            new.sides,
            {"steps_per_second": "steps/s", "steps_per_cpu_second": "steps/CPU-s"},
        ),
        (old.times, new.times, {"seconds": "seconds", "cpu_seconds": "CPU seconds"}),
    )
    for was, now, units in kinds:
        for place, side in now.items():
            if (before := was.get(place)) is None:
                continue
            for key, unit in units.items():
                same = _overlap(before[f"{key}_range"], side[f"{key}_range"])
                yield [
                    f"{label(place)}, {unit}",
                    number(before[key]),
                    number(side[key]),
                    f"{side[key] / before[key]:.3f}",
                    "ranges overlap" if same else "",
                ]


def _values(old: figures.Found, new: figures.Found) -> Iterator[list[str]]:
    def numbers(found: figures.Found) -> dict[Place, float]:
        ratios = {
            (*place, clock): value
            for place, ratio in found.ratios.items()
            for clock, value in ratio.items()
        }
        return {
            place: value
            for place, value in (*ratios.items(), *found.others.items())
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    before = numbers(old)
    for place, value in numbers(new).items():
        if (was := before.get(place)) is not None:
            yield [
                label(place),
                figures.plain(was, place),
                figures.plain(value, place),
                f"{value / was:.3f}" if was else NOTHING,
                "",
            ]


def comparison(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """New over old for every figure that both have; first what else differs between them, last what
    one lacks.
    """
    before, after = figures.find(old), figures.find(new)
    differ = list(differences(old, new))
    lines = [f"{new['bench']}: new against old", *(f"  differs: {line}" for line in differ)]
    if not differ:
        lines.append("  same device, commit, versions and configuration")
    rows = [*_speeds(before, after), *_values(before, after)]
    lines += (
        align(("figure", "old", "new", "new/old", ""), rows)
        if rows
        else ["  no figure that both have"]
    )
    for name, one, other in (("old", before, after), ("new", after, before)):
        there = {place for kind in other for place in kind}
        alone = [label(place) for kind in one for place in kind if place not in there]
        lines += [f"  only in {name}: {', '.join(alone)}"] if alone else []
    return "\n".join(lines)
