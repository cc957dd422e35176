"""What the project weighs: code tokens, modules and functions of each package, and what a stranger
has to learn.

    python -m tests.weight              print the table
    python -m tests.weight --tree DIR   of another checkout

A code token is a Python token that is no string, comment or layout; an f-string is one string, and
a comma before a closing bracket is layout. Docstrings are strings.
"""

import argparse
import ast
import collections
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import token
import tokenize
from pathlib import Path
from typing import NamedTuple

from tests.reading import ROOT

SHORT, WORDS = 3, 5  # lines of a short body; words of an English sentence
LAYOUT = {
    token.NEWLINE,
    token.NL,
    token.INDENT,
    token.DEDENT,
    token.ENCODING,
    token.ENDMARKER,
    token.COMMENT,
}
STARTS, ENDS = ("FSTRING_START", "TSTRING_START"), ("FSTRING_END", "TSTRING_END")
ENGLISH = re.compile(r"[A-Za-z][A-Za-z']+")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Participles that do not end in -ed, and words in -ed that are verbs.
IRREGULAR = re.compile(
    r"begun|born|bought|bound|broken|brought|built|caught|chosen|done|dealt|drawn|driven|"
    r"eaten|fallen|fed|felt|forgotten|fought|found|frozen|given|gone|grown|heard|held|hidden|"
    r"kept|known|laid|led|left|lent|lost|made|meant|met|overridden|overwritten|paid|risen|"
    r"said|seen|sent|shaken|shown|sold|spent|spoken|spun|stood|struck|sunk|swept|taken|"
    r"taught|thought|thrown|told|torn|understood|undone|unspoken|won|worn|woven|written"
)
VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed"}


class Weight(NamedTuple):
    """Of a package. once: functions with a body of at most three lines that one place names."""

    tokens: int
    modules: int
    functions: int
    imports: int
    once: int


def code_tokens(text):
    """How many tokens are code."""
    count = inside = 0
    comma = False
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        name = token.tok_name[each.type]
        inside += (name in STARTS) - (name in ENDS)
        if inside or each.type in LAYOUT or name in ("STRING", *ENDS):
            comma &= each.type in LAYOUT
            continue
        count += 1 - (comma and each.string in ")]}")
        comma = each.string == ","
    return count


def functions(tree):
    return [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]


def is_short(function):
    """Whether the body, its docstring left out, has at most three lines."""
    body = function.body[ast.get_docstring(function) is not None :]
    return not body or (body[-1].end_lineno or 0) - body[0].lineno < SHORT


def names(tree):
    """Every name and attribute that is read."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load):
            yield each.id if isinstance(each, ast.Name) else each.attr


def is_participle(name):
    """Return whether a function's name is one bare participle, as `joined`: a function is a verb."""
    word = name.strip("_")
    return IRREGULAR.fullmatch(word) is not None or (
        word.endswith("ed") and "_" not in word and word not in VERBS
    )


def names_of(root, kind):
    """List the names of the package's functions or classes, one for each definition."""
    for path in sorted((root / "jaxtrade").rglob("*.py")):
        yield from (
            each.name for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, kind)
        )


def asserted(tree):
    """Strings of at least five words in asserts, in `match=`, and in the cases of parametrised tests."""
    places = []
    for each in ast.walk(tree):
        if isinstance(each, ast.Assert):
            places.append(each.test)
        elif isinstance(each, ast.keyword) and each.arg == "match":
            places.append(each.value)
        elif isinstance(each, FUNCTIONS):
            places += [one for one in each.decorator_list if "parametrize" in ast.unparse(one)]
    return sum(
        isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and len(ENGLISH.findall(each.value)) >= WORDS
        for place in places
        for each in ast.walk(place)
    )


def package_of(path):
    """`jaxtrade/env`, or `jaxtrade` for its own modules, or `bench`."""
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "jaxtrade" and len(parts) > 2 else parts[0]


def weigh(root):
    """Package -> weight, and `all` of package and bench."""
    texts = {
        path.relative_to(root): path.read_text()
        for top in ("jaxtrade", "bench", "tests")
        for path in sorted((root / top).rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    used = collections.Counter(
        name for path, tree in trees.items() if path.parts[0] != "tests" for name in names(tree)
    )
    rows = collections.defaultdict(list)
    for path, tree in trees.items():
        own = functions(tree)
        weight = Weight(
            code_tokens(texts[path]),
            bool(texts[path].strip()),
            len(own),
            sum(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.walk(tree)),
            sum(is_short(each) and used[each.name] == 1 for each in own),
        )
        rows[package_of(path)].append(weight)
        if path.parts[0] != "tests":
            rows["jaxtrade + bench"].append(weight)
    return {name: Weight(*map(sum, zip(*each, strict=True))) for name, each in rows.items()}


COUNTS = """
import argparse, json, typing
from jaxtrade.cli.parser import build_parser
from jaxtrade.config import RunConfig

def keys(model):
    for field in model.model_fields.values():
        kinds = [field.annotation, *typing.get_args(field.annotation)]
        inner = [kind for kind in kinds if hasattr(kind, "model_fields")]
        yield from keys(inner[0]) if inner else [1]

def arguments(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in set(action.choices.values()):
                yield from arguments(each)
        elif not isinstance(action, argparse._HelpAction):
            yield 1

print(json.dumps([sum(keys(RunConfig)), sum(arguments(build_parser()))]))
"""
FRAMES = """
import json, os, sys

def own(frame):
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(ROOT):
            found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

def watch(frame, event, argument):
    if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
        return
    name = frame.f_code.co_name
    if name == "update" and "/rl/" in frame.f_code.co_filename and not depths:
        depths.append(len(own(frame)))
    elif name == "ppo_loss" and depths:
        print(json.dumps([depths[0], len(own(frame)) - depths[0]]))
        sys.stdout.flush()
        os._exit(0)

depths = []
import jaxtrade
ROOT = jaxtrade.__path__[0]
from jaxtrade.__main__ import main
sys.argv = ["jaxtrade", "train", "quickstart", "--test", "--run-dir", sys.argv[1]]
sys.setprofile(watch)
main()
"""


def _asked(root, code, *words):
    """What a piece of code prints last, with the package of another checkout."""
    environment = os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.weight", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    root = parser.parse_args().tree.resolve()
    print(
        f"{'':24}{'tokens':>10}{'modules':>9}{'functions':>11}{'imports/module':>16}"
        f"{'short, once':>13}"
    )
    found = weigh(root)
    for name in sorted(found, key=lambda name: (not name.startswith("jaxtrade/"), name)):
        each = found[name]
        print(
            f"{name:24}{each.tokens:>10,}{each.modules:>9,}{each.functions:>11,}"
            f"{each.imports / max(each.modules, 1):>16.1f}{each.once:>13,}"
        )
    english = sum(asserted(ast.parse(path.read_text())) for path in (root / "tests").rglob("*.py"))
    print(f"English sentences that tests assert: {english:,}")
    bare = sum(map(is_participle, names_of(root, FUNCTIONS)))
    twice = sorted(
        name
        for name, count in collections.Counter(names_of(root, ast.ClassDef)).items()
        if count > 1
    )
    print(
        f"functions that are bare participles: {bare}; names of several classes: {' '.join(twice) or 'none'}"
    )
    keys, arguments = _asked(root, COUNTS)
    print(f"configuration keys: {keys}; command-line arguments: {arguments}")
    with tempfile.TemporaryDirectory() as folder:
        update, loss = _asked(root, FRAMES, str(Path(folder) / "run"))
    print(
        f"own frames from main to the first trace of update: {update}; from there to the loss: {loss}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
