"""Write the generated parts of README.md and docs/benchmarks.md, and the picture, from the committed results.

    python -m bench.publish            (in a checkout)
    python -m bench.publish --check    (writes nothing; exit code 1 where a page or the picture is not up to date)

A generated part stands between `<!-- bench:begin -->` and `<!-- bench:end -->`. Results are bench/results/*.json and,
of other machines, bench/results/MACHINE/*.json; `quick` is none of them. Nothing is published of a quick run, of fewer
than five repeats, or of a missed target without its reason.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError, JaxtradeError

from . import catalogue, figures, picture, table, targets
from .command import LEAST_REPEATS
from .targets import Results, Target

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
WARNING = "<!-- written by `python -m bench.publish` from bench/results: run it, change nothing here -->"
MISSED, MET, UNMEASURED = "**missed**", "met", "not measured"


def load(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Machine ("" for `folder` itself) -> bench -> result, in the catalogue's order. Raises DataError for what may not
    be published."""
    machines = ["", *sorted(path.name for path in folder.glob("*") if path.is_dir() and path.name != "quick")]
    return {machine: found for machine in machines if (found := _machine(folder / machine))}


def _machine(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: _order(path.stem)):
        result = figures.read(path)
        if result["bench"] != path.stem or path.stem not in catalogue.BENCHES:
            raise DataError(f"{path}: holds the result of '{result['bench']}'; name the file after a bench")
        if result["quick"]:
            raise DataError(f"{path}: a quick result, which shows no speed; run `jaxtrade bench {path.stem}`")
        measured = figures.find(result)
        few = [figures.label(place) for place, side in (*measured.sides.items(), *measured.times.items())
               if side["repeats"] < LEAST_REPEATS]
        if few:
            raise DataError(f"{path}: fewer than {LEAST_REPEATS} repeats of {', '.join(few)}")
        found[path.stem] = result
    return found


def _order(name: str) -> int:
    return list(catalogue.BENCHES).index(name) if name in catalogue.BENCHES else len(catalogue.BENCHES)


def rows(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
            for row in (header, ["---"] * len(header), *cells)]


def verdict(target: Target, results: Results) -> tuple[str, str]:
    """Measured figure and whether the target was met. Raises DataError for a miss without its reason."""
    _, value = target.measured(results)
    if value is None:
        return UNMEASURED, ""
    met, shown = target.met(value), figures.in_unit(value, target.unit)
    if not met and not target.note:
        raise DataError(f"{targets.FILE.name}: '{target.what}' was missed ({shown}, target {target.promise}): "
                        "say why in its `note`")
    return shown, MET if met else MISSED


def unplaced(results: Results, chosen: Sequence[Target]) -> list[Target]:
    """Targets whose bench was run, without a figure at their place: a side left out, or a place misspelt."""
    return [t for t in chosen if t.bench in results.get(t.machine, {}) and t.measured(results)[1] is None]


def misses(chosen: Sequence[Target], results: Results) -> list[str]:
    """Why each missed target was missed."""
    lines = [f"- {t.what}: {shown}, target {t.promise}. {t.note}" for t in chosen
             if (shown := verdict(t, results)[0]) and verdict(t, results)[1] == MISSED]
    return ["", "Missed:", "", *lines] if lines else []


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
    lines = ["Every figure comes from a committed result ([bench/results](bench/results)). All figures, and how each "
             "was measured: [docs/benchmarks.md](docs/benchmarks.md).", "", *sources(results), ""]
    if picture_path:
        lines += [f"![Environment steps per second by number of environments, every side]({picture_path})", ""]
    lines += rows(("what", "target", "measured", ""),
                  [[t.what, t.promise, *verdict(t, results)] for t in chosen])
    return [*lines, *misses(chosen, results)]


