"""The rooms of the package and the imports between them: what the layering test checks and the
picture draws.

python -m tests.structure > docs/architecture.svg
"""

import ast
import functools
from html import escape

from tests.reading import ROOT

PACKAGE = ROOT / "jaxtrade"

# A room (a package, or a module at the top) -> (floor, place from the left in the picture, what it
# is). Imports go to lower floors, or stay in their room. Floor 0 is used by all rooms.
ROOMS = {
    "errors": (0, 0, "exceptions, exit codes"),
    "types": (0, 1, "pytrees, Protocols"),
    "registry": (0, 2, "parts by name"),
    "parts": (0, 3, "the built-in parts"),
    "text": (0, 4, "lines, tables"),
    "formatting": (0, 7, "figures as text"),
    "limits": (0, 8, "memory and CPUs"),
    "version": (0, 5, "the version"),
    "interrupt": (0, 6, "Ctrl-C"),
    "config": (1, 0.3, "typed settings"),
    "web": (1, 4, "files of pages, uPlot"),
    "storage": (2, 1.4, "checkpoints, sinks"),
    "networks": (2, 2.5, "torsos, heads"),
    "data": (3, 0, "bars to a market"),
    "training": (3, 1, "the loop, its hooks"),
    "progress": (3, 2, "panel, plain lines"),
    "advisor": (4, 0, "advice, host threads"),
    "env": (5, 0, "fills, rules, tasks"),
    "rl": (6, 1, "learners, rollouts"),
    "evaluation": (7, 1, "backtest, report"),
    "stream": (8, 1, "bars one by one"),
    "runs": (9, 1, "a run and its folder"),
    "curriculum": (10, 0, "phases, gates"),
    "ablation": (10, 1, "advisor matrix"),
    "doctor": (10, 2, "machine checks"),
    "interop": (10, 3, "gymnax, gymnasium, SB3"),
    "launching": (10, 4, "processes, manifests"),
    "reporting": (10, 5, "one page of a run"),
    "watching": (10, 6, "the live page"),
    "export": (10, 7, "NumPy, ONNX, StableHLO"),
    "paper": (10, 8, "trading on paper"),
    "certify": (11, 1, "one policy, every path"),
    "cli": (12, 1, "the command line"),
    "__main__": (13, 1, "the process"),
}


@functools.cache
def modules():
    """Dotted name below `jaxtrade` -> syntax tree; the package itself, its lazy public API, is ''.
    Parsed on first use: all workers import this module, and one of them reads the trees."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), filename=str(path))
    return found


def room(name):
    """The room of a module."""
    return name.partition(".")[0]


def floor(name):
    """The floor of a module's room; None where `ROOMS` lacks it."""
    return ROOMS[room(name)][0] if room(name) in ROOMS else None


def is_type_checking(node):
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def imports(node, typed=False):
    """Absolute names imported anywhere below `node`, inside functions too. typed: also under
    TYPE_CHECKING.
    """
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child) and not typed:
            for branch in child.orelse:  # type: ignore[attr-defined]
                yield from imports(branch)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child, typed)


def own_imports(tree, typed=False):
    """Modules of the package that a module imports, as dotted names below `jaxtrade`; '' is the
    package itself.
    """
    found = set()
    for name in imports(tree, typed):
        head, _, rest = name.partition(".")
        if head == "jaxtrade":
            while rest and rest not in modules():
                rest = rest.rpartition(".")[0]
            found.add(rest)
    return found


def arrows():
    """(room, room that it imports)."""
    return {
        (room(name), room(other))
        for name, tree in modules().items()
        if name
        for other in own_imports(tree)
        if room(name) != room(other)
    }


def _essential(every):
    """Arrows that no way over other rooms implies."""
    below = {}
    for name in sorted(ROOMS, key=lambda name: ROOMS[name][0]):
        direct = {b for a, b in every if a == name}
        below[name] = direct.union(*(below.get(b, set()) for b in direct))
    return {
        (a, b)
        for a, b in every
        if not any(b in below[via] for x, via in every if x == a and via != b)
    }


WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 176, 52, 44, 40, 24


def picture():
    """The rooms by floor as an SVG document. An arrow points to what is imported; arrows that
    follow from others are left out, and those to floor 0."""
    floors = 1 + max(number for number, _, _ in ROOMS.values())
    columns = 1 + max(column for _, column, _ in ROOMS.values())
    total = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP_X
    tall = 2 * MARGIN + floors * HEIGHT + (floors - 1) * GAP_Y
    place = {
        name: (MARGIN + column * (WIDTH + GAP_X), MARGIN + (floors - 1 - number) * (HEIGHT + GAP_Y))
        for name, (number, column, _) in ROOMS.items()
    }
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:g} {tall:g}" font-family="sans-serif">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>',
        f'<rect width="{total:g}" height="{tall:g}" fill="#fff"/>',
    ]
    drawn = {(a, b) for a, b in arrows() if ROOMS[b][0]}  # every room imports from floor 0
    for a, b in sorted(_essential(drawn)):
        (ax, ay), (bx, by) = place[a], place[b]
        x1, y1, x2, y2 = ax + WIDTH / 2, ay + HEIGHT, bx + WIDTH / 2, by - 1
        bend = (y2 - y1) / 2
        out.append(
            f'<path d="M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - bend:g} {x2:g},{y2:g}" fill="none" '
            'stroke="#667" stroke-width="1.3" marker-end="url(#tip)"/>'
        )
    for name, (x, y) in place.items():
        out += [
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3fb" stroke="#446"/>',
            f'<text x="{x + WIDTH / 2:g}" y="{y + 22:g}" text-anchor="middle" font-size="15" font-weight="bold" '
            f'fill="#223">{escape(name)}</text>',
            f'<text x="{x + WIDTH / 2:g}" y="{y + 40:g}" text-anchor="middle" font-size="12" fill="#445">'
            f"{escape(ROOMS[name][2])}</text>",
        ]
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    print(picture(), end="")
