"""The generated parts of README.md and docs/benchmarks.md, as lines, from results and targets.

Both show the same short table of the targets with a `headline`; a ratio below one is called
*slower* in words. The page has all targets, their ceilings, and every figure of every result. A
figure whose result may not be quoted (`provenance.doubts`) is called *unverified* wherever it
stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxtrade.errors import DataError

from . import catalogue, figures, provenance, table, targets
from .targets import SHARE, Results, Target

MISSED, MET, UNMEASURED, UNVERIFIED = "**missed**", "met", "not measured", "unverified"
CLOCKS = {"wall": "by the clock", "cpu": "per CPU second"}
DOUBTED = (
    "Unverified: measured on a machine that was not idle. These figures will be measured again."
)


def rows(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        for row in (header, ["---"] * len(header), *cells)
    ]


def verdict(target: Target, results: Results) -> tuple[str, str]:
    """Measured figure and whether the target in force was met. Raises DataError for a miss without
    its reason.
    """
    _, value = target.measured(results)
    if value is None:
        return UNMEASURED, ""
    held = target.in_force(results)
    met, shown = held.met(value), figures.in_unit(value, target.unit)
    if not met and not target.note:
        raise DataError(
            f"{targets.FILE.name}: '{target.what}' was missed ({shown}, target {held.promise}): "
            "say why in its `note`"
        )
    return shown + doubt(target, results), MET if met else MISSED


def doubt(target: Target, results: Results) -> str:
    """What stands behind a figure that may not be quoted."""
    result = results.get(target.machine, {}).get(target.bench)
    return f", {UNVERIFIED}" if result is not None and provenance.doubts(result) else ""


def promise(target: Target, results: Results) -> str:
    """The target in force, and the one that was set, where it is above the ceiling."""
    held = target.in_force(results)
    moved = held.bound != target.bound
    return held.promise + (
        f" ({figures.in_unit(target.bound, target.unit)} is above the ceiling)" if moved else ""
    )


def ceiling(target: Target, results: Results) -> str:
    """A target's ceiling, `-` where it has none."""
    limit = target.limit(results)
    if not target.ceiling:
        return table.NOTHING
    return UNMEASURED if limit is None else figures.in_unit(limit, target.unit)


def words(ratio: float) -> str:
    """A ratio with what it means; *slower* as bold as *missed*."""
    said = figures.compared(ratio)
    return f"{figures.in_unit(ratio, 'x')}: {f'**{said}**' if said == 'slower' else said}"


def short(results: Results, chosen: Sequence[Target]) -> list[str]:
    """The table of the targets with a headline: the ratio by both clocks, in figures and in
    words.
    """
    cells = []
    for target in (each for each in chosen if each.headline):
        place, value = target.measured(results)
        ratio = (
            figures.at(results.get(target.machine, {}).get(target.bench, {}), place[:-1])
            if value
            else None
        )
        shown = [
            UNMEASURED if not ratio or clock not in ratio else words(ratio[clock])
            for clock in CLOCKS
        ]
        _, met = verdict(target, results)
        cells.append(
            [
                target.headline,
                *shown,
                f"{promise(target, results)}, {CLOCKS[target.at[-1]]}",
                met + (doubt(target, results) if met else ""),
            ]
        )
    return rows(("jaxtrade's speed over the other's", *CLOCKS.values(), "target", ""), cells)


def counted(results: Results, chosen: Sequence[Target]) -> str:
    """How many targets there are, and what became of them."""
    verdicts = [verdict(target, results)[1] for target in chosen]
    return (
        f"Of all {len(verdicts)} targets, {verdicts.count(MET)} are met, {verdicts.count(MISSED)} missed and "
        f"{verdicts.count('')} not measured."
    )


def misses(chosen: Sequence[Target], results: Results) -> list[str]:
    """Why targets were missed: each reason, and the targets that it explains."""
    missed: dict[str, list[str]] = {}
    for target in chosen:
        shown, met = verdict(target, results)
        if met == MISSED:
            missed.setdefault(target.note, []).append(
                f"  - {target.what}: {shown}, target {promise(target, results)}"
            )
    return (
        [
            "",
            "Missed, and why:",
            "",
            *(line for note, found in missed.items() for line in (f"- {note}", *found)),
        ]
        if missed
        else []
    )


