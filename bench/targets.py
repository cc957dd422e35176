"""What was promised, held against what was measured. The promises are `targets.yaml`, written
before the measuring.

Each row names what, its kind of bound (`least`, `most`, `equals`, `overlaps`), its unit, and where
the figure stands:
`bench` (the result file), `at` (the keys that lead to it) and `machine` (a folder below bench/results; none: the
results themselves). A key with `*` in it is a pattern; of several figures that it leads to, `least` takes the greatest.
`note` is why a target was missed; it is shown only where it was. `ceiling`, for `least`, are the keys that lead to what
the machine allowed in the same run: a bound above it is replaced by `SHARE` of it (`Target.in_force`). `headline` is
what the README's table calls the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.errors import DataError

from . import catalogue, figures

FILE = Path(__file__).parent / "targets.yaml"
BOUNDS = ("least", "most", "equals", "overlaps")
KEYS = {"what", "bench", "at", "unit", "note", "machine", "ceiling", "headline", *BOUNDS}
SHARE = 0.85  # of the ceiling, in the place of a bound above it
Results = Mapping[
    str, Mapping[str, Mapping[str, Any]]
]  # machine ("" the main one) -> bench -> result


class Target(NamedTuple):
    """One row. kind: one of BOUNDS; bound: a number, or two for `overlaps` (also of the figure
    itself).
    """

    what: str
    kind: str
    bound: Any
    unit: str
    bench: str
    at: tuple[str, ...]
    machine: str
    note: str
    ceiling: tuple[str, ...] = ()
    headline: str = ""

    def source(self, place: Sequence[str]) -> str:
        """File and keys of a figure, as a reader would look it up."""
        return f"{self.machine + '/' if self.machine else ''}{self.bench}.json: {'.'.join(place)}"

    @property
    def promise(self) -> str:
        sign = {"least": ">=", "most": "<=", "equals": "", "overlaps": "overlaps"}[self.kind]
        return f"{sign} {figures.in_unit(self.bound, self.unit)}".strip()

    def measured(self, results: Results) -> tuple[tuple[str, ...], Any]:
        """Where the figure stands, and it; None where there is no result, or none at that place of
        it.

        Raises DataError: no number there, or several where one is wanted.
        """
        found = dict(_matches(results.get(self.machine, {}).get(self.bench, {}), self.at))
        length, wanted = (2, "two numbers") if self.kind == "overlaps" else (None, "a number")
        for place, value in found.items():
            if not _is_number(value, length):
                raise DataError(
                    f"{self.source(place)}: expected {wanted}, found {value!r}; see {FILE.name}"
                )
        if len(found) > 1 and self.kind != "least":
            raise DataError(
                f"{self.source(self.at)}: leads to {len(found)} figures; name one in {FILE.name}"
            )
        return max(found.items(), key=lambda item: item[1]) if found else (self.at, None)

    def limit(self, results: Results) -> float | None:
        """The figure's ceiling; None where the target has none or the result has none. Raises
        DataError: no number.
        """
        found = (
            figures.at(results.get(self.machine, {}).get(self.bench, {}), self.ceiling)
            if self.ceiling
            else None
        )
        if found is not None and not _is_number(found, None):
            raise DataError(
                f"{self.source(self.ceiling)}: expected a number, found {found!r}; see {FILE.name}"
            )
        return found

    def in_force(self, results: Results) -> Target:
        """This target, with `SHARE` of the ceiling as its bound where the bound is above the
        ceiling.
        """
        limit = self.limit(results)
        return self if limit is None or self.bound <= limit else self._replace(bound=SHARE * limit)

    def met(self, value: Any) -> bool:
        if self.kind == "overlaps":
            return value[0] <= self.bound[1] and self.bound[0] <= value[1]
        return {
            "least": value >= self.bound,
            "most": value <= self.bound,
            "equals": value == self.bound,
        }[self.kind]


def _matches(
    node: Any, keys: Sequence[str], place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Places that fit `keys` -> what stands there."""
    if not keys:
        yield place, node
        return
    head, *rest = keys
    inside = node if isinstance(node, Mapping) and "*" in head else {head: None}
    for key in (key for key in inside if key == head or fnmatchcase(key, head)):
        if (child := figures.at(node, (key,))) is not None:
            yield from _matches(child, rest, (*place, key))


def _is_number(value: object, length: int | None) -> bool:
    if length is not None:
        return (
            isinstance(value, list)
            and len(value) == length
            and all(_is_number(item, None) for item in value)
        )
    return isinstance(value, int | float) and not isinstance(value, bool)


def load(path: Path = FILE) -> list[Target]:
    """The rows, in their order. Raises DataError: a key missing, unknown or of the wrong kind."""
    rows = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    if not isinstance(rows, list):
        raise DataError(f"{path.name}: expected a list of targets")
    return [_target(row, f"{path.name}: target {number}") for number, row in enumerate(rows, 1)]


def _target(row: Any, where: str) -> Target:
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected 'key: value', found {row!r}")
    if unknown := sorted(row.keys() - KEYS):
        raise DataError(
            f"{where}: expected keys among {', '.join(sorted(KEYS))}, found {', '.join(unknown)}"
        )
    bounds = [kind for kind in BOUNDS if kind in row]
    if len(bounds) != 1 or not {"what", "bench", "at"} <= row.keys():
        raise DataError(
            f"{where}: expected what, bench, at and one of {', '.join(BOUNDS)}; found {sorted(row)}"
        )
    kind = bounds[0]
    if row["bench"] not in catalogue.BENCHES:
        raise DataError(
            f"{where}: no bench is called '{row['bench']}' (benches: {', '.join(catalogue.BENCHES)})"
        )
    if not _is_number(row[kind], 2 if kind == "overlaps" else None):
        raise DataError(
            f"{where}: {kind}: expected {'[low, high]' if kind == 'overlaps' else 'a number'}, "
            f"found {row[kind]!r}"
        )
    for key in ("at", "ceiling"):
        if not isinstance(row.get(key, ()), Sequence) or isinstance(row.get(key), str):
            raise DataError(
                f"{where}: {key}: expected the list of keys that lead to the figure, found {row[key]!r}"
            )
    if "ceiling" in row and kind != "least":
        raise DataError(
            f"{where}: ceiling: only a target with `least` can be above one, found `{kind}`"
        )
    if "headline" in row and (kind != "least" or row["at"][-1] not in figures.CLOCKS):
        raise DataError(
            f"{where}: headline: expected `least` and a ratio by one clock (at: [..., wall] or [..., cpu])"
        )
    return Target(
        row["what"],
        kind,
        row[kind],
        row.get("unit", ""),
        row["bench"],
        tuple(map(str, row["at"])),
        row.get("machine", ""),
        " ".join(row.get("note", "").split()),
        tuple(map(str, row.get("ceiling", ()))),
        row.get("headline", ""),
    )
