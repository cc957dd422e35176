"""Imports point down the layers, or sideways without a cycle; training code stays clear of host libraries."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jaxtrade"

# The most specific entry counts. `jaxtrade` itself is the lazy public API and may name everything.
LAYERS = {
    "types": 0, "config": 0, "config_legacy": 0,
    "sections": 0, "errors": 0, "yaml12": 0, "registry": 0, "parts": 0, "text": 0,
    "data": 1, "checkpoint": 1, "compilation": 1, "metrics": 1, "rundir": 1,
    "advisor.host.options": 0, "advisor.table": 1, "advisor.outcomes": 1, "advisor.host": 1, "advisor": 3,
    "env": 2, "networks": 2,
    "rl.returns": 3, "rl.losses": 3, "rl.schedules": 3, "rl.rollout": 3, "rl.minibatches": 3, "rl.opening": 3,
    "rl.state": 3,
    "rl": 4,
    "evaluation": 5, "interop": 5,
    "source": 6, "advisor_run": 6, "preparation": 6, "beginning": 6, "evaluating": 6, "experiment": 6,
    "ablation": 6, "curriculum": 6, "cli": 6, "doctor": 6,
    "advising": 6, "commands": 6,
}
HOST_ONLY = {"pandas", "gymnax", "gymnasium", "matplotlib"}
TEST_ONLY = {"backtesting", "talib", "pytest", "hypothesis"}
TRAINING = ("env", "networks", "rl")
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec", "__import__"}


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Dotted name below `jaxtrade` -> syntax tree. Read once, by the first test that asks."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


def layer(name: str) -> int | None:
    """Layer of a module, by its longest listed prefix; None where nothing lists it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if (known := LAYERS.get(".".join(parts[:end]))) is not None:
            return known
    return None


def is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def imports(node: ast.AST) -> Iterator[str]:
    """Absolute names imported anywhere below `node`, inside functions too; not under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            for branch in child.orelse:  # type: ignore[attr-defined]
                yield from imports(branch)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def own_imports(tree: ast.Module) -> set[str]:
    """Modules of the package that a module imports, as dotted names below `jaxtrade`."""
    found = set()
    for name in imports(tree):
        head, _, rest = name.partition(".")
        if head == "jaxtrade" and rest:
            while rest and rest not in modules():
                rest = rest.rpartition(".")[0]
            if rest:
                found.add(rest)
    return found


def breaks_layers(name: str, tree: ast.Module) -> list[str]:
    """One line for each import of a module that does not point down or sideways."""
    own = layer(name)
    if own is None:
        return [f"{name} is in no layer: add it to LAYERS"]
    return [f"{name} (layer {own}) imports {other} (layer {there})"
            for other in sorted(own_imports(tree)) if (there := layer(other)) is None or there > own]


def forbidden_calls(name: str, tree: ast.Module) -> Iterator[str]:
    """One line for each call that runs text or unpickles."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
            yield f"{name}, line {node.lineno}: {node.func.id}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and not (
                isinstance(node.value, ast.Constant) and node.value.value is False):
            yield f"{name}, line {node.value.lineno}: allow_pickle is not False"


def forbidden_imports(name: str, tree: ast.Module) -> Iterator[str]:
    """One line for each library that a module may not name, anywhere in it."""
    refused = TEST_ONLY | UNSAFE | (HOST_ONLY if name.partition(".")[0] in TRAINING else set())
    heads = {found.partition(".")[0] for found in imports(tree)}
    yield from (f"{name} imports {head}" for head in sorted(heads & refused))


def circles(graph: dict[str, set[str]]) -> list[str]:
    """One line for each circle that a walk down the imports comes upon."""
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            found.append(" -> ".join((*path[path.index(name):], name)))
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    return found


def test_imports_point_down_or_sideways_and_name_nothing_forbidden() -> None:
    """Every module at once; each offender is named."""
    named = {name: tree for name, tree in modules().items() if name}
    assert [line for name, tree in named.items() for line in breaks_layers(name, tree)] == []
    assert [line for name, tree in modules().items() for line in forbidden_imports(name, tree)] == []
    assert [line for name, tree in modules().items() for line in forbidden_calls(name, tree)] == []


def test_modules_import_without_a_circle() -> None:
    assert circles({name: own_imports(tree) - {name} for name, tree in modules().items() if name}) == []


def test_planted_offenders_are_found() -> None:
    """An import inside a function counts, one under TYPE_CHECKING does not."""
    planted = ast.parse("def f():\n    from jaxtrade.rl.ppo import make_ppo\n    import jaxtrade.evaluation.metrics\n")
    assert [line.split()[4] for line in breaks_layers("env.dynamics", planted)] == ["evaluation.metrics", "rl.ppo"]
    typed = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jaxtrade.rl.ppo import make_ppo\n")
    assert breaks_layers("env.dynamics", typed) == []
    assert len(breaks_layers("nowhere", typed)) == 1
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b -> c -> b"]
    unsafe = ast.parse("import pickle\ndef f(x):\n    import pandas\n    return eval(x), load(x, allow_pickle=True)\n")
    assert list(forbidden_imports("rl.ppo", unsafe)) == ["rl.ppo imports pandas", "rl.ppo imports pickle"]
    assert list(forbidden_imports("data.bars", unsafe)) == ["data.bars imports pickle"]
    assert len([*forbidden_calls("rl.ppo", unsafe)]) == 2


def loaded(statements: list[str]) -> dict[str, set[str]]:
    """Statement -> top-level modules that a fresh interpreter holds after it; they run one after the other."""
    code = ("import json, sys\nheld = {}\n"
            f"for statement in {statements!r}:\n"
            "    exec(statement)\n"
            "    held[statement] = sorted({name.partition('.')[0] for name in sys.modules})\n"
            "print(json.dumps(held))")
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
                            check=True)
    return {statement: set(names) for statement, names in json.loads(result.stdout).items()}


def test_what_answers_at_once_loads_no_jax_and_training_loads_no_host_library() -> None:
    """In fresh interpreters: what is imported inside a function, or by a library, counts as well."""
    at_once = ["import jaxtrade", "import jaxtrade.config", "import jaxtrade.errors", "import jaxtrade.data.schema",
               "import jaxtrade.cli", "from jaxtrade import load_config; load_config('quickstart')"]
    slow = {"jax", "pandas", "flax", "optax", *HOST_ONLY}
    assert {statement: names & slow for statement, names in loaded(at_once).items() if names & slow} == {}
    training = [f"import jaxtrade.{name}" for name in modules() if name.partition(".")[0] in TRAINING]
    assert {"import jaxtrade.env.dynamics", "import jaxtrade.rl.returns"} <= set(training)
    held = loaded(training)
    assert "jax" in held[training[-1]]
    refused = HOST_ONLY | TEST_ONLY
    assert {statement: names & refused for statement, names in held.items() if names & refused} == {}


def test_every_package_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert found <= set(listed)