def moved(chosen: Sequence[Target], results: Results) -> list[str]:
    """What became of the targets above their ceiling."""
    limited = [(target, limit) for target in chosen if (limit := target.limit(results)) is not None]
    above = [
        f"- {target.what}: the target was {figures.in_unit(target.bound, target.unit)}, set before anything was "
        f"measured. With the matrix products alone it would be {figures.in_unit(limit, target.unit)}. The target "
        f"is now {figures.in_unit(SHARE * limit, target.unit)}."
        for target, limit in limited
        if target.bound > limit
    ]
    unknown = sum(bool(target.ceiling) for target in chosen) - len(limited)
    said = [f"Not measured yet: the ceilings of {unknown} targets."] if unknown else []
    if limited and not above:
        said.insert(0, "No target is above its ceiling.")
    return [
        "",
        "## Targets above their ceiling",
        "",
        *said,
        *([""] if said and above else []),
        *above,
    ]


def sources(results: Results) -> Iterator[str]:
    """One line per machine and commit: what was measured there."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for machine, benches in results.items():
        for name, result in benches.items():
            stamp = result["stamp"]
            where = f"{stamp['device']}, {stamp['cores']} CPU cores, commit {stamp['commit']}"
            groups.setdefault((machine, where), []).append(f"`{name}`")
    for (machine, where), names in groups.items():
        yield f"- {f'`{machine}`: ' if machine else ''}{where}: {', '.join(names)}"


def readme(results: Results, chosen: Sequence[Target], picture_path: str | None) -> list[str]:
    """The generated part of README.md."""
    if not results:
        return ["Nothing is measured yet."]
    lines = [
        f"Every figure comes from a committed result ([bench/results](bench/results)). {counted(results, chosen)} "
        "All of them, the reasons, and how each was measured: [docs/benchmarks.md](docs/benchmarks.md).",
        "",
    ]
    if picture_path:
        lines += [
            f"![jaxtrade's speed over the other's, row by row; left of the line it is slower]({picture_path})",
            "",
        ]
    return [*lines, *short(results, chosen), *_footnote(results)]


def _footnote(results: Results) -> list[str]:
    doubted = any(provenance.doubts(result) for result in provenance.by_name(results).values())
    return ["", DOUBTED] if doubted else []


def page(results: Results, chosen: Sequence[Target], picture_path: str | None = None) -> list[str]:
    """The generated part of docs/benchmarks.md."""
    held = [
        [
            t.what,
            promise(t, results),
            *verdict(t, results),
            ceiling(t, results),
            f"`{t.source(t.measured(results)[0])}`",
        ]
        for t in chosen
    ]
    lines = [
        "## In short",
        "",
        *short(results, chosen),
        *_footnote(results),
        "",
        *sources(results),
        "",
        "## Targets",
        "",
        counted(results, chosen),
        "",
        *rows(("what", "target", "measured", "", "ceiling", "figure"), held),
        *misses(chosen, results),
        *moved(chosen, results),
    ]
    if picture_path:
        lines += [
            "",
            "## Environments side by side",
            "",
            f"![Environment steps per second by number of environments, every side]({picture_path})",
        ]
    for name, result in provenance.by_name(results).items():
        lines += ["", *_section(name, result)]
    absent = [
        f"`{name}`"
        for name in catalogue.BENCHES
        if name not in results.get("", {}) and name not in catalogue.SUITES
    ]  # a suite has no result of its own
    return [*lines, *(["", f"Not measured yet: {', '.join(absent)}."] if absent else [])]


def _section(name: str, result: Mapping[str, Any]) -> list[str]:
    """One result: where it comes from, all its tables, what was left out."""
    stamp, left_out, doubts = (
        result["stamp"],
        figures.find(result).left_out,
        provenance.doubts(result),
    )
    versions = ", ".join(f"{package} {version}" for package, version in stamp["versions"].items())
    load = "unknown" if stamp["load_before"] is None else f"{stamp['load_before']:.2f}"
    machine = f"{stamp['device']} ({stamp['platform']}, {stamp['devices']} device), {stamp['cores']} CPU cores"
    lines = [
        f"## {name}",
        "",
        f"{result['about'][:1].upper()}{result['about'][1:]}.",
        "",
        *([f"- **{UNVERIFIED}**: {'; '.join(doubts)}"] if doubts else []),
        f"- command: `{stamp['command']}`",
        f"- commit: {stamp['commit']}; load average before: {load}; {_steal(stamp)}",
        f"- machine: {machine}",
        f"- versions: {versions}",
        f"- configuration: `{json.dumps(result.get('config', {}))}`",
    ]
    for header, cells in table.tables(result):
        lines += ["", *rows(header, cells)]
    left = [f"- left out: {figures.label(place)}: {reason}" for place, reason in left_out.items()]
    return [*lines, *([""] if left else []), *left]


def _steal(stamp: Mapping[str, Any]) -> str:
    steal = stamp.get("steal", {"unknown": "it was not recorded"})
    if "unknown" in steal:
        return f"steal time unknown: {steal['unknown']}"
    return f"steal time: at most {figures.in_unit(steal['share'], '%')} of a side ({steal['side']})"
