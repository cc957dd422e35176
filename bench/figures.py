"""What a result holds, found by shape, and how a figure is written: what table, comparison and
publication share.

A result is a tree of dicts. Wherever in it, a dict with the keys of `harness.summary` is a side,
one with those of DURATION a time, one with `wall` a ratio (by the CPU's clock too, where it has
`cpu`); `left_out` holds reasons, and every other value is a figure of its own. A place is the tuple
of keys that lead there. Imports no JAX: results are read where none were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.errors import DataError

Place = tuple[str, ...]
ABOUT = (
    "bench",
    "about",
    "quick",
    "stamp",
    "config",
    "forced",
    "reasons",
)  # what was run, not what was found
STRUCTURE = ("sides", "ratios")  # keys that say only what lies below
SUMMARY = (
    "steps",
    "repeats",
    "steps_per_second",
    "steps_per_second_range",
    "steps_per_cpu_second",
    "steps_per_cpu_second_range",
)
DURATION = ("repeats", "seconds", "seconds_range", "cpu_seconds", "cpu_seconds_range")
CLOCKS = ("wall", "cpu")
LEVEL = 1.05  # up to here a ratio is called level: repeats of one program differ as much
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Found(NamedTuple):
    """A result's contents, each by its place, in the order of the result."""

    sides: dict[Place, Mapping[str, Any]]
    times: dict[Place, Mapping[str, Any]]
    ratios: dict[Place, Mapping[str, float]]
    others: dict[Place, Any]
    left_out: dict[Place, str]


def read(path: Path) -> dict[str, Any]:
    """One result. Raises DataError: no such file, not JSON, not the result of a bench."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(
            f"{path}: not JSON ({error}); expected a result of `jaxtrade bench`"
        ) from None
    missing = [
        key
        for key in ("bench", "quick", "stamp")
        if not isinstance(result, dict) or key not in result
    ]
    if missing:
        raise DataError(
            f"{path}: no {', '.join(missing)} in it; expected a result of `jaxtrade bench`"
        )
    return result


def is_side(node: object) -> bool:
    return isinstance(node, Mapping) and set(SUMMARY) <= set(node)


def is_time(node: object) -> bool:
    return isinstance(node, Mapping) and set(DURATION) <= set(node)


def is_ratio(node: object) -> bool:
    return isinstance(node, Mapping) and isinstance(node.get("wall"), int | float)


def _leaves(node: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Sides, times, ratios and values below `node`; a list of plain values is a value, a flat dict
    in a list too.
    """
    children: Mapping[Any, Any] | None = None
    if is_ratio(node):  # what stands beside it is shown on its own
        yield place, {clock: node[clock] for clock in CLOCKS if clock in node}
        children = {key: value for key, value in node.items() if key not in CLOCKS}
    elif isinstance(node, Mapping) and not (is_side(node) or is_time(node)):
        children = node
    elif isinstance(node, list) and any(map(_holds, node)):
        children = dict(enumerate(node))
    if children is None:
        yield place, node
        return
    for key, child in children.items():
        if (
            isinstance(node, list)
            and isinstance(child, Mapping)
            and not any(map(_holds, child.values()))
        ):
            yield (*place, str(key)), child
        else:
            yield from _leaves(child, (*place, str(key)))


def _holds(value: object) -> bool:
    return isinstance(value, Mapping | list)


def find(result: Mapping[str, Any]) -> Found:
    """Sort a result's contents into sides, times, ratios, other figures and reasons."""
    found = Found({}, {}, {}, {}, {})
    for place, leaf in _leaves(
        {key: value for key, value in result.items() if key not in ABOUT}, ()
    ):
        if "left_out" in place:
            found.left_out[place] = str(leaf)
        elif is_side(leaf):
            found.sides[place] = leaf
        elif is_time(leaf):
            found.times[place] = leaf
        elif is_ratio(leaf):
            found.ratios[place] = leaf
        else:
            found.others[place] = leaf
    return found


def label(place: Place, drop: Sequence[str] = STRUCTURE) -> str:
    """A place for readers: `sides`, `ratios` and `left_out` say nothing beside their table's
    heading.
    """
    return " / ".join(key for key in place if key not in (*drop, "left_out"))


def at(result: Mapping[str, Any], place: Sequence[str]) -> Any:
    """The value at a place, None where there is none."""
    node: Any = result
    for key in place:
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def number(value: float, digits: int = 3) -> str:
    """To significant digits, with G, M or k from 10,000 on: 5.21M, 12.4k, 1,230, 0.74. Small whole
    numbers whole.
    """
    if isinstance(value, int) and abs(value) < 10_000:
        return f"{value:,}"
    short = float(f"{value:.{digits}g}")
    for scale, letter in SCALES:
        if abs(short) >= max(scale, 10_000):
            return f"{short / scale:.{digits}g}{letter}"
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:.{digits}g}"


def size(value: float) -> str:
    """Bytes in powers of a thousand: 212 B, 1.3 kB, 4.1 MB."""
    for scale, letter in SCALES:
        if abs(float(f"{value:.3g}")) >= scale:
            return f"{value / scale:.3g} {letter}B"
    return f"{value:.3g} B"


def in_unit(value: Any, unit: str) -> str:
    """A figure with its unit: `x`, `%` (of a fraction), `B`, `s`, another unit, or none ("").
    Ranges as [a, b].
    """
    if isinstance(value, list):
        return f"[{', '.join(in_unit(item, unit) for item in value)}]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit == "B":
        return size(value)
    if unit == "%":
        return f"{100 * value:.3g} %"
    return number(value) + ("x" if unit == "x" else f" {unit}" if unit else "")


def compared(ratio: float) -> str:
    """What a ratio of speeds means, as it is shown. Below one is slower, however little; a little
    above is level.
    """
    seen = float(f"{ratio:.3g}")
    return "slower" if seen < 1 else "level" if seen <= LEVEL else "faster"


def unit_of(place: Place) -> str:
    """The unit that a figure's name tells: bytes and seconds are spelled in it."""
    name = place[-1] if place else ""
    return "B" if "bytes" in name else "s" if "seconds" in name else ""


def plain(value: Any, place: Place = ()) -> str:
    """Any value in one line. A long list is shown by its length, least and greatest."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item, (str(key),))}" for key, item in value.items())
    if isinstance(value, int) and not unit_of(place):
        return f"{value:,}"  # a count, in full
    if (
        isinstance(value, list)
        and len(value) > 8
        and all(isinstance(item, int | float) for item in value)
    ):
        ends = [in_unit(end, unit_of(place)) for end in (min(value), max(value))]
        return f"{len(value)} values, {ends[0]} to {ends[1]}"
    return in_unit(value, unit_of(place))


def extras(side: Mapping[str, Any]) -> str:
    """What a side says beside its speed, such as `num_envs` or `threads`."""
    return ", ".join(
        f"{key} {plain(value, (key,))}"
        for key, value in side.items()
        if key not in (*SUMMARY, *DURATION)
    )