def page(results: Results, chosen: Sequence[Target]) -> list[str]:
    """The generated part of docs/benchmarks.md."""
    held = [[t.what, t.promise, *verdict(t, results), f"`{t.source(t.measured(results)[0])}`"] for t in chosen]
    lines = ["## Targets", "", *rows(("what", "target", "measured", "", "figure"), held), *misses(chosen, results)]
    for machine, benches in results.items():
        for name, result in benches.items():
            lines += ["", *_section(f"{machine}/{name}" if machine else name, result)]
    absent = [f"`{name}`" for name in catalogue.BENCHES if name not in results.get("", {})]
    return [*lines, *(["", f"Not measured yet: {', '.join(absent)}."] if absent else [])]


def _section(title: str, result: Mapping[str, Any]) -> list[str]:
    stamp, left_out = result["stamp"], figures.find(result).left_out
    versions = ", ".join(f"{name} {version}" for name, version in stamp["versions"].items())
    load = "unknown" if stamp["load_before"] is None else f"{stamp['load_before']:.2f}"
    machine = f"{stamp['device']} ({stamp['platform']}, {stamp['devices']} device), {stamp['cores']} CPU cores"
    lines = [f"## {title}", "", f"{result['about'][:1].upper()}{result['about'][1:]}.", "",
             f"- command: `{stamp['command']}`",
             f"- commit: {stamp['commit']}; load average before: {load}",
             f"- machine: {machine}",
             f"- versions: {versions}",
             f"- configuration: `{json.dumps(result.get('config', {}))}`"]
    for header, cells in table.tables(result):
        lines += ["", *rows(header, cells)]
    left = [f"- left out: {figures.label(place)}: {reason}" for place, reason in left_out.items()]
    return [*lines, *([""] if left else []), *left]


def inserted(text: str, lines: Sequence[str], name: str) -> str:
    """`text` with its generated part replaced. Raises DataError where the markers do not stand once, in order."""
    head, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise DataError(f"{name}: expected one line '{BEGIN}' and after it one line '{END}'")
    return "\n".join([f"{head}{BEGIN}", WARNING, *lines, f"{END}{tail}"])


def generated(root: Path = ROOT, file: Path = targets.FILE) -> dict[str, list[str]]:
    """Page -> the lines of its generated part."""
    results, chosen = load(root / catalogue.RESULTS), targets.load(file)
    drawn = picture.panels(results.get("", {}))
    path = (catalogue.RESULTS / "throughput.svg").as_posix() if drawn else None
    return {"README.md": readme(results, chosen, path), "docs/benchmarks.md": page(results, chosen)}


def main(argv: Sequence[str], root: Path = ROOT, file: Path = targets.FILE) -> int:
    if unknown := [word for word in argv if word != "--check"]:
        print(f"error: expected nothing or --check, found {' '.join(unknown)}", file=sys.stderr)
        return 2
    try:
        stale = _stale(root, file)
    except (JaxtradeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for target in unplaced(load(root / catalogue.RESULTS), targets.load(file)):
        print(f"note: nothing at {target.source(target.at)}: '{target.what}' counts as not measured", file=sys.stderr)
    if "--check" not in argv:
        for path, write in stale.items():
            write()
            print(f"written: {path}")
    elif stale:
        print(f"error: not up to date with bench/results: {', '.join(stale)}; run `python -m bench.publish`",
              file=sys.stderr)
        return 1
    return 0


def _stale(root: Path, file: Path) -> dict[str, Callable[[], object]]:
    """What is not up to date -> how to write it. Raises DataError, OSError; nothing is written."""
    found: dict[str, Callable[[], object]] = {}
    for name, lines in generated(root, file).items():
        before = (root / name).read_text(encoding="utf-8")
        if (after := inserted(before, lines, name)) != before:
            found[name] = functools.partial((root / name).write_text, after, encoding="utf-8")
    results, paths = load(root / catalogue.RESULTS).get("", {}), picture.files(root / catalogue.RESULTS)
    if picture.panels(results) and not picture.is_current(results, paths):
        found[" and ".join(path.name for path in paths.values())] = functools.partial(picture.draw, results, paths)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
