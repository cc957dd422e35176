"""Where figures may stand, and whether generated ones are in the results: written apart from the
generator.

`claims` finds figures of speed, time or memory in prose. `stray` finds numbers of a generated part that the results,
at the very place that the row names, do not hold.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_NUMBER = r"(?<![\w.])\d[\d,.]*(?:\s?(?:k|M|G|thousand|million|billion)\b)?"
_WORD = r"\b(?:two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|(?:a )?hundreds?|(?:a )?thousands?)"
_MANY = rf"(?:{_NUMBER}\s*-?|{_WORD}[\s-](?:of\s)?)"
_THINGS = r"(?:env(?:ironment)?[\s-]*)?(?:steps?|updates?|frames?|samples?|transitions?|bars|seeds|runs|episodes)"
_TIME = r"(?:s|ms|us|µs|sec|seconds?|milliseconds?|microseconds?|minutes?)\b"
_FASTER = (
    r"(?:faster|slower|quicker|as (?:fast|quick|slow|many steps|much memory)|less memory|more steps"
    r"|the (?:speed|throughput))"
)
CLAIMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_MANY}\s*{_THINGS}\s*(?:/|(?:per|a|an|each|every)\b)\s*(?:\w+[-\s])?(?:s\b|sec|second|minute|hour|core)",
        rf"{_NUMBER}\s*(?:SPS|FPS|[KMGT]?FLOP/?s?|[GT]F/s|GB/s)\b",
        rf"(?<![\w.])\d[\d,.]*\s?(?:k|M|G)\s+{_THINGS}",
        rf"(?:{_NUMBER}\s*(?:x|\u00d7|times|-?fold|%)|{_WORD}[\s-]times|\btwice|\bhalf)\s+{_FASTER}",
        rf"(?:{_NUMBER}\s*(?:x|\u00d7|times|-?fold)|{_WORD}[\s-](?:times|fold))\s+(?:speed-?ups?|acceleration)",
        rf"(?:speed-?ups?|faster|slower|acceleration)\s+(?:of|by|than\s+\w+\s+by)\s+(?:about\s+|some\s+)?{_MANY}",
        rf"{_MANY}\s*{_TIME}\s+(?:to|of|for)\s+(?:compil\w*|train\w*|start\w*|trac\w*|a\s+step|an\s+update)",
        rf"(?:compil\w+|trac(?:es|ing)|starts?(?:-up)?|trains?|updates?)\s+(?:takes?|took|in|within|costs?|needs?)\s+"
        rf"(?:about\s+|some\s+|under\s+|less\s+than\s+)?{_MANY}\s*{_TIME}",
        rf"{_NUMBER}\s*(?:B|kB|MB|GB|bytes)\s*(?:/|(?:per|an?|(?:for|of) each)\b)\s*(?:\w+\s)?"
        r"(?:env\w*|steps?|seeds?|agents?)\b",
        rf"(?:RAM|resident|memory)\s+(?:of|is|takes|needs|peaks at)\s+(?:about\s+|some\s+)?{_NUMBER}\s*(?:kB|MB|GB)",
    )
)
GENERATED = re.compile(r"<!-- bench:begin -->.*?<!-- bench:end -->", re.DOTALL)
COMMIT = re.compile(r"\bcommit:? [0-9a-f]{7,40}\b")  # 64e4999 is one, and no number
NUMBER = re.compile(
    r"(?<![\w.@/])(-?\d+(?:,\d{3})*(?:\.\d+)*(?:e[+-]?\d+)?)\s?([kMG]?)(B\b|%|x\b)?"
)
GENERAL = (
    "Targets",
    "Targets above their ceiling",
    "Environments side by side",
)  # sections of no one result
SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def claims(text: str) -> Iterator[tuple[int, str]]:
    """(line, words) of figures of speed, time or memory outside the generated part."""
    prose = GENERATED.sub(lambda found: "\n" * found[0].count("\n"), text)
    seen = {}
    for pattern in CLAIMS:
        for found in pattern.finditer(prose):
            seen.setdefault(prose.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))
    yield from sorted(seen.items())


def generated_part(text: str) -> str:
    found = GENERATED.search(text)
    assert found is not None, "no generated part"
    return found[0]


def _holds(value: float, digits: str, scale: float) -> bool:
    """Whether a printed figure is this value: to its last digit, or to three significant ones where
    it has no more.
    """
    bare = digits.replace(",", "")
    shown = float(bare) * scale
    last = scale * 10.0 ** -len(bare.partition("e")[0].partition(".")[2])
    if len(bare.partition("e")[0].lstrip("-").replace(".", "").strip("0")) <= 3 and shown:
        last = max(last, 10.0 ** (math.floor(math.log10(abs(shown))) - 2))
    return abs(value - shown) <= last / 2 * (1 + 1e-9)


def _values(node: Any) -> Iterator[float | str]:
    """Numbers below a node, and the words that hold some: keys and strings."""
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield str(key)
            yield from _values(child)
    elif isinstance(node, list | tuple):
        yield len(node)
        for child in node:
            yield from _values(child)
    elif isinstance(node, str):
        yield node
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield float(node)


def unfounded(text: str, nodes: Any) -> list[str]:
    """Numbers in `text` that nothing below `nodes` holds."""
    values = list(_values(nodes))
    words = " ".join(value for value in values if isinstance(value, str))
    numbers = [value for value in values if not isinstance(value, str)]
    missing = []
    for found in NUMBER.finditer(COMMIT.sub("", text)):
        digits, letter, unit = found.groups()
        scale = SCALE[letter] * (0.01 if unit == "%" else 1.0)
        verbatim = re.search(rf"(?<![\d.]){re.escape(digits)}(?!\.?\d)", words)
        version = digits.count(".") > 1
        if not verbatim and (version or not any(_holds(value, digits, scale) for value in numbers)):
            missing.append(found[0].strip())
    return missing


def _below(node: Any, label: str) -> list[Any]:
    """What stands at the places that a table calls `label` (keys joined by " / "; `sides` and
    `ratios` left out).
    """
    if not label:
        return [node]
    found = []
    items = (
        node.items()
        if isinstance(node, Mapping)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, child in items:
        if key in ("sides", "ratios", "left_out"):
            found += _below(child, label)
        elif label == str(key):
            found.append(child)
        elif label.startswith(f"{key} / "):
            found += _below(child, label[len(str(key)) + 3 :])
    return found


def _dotted(node: Any, path: str) -> list[Any]:
    """What stands at a dotted path, whose keys may have dots themselves."""
    if not path:
        return [node]
    items = (
        node.items()
        if isinstance(node, Mapping)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [
        value
        for key, child in items
        if path == str(key) or path.startswith(f"{key}.")
        for value in _dotted(child, path[len(str(key)) + 1 :])
    ]


def verdict_counts(part: str) -> dict[str, int]:
    """How many targets the table has, and how many of each verdict."""
    verdicts = [row[3] for row in target_rows(part)]
    return {"all": len(verdicts), **{verdict: verdicts.count(verdict) for verdict in verdicts}}


def counted_again(part: str) -> str:
    """The sentence that counts the rows of the table of targets."""
    counts = {"**missed**": 0, "met": 0, "": 0} | verdict_counts(part)
    return (
        f"Of all {counts['all']} targets, {counts['met']} are met, {counts['**missed**']} missed and "
        f"{counts['']} not measured."
    )


def cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def target_rows(part: str) -> list[list[str]]:
    """Rows of the table of targets: what, target, measured, verdict, ceiling, the figure's
    place.
    """
    rows = [cells(line) for line in part.splitlines() if line.startswith("|")]
    start = next(
        (i for i, row in enumerate(rows) if row[:3] == ["what", "target", "measured"]), len(rows)
    )
    found = []
    for row in rows[start + 2 :]:
        if len(row) != len(rows[start]) or row[0] == "side":
            break
        found.append(row)
    return found


COUNTED = re.compile(r"Of all \d+ targets,.*?not measured\.")
SHORT_HEADER = [
    ["jaxtrade's speed over the other's", "by the clock", "per CPU second", "target", ""],
    ["---"] * 5,
]


def short_rows(part: str) -> list[list[str]]:
    """Rows of the short table: what, by the clock, per CPU second, target, verdict."""
    lines = part.splitlines()
    start = next(
        (i for i, line in enumerate(lines) if line.startswith("| jaxtrade's speed over")),
        len(lines),
    )
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append(cells(line))
    return found


def stray_in_short(
    part: str,
    results: Mapping[str, Any],
    ratios: Mapping[str, tuple[str, str]],
    bounds: Mapping[str, Any],
) -> list[str]:
    """Complaints about the short table. ratios: headline -> (result, dotted path of the ratio with
    both clocks).
    """
    complaints = []
    for headline, wall, cpu, target, *_ in short_rows(part):
        if headline not in ratios:
            complaints.append(f"no target is called {headline}")
            continue
        name, path = ratios[headline]
        for clock, cell in (("wall", wall), ("cpu", cpu)):
            at = _dotted(results.get(name, {}), f"{path}.{clock}")
            complaints += [f"{headline}: {number}" for number in unfounded(cell, at)]
            slower = bool(at) and round(at[0], 3) < 1
            if slower != ("**slower**" in cell):
                complaints.append(f"{headline}: {cell}: slower is not said, or said wrongly")
        complaints += [
            f"{headline}, target: {number}" for number in unfounded(target, bounds[headline])
        ]
    return complaints


def stray_in_page(part: str, results: Mapping[str, Any], bounds: Mapping[str, Any]) -> list[str]:
    """Complaints about the generated part of docs/benchmarks.md. results: by name, `machine/bench`
    for other machines.
    bounds: what a target is called -> its bound."""
    complaints, name = [], "In short"
    targets = {row[0]: row for row in target_rows(part)}
    verdicts = list(verdict_counts(part).values())
    if COUNTED.findall(part) != [counted_again(part)]:
        complaints.append("the page counts its targets wrongly")
    for line in part.splitlines():
        row, within = cells(line), results.get(name, {})
        if line.startswith("## "):
            name = line[3:]
            if name not in (*GENERAL, "In short") and name not in results:
                complaints.append(f"no result of {name}")
        elif name == "In short" and line.startswith("|"):
            continue  # see `stray_in_short`
        elif name == "In short":
            complaints += [
                f"{name}: {number}" for number in unfounded(line, [results, list(results)])
            ]
        elif name == "Targets" and row and row[0] in targets:
            file, _, path = row[5].strip("`").partition(".json: ")
            held = [results[file]] if file in results else []
            at = [value for result in held for value in _dotted(result, path)]
            complaints += [f"{row[0]}: {number}" for number in unfounded(row[2], at)]
            complaints += [
                f"{row[0]}, target: {number}" for number in unfounded(row[1], bounds.get(row[0]))
            ]
            complaints += [
                f"{row[0]}, ceiling: {number}" for number in unfounded(row[4], bounds.get(row[0]))
            ]
        elif name in GENERAL:
            complaints += [
                f"{line}: {number}" for number in unfounded(line, [results, bounds, verdicts])
            ]
        elif line.startswith("|"):
            if row and (places := _below(within, row[0])):
                complaints += [
                    f"{name}, {row[0]}: {number}"
                    for number in unfounded(" | ".join(row[1:]), places)
                ]
            elif row[0] not in ("side", "figure", "ratio of medians", "---"):
                complaints.append(f"{name}: no {row[0]} in its result")
        else:
            about = {key: within.get(key) for key in ("about", "stamp", "config", "left_out")}
            reported = [
                within if "left out" in line else within.get("stamp"),
                json.dumps(about),
            ]  # the load is rounded
            complaints += [f"{name}: {number}" for number in unfounded(line, reported)]
    return complaints


def stray_in_readme(part: str, page: str, results: Mapping[str, Any]) -> list[str]:
    """Complaints about the generated part of README.md, which says nothing that the page does not
    say.
    """
    complaints = [
        f"not in the page: {row[0]}" for row in short_rows(part) if row not in short_rows(page)
    ]
    if COUNTED.findall(part) != COUNTED.findall(page):
        complaints.append("the README counts other targets than the page")
    complaints += [
        f"not in the short table: {line}"
        for line in part.splitlines()
        if line.startswith("|") and cells(line) not in [*short_rows(part), *SHORT_HEADER]
    ]
    stamps, verdicts = (
        [result["stamp"] for result in results.values()],
        list(verdict_counts(page).values()),
    )
    for line in part.splitlines():
        if not line.startswith("|") and line not in page.splitlines():
            complaints += [
                f"{line}: {number}" for number in unfounded(line, [stamps, list(results), verdicts])
            ]
    return complaints
