"""Imports point down the layers, or sideways without a cycle; training code stays clear of host libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jaxtrade"

# The most specific entry counts. `jaxtrade` itself is the lazy public API and may name everything.
LAYERS = {
    "types": 0, "config": 0, "sections": 0, "errors": 0, "yaml12": 0, "registry": 0, "parts": 0,
    "data": 1, "checkpoint": 1, "compilation": 1, "metrics": 1, "rundir": 1,
    "advisor.host.options": 0, "advisor.table": 1, "advisor.outcomes": 1, "advisor.host": 1, "advisor": 3,
    "env": 2, "networks": 2,
    "rl.returns": 3, "rl.losses": 3, "rl.schedules": 3, "rl.rollout": 3, "rl.minibatches": 3, "rl.opening": 3,
    "rl.state": 3,
    "rl": 4,
    "evaluation": 5, "interop": 5,
    "source": 6, "advisor_run": 6, "preparation": 6, "evaluating": 6, "experiment": 6,
    "ablation": 6, "curriculum": 6, "cli": 6, "doctor": 6,
    "advising": 6, "commands": 6,
}
HOST_ONLY = {"pandas", "gymnax", "gymnasium", "matplotlib"}
TEST_ONLY = {"backtesting", "talib", "pytest", "hypothesis"}
TRAINING = ("env", "networks", "rl")
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def modules() -> dict[str, ast.Module]:
    """Dotted name below `jaxtrade` -> syntax tree."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


MODULES = modules()


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
            while rest and rest not in MODULES:
                rest = rest.rpartition(".")[0]
            if rest:
                found.add(rest)
    return found


def breaks_layers(name: str, tree: ast.Module) -> list[str]:
    own = layer(name)
    assert own is not None, f"jaxtrade.{name} is in no layer: add it to LAYERS"
    return [other for other in sorted(own_imports(tree)) if (there := layer(other)) is None or there > own]


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_point_down_or_sideways(name: str) -> None:
    assert breaks_layers(name, MODULES[name]) == []


def test_an_upward_import_is_found() -> None:
    """The check sees a planted one, inside a function too, and lets TYPE_CHECKING pass."""
    planted = ast.parse("def f():\n    from jaxtrade.rl.ppo import make_ppo\n    import jaxtrade.evaluation.metrics\n")
    assert breaks_layers("env.dynamics", planted) == ["evaluation.metrics", "rl.ppo"]
    typed = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jaxtrade.rl.ppo import make_ppo\n")
    assert breaks_layers("env.dynamics", typed) == []


def test_modules_import_without_a_cycle() -> None:
    graph = {name: own_imports(tree) - {name} for name, tree in MODULES.items() if name}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join((*path[path.index(name):], name))}"
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("name", [name for name in MODULES if name.partition(".")[0] in TRAINING])
def test_training_code_imports_no_host_library(name: str) -> None:
    heads = {found.partition(".")[0] for found in imports(MODULES[name])}
    assert not heads & HOST_ONLY


@pytest.mark.parametrize("name", list(MODULES))
def test_no_test_library_no_pickle_no_eval(name: str) -> None:
    heads = {found.partition(".")[0] for found in imports(MODULES[name])}
    assert not heads & TEST_ONLY
    assert not heads & UNSAFE
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "__import__"}, f"line {node.lineno}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant), f"line {node.value.lineno}"
            assert node.value.value is False, f"line {node.value.lineno}"


def loaded(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
                            check=True)
    return set(result.stdout.split())


def test_training_modules_load_no_host_library() -> None:
    names = [f"jaxtrade.{name}" for name in MODULES if name.partition(".")[0] in TRAINING]
    assert {"jaxtrade.rl.ppo", "jaxtrade.env.dynamics"} <= set(names)
    found = loaded(f"import {', '.join(names)}")
    assert "jax" in found
    assert not found & (HOST_ONLY | TEST_ONLY)


@pytest.mark.parametrize("statement", ["import jaxtrade", "import jaxtrade.config", "import jaxtrade.errors",
                                       "import jaxtrade.data.schema", "import jaxtrade.cli",
                                       "from jaxtrade import load_config; load_config('quickstart')",
                                       "from jaxtrade.cli import check_names; from jaxtrade import load_config; "
                                       "check_names(load_config(None, ['reward.weights.win=1', 'env.task=advised']))"])
def test_what_answers_at_once_loads_no_jax(statement: str) -> None:
    assert not loaded(statement) & {"jax", "pandas", "flax", "optax", *HOST_ONLY}


def test_every_package_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert found <= set(listed)
