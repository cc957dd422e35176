"""Write the generated parts of README.md and of pages in docs/ (benchmarks, and those of `TABLES`),
and the pictures, from the committed results.

    python -m bench.publish            (in a checkout)
    python -m bench.publish --check    (writes nothing; exit code 1 where a page or a picture is not up to date)

A generated part stands between `<!-- bench:begin -->` and `<!-- bench:end -->`. Results are
bench/results/*.json and, of other machines, bench/results/MACHINE/*.json; `quick` is none of them.
Nothing is published of a quick run, of fewer than five repeats, of a commit that is not a clean one
of this history, or of a missed target without its reason.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError, JaxtradeError

from . import (
    catalogue,
    chart,
    crowding_page,
    curves,
    evolution_page,
    figures,
    mesh_page,
    pages,
    picture,
    provenance,
    targets,
    trust_page,
    watch_page,
)
from .command import LEAST_REPEATS
from .device_parts import PARTS
from .targets import Results, Target

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
WARNING = (
    "<!-- written by `python -m bench.publish` from bench/results: run it, change nothing here -->"
)
PICTURES = (picture, chart, curves)
# bench -> the page that has its table, and the module of the table
TABLES = {
    "trust": ("docs/advisor.md", trust_page),
    "crowding": ("docs/shared_market.md", crowding_page),
    "mesh": ("docs/devices.md", mesh_page),
    "evolution": ("docs/populations.md", evolution_page),
    "watch": ("docs/watch.md", watch_page),
}


def load(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Machine ("" for `folder` itself) -> bench -> result, in the catalogue's order. Raises
    DataError for what may not be published."""
    machines = [
        "",
        *sorted(path.name for path in folder.glob("*") if path.is_dir() and path.name != "quick"),
    ]
    return {machine: found for machine in machines if (found := _machine(folder / machine))}


def _machine(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: _order(path.stem)):
        result = figures.read(path)
        if result["bench"] != path.stem or path.stem not in (*catalogue.BENCHES, *PARTS):
            raise DataError(
                f"{path}: holds the result of '{result['bench']}'; name the file after a bench"
            )
        if result["quick"]:
            raise DataError(
                f"{path}: a quick result, which shows no speed; run `jaxtrade bench {path.stem}`"
            )
        measured = figures.find(result)
        few = [
            figures.label(place)
            for place, side in (*measured.sides.items(), *measured.times.items())
            if side["repeats"] < LEAST_REPEATS
        ]
        if few:
            raise DataError(f"{path}: fewer than {LEAST_REPEATS} repeats of {', '.join(few)}")
        found[path.stem] = result
    return found


def _order(name: str) -> int:
    return (
        list(catalogue.BENCHES).index(name) if name in catalogue.BENCHES else len(catalogue.BENCHES)
    )


def unplaced(results: Results, chosen: Sequence[Target]) -> list[str]:
    """Places of targets whose bench was run, without a figure there: a side left out, or a place
    misspelt.
    """
    run = [t for t in chosen if t.bench in results.get(t.machine, {})]
    return [
        *(
            f"{t.source(t.at)}: '{t.what}' counts as not measured"
            for t in run
            if t.measured(results)[1] is None
        ),
        *(
            f"{t.source(t.ceiling)}: '{t.what}' has no ceiling"
            for t in run
            if t.ceiling and t.limit(results) is None and "ceiling" in results[t.machine][t.bench]
        ),
    ]


def inserted(text: str, lines: Sequence[str], name: str) -> str:
    """`text` with its generated part replaced. Raises DataError where the markers do not stand
    once, in order.
    """
    head, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise DataError(f"{name}: expected one line '{BEGIN}' and after it one line '{END}'")
    return "\n".join([f"{head}{BEGIN}", WARNING, *lines, f"{END}{tail}"])


def generated(root: Path = ROOT, file: Path = targets.FILE) -> dict[str, list[str]]:
    """Page -> the lines of its generated part."""
    results, chosen = load(root / catalogue.RESULTS), targets.load(file)
    here = results.get("", {})
    paths = {
        module: (catalogue.RESULTS / f"{module.NAME}.svg").as_posix()
        if module.shown(here)
        else None
        for module in PICTURES
    }
    above = f"../{paths[picture]}" if paths[picture] else None
    return {
        "README.md": pages.readme(results, chosen, paths[chart]),
        "docs/benchmarks.md": pages.page(results, chosen, above),
        **{page: of.lines(here[bench]) for bench, (page, of) in TABLES.items() if bench in here},
    }


def main(
    argv: Sequence[str],
    root: Path = ROOT,
    file: Path = targets.FILE,
    fault: provenance.Fault = provenance.fault,
) -> int:
    if unknown := [word for word in argv if word != "--check"]:
        print(f"error: expected nothing or --check, found {' '.join(unknown)}", file=sys.stderr)
        return 2
    try:
        results = load(root / catalogue.RESULTS)
        provenance.check(results, root, fault)
        stale = _stale(root, file)
    except (JaxtradeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for place in unplaced(results, targets.load(file)):
        print(f"note: nothing at {place}", file=sys.stderr)
    if "--check" not in argv:
        for path, write in stale.items():
            write()
            print(f"written: {path}")
    elif stale:
        print(
            f"error: not up to date with bench/results: {', '.join(stale)}; run `python -m bench.publish`",
            file=sys.stderr,
        )
        return 1
    return 0


def _stale(root: Path, file: Path) -> dict[str, Callable[[], object]]:
    """What is not up to date -> how to write it. Raises DataError, OSError; nothing is written."""
    found: dict[str, Callable[[], object]] = {}
    for name, lines in generated(root, file).items():
        before = (root / name).read_text(encoding="utf-8")
        if (after := inserted(before, lines, name)) != before:
            found[name] = functools.partial((root / name).write_text, after, encoding="utf-8")
    results = load(root / catalogue.RESULTS).get("", {})
    for module in PICTURES:
        paths = module.files(root / catalogue.RESULTS)
        if module.shown(results) and not module.is_current(results, paths):
            found[" and ".join(path.name for path in paths.values())] = functools.partial(
                module.draw, results, paths
            )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
