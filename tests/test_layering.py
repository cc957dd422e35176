"""Imports go to lower floors, without a circle; training code stays clear of host libraries."""

import ast
import json

import numpy as np
import pytest

from jaxtrade.cli.listing import LISTS
from tests.children import run_python
from tests.evaluation.test_run_days import dates, run
from tests.structure import ROOT, floor, imports, modules, own_imports, picture, room

pytestmark = pytest.mark.slow

HOST_ONLY = {"pandas", "gymnax", "gymnasium", "jinja2", "matplotlib"}
TEST_ONLY = {"backtesting", "talib", "pytest", "hypothesis"}
TRAINING = ("env", "networks", "rl", "training")
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec", "__import__"}


def breaks_layers(name, tree):
    """One line for each import that neither stays in its room nor goes to a lower floor."""
    own = floor(name)
    if own is None:
        return [f"{name} is in no room: add it to tests/structure.py"]
    return [
        f"{name} (floor {own}) imports {other} (floor {floor(other)})"
        for other in sorted(own_imports(tree))
        if room(other) != room(name) and ((there := floor(other)) is None or there >= own > 0)
    ]


def forbidden_calls(name, tree):
    """One line for each call that runs text or unpickles."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in RUNS_TEXT
        ):
            yield f"{name}, line {node.lineno}: {node.func.id}"
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ):
            yield f"{name}, line {node.value.lineno}: allow_pickle is not False"


def forbidden_imports(name, tree):
    """One line for each library that a module may not name, anywhere in it."""
    refused = TEST_ONLY | UNSAFE | (HOST_ONLY if name.partition(".")[0] in TRAINING else set())
    heads = {found.partition(".")[0] for found in imports(tree)}
    yield from (f"{name} imports {head}" for head in sorted(heads & refused))


def circles(graph):
    """One line for each circle that a walk down the imports comes upon."""
    found = []
    done = set()

    def visit(name, path):
        if name in path:
            found.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    return found


def test_imports_go_down_and_name_nothing_forbidden():
    """Every module at once; each offender is named."""
    named = {name: tree for name, tree in modules().items() if name}
    assert [line for name, tree in named.items() for line in breaks_layers(name, tree)] == []
    assert [
        line for name, tree in modules().items() for line in forbidden_imports(name, tree)
    ] == []
    assert [line for name, tree in modules().items() for line in forbidden_calls(name, tree)] == []


def test_modules_import_without_a_circle():
    """Imports under TYPE_CHECKING count as well."""
    assert (
        circles(
            {
                name: own_imports(tree, typed=True) - {name}
                for name, tree in modules().items()
                if name
            }
        )
        == []
    )


def test_the_picture_of_the_page_is_current():
    drawn = (ROOT / "docs" / "architecture.svg").read_text()
    assert drawn == picture(), "python -m tests.structure > docs/architecture.svg"


def test_planted_offenders_are_found():
    """An import inside a function counts. One under TYPE_CHECKING counts for circles alone."""
    planted = ast.parse(
        "def f():\n    from jaxtrade.rl.ppo import make_ppo\n    import jaxtrade.evaluation.metrics\n"
    )
    assert [line.split()[4] for line in breaks_layers("env.dynamics", planted)] == [
        "evaluation.metrics",
        "rl.ppo",
    ]
    typed = ast.parse(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jaxtrade.rl.ppo import make_ppo\n"
    )
    assert breaks_layers("env.dynamics", typed) == []
    assert own_imports(typed, typed=True) == {"rl.ppo"}
    assert len(breaks_layers("env.dynamics", ast.parse("from jaxtrade import __version__"))) == 1
    assert len(breaks_layers("nowhere", typed)) == 1
    sideways = ast.parse("import jaxtrade.interop.host\n")
    assert [line.split()[4] for line in breaks_layers("evaluation.metrics", sideways)] == [
        "interop.host"
    ]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b -> c -> b"]
    unsafe = ast.parse(
        "import pickle\ndef f(x):\n    import pandas\n    return eval(x), load(x, allow_pickle=True)\n"
    )
    assert list(forbidden_imports("rl.ppo", unsafe)) == [
        "rl.ppo imports pandas",
        "rl.ppo imports pickle",
    ]
    assert list(forbidden_imports("data.bars", unsafe)) == ["data.bars imports pickle"]
    assert len([*forbidden_calls("rl.ppo", unsafe)]) == 2


def loaded(statements):
    """Statement -> top-level modules that a fresh interpreter holds after it; they run one after
    the other.
    """
    code = (
        "import json, sys\nheld = {}\n"
        f"for statement in {statements!r}:\n"
        "    try:\n"
        "        exec(statement)\n"
        "    except SystemExit:\n"
        "        pass\n"
        "    held[statement] = sorted({name.partition('.')[0] for name in sys.modules})\n"
        "print(json.dumps(held))"
    )
    result = run_python("-c", code, cwd=ROOT, timeout=300, check=True)
    return {
        statement: set(names)
        for statement, names in json.loads(result.stdout.splitlines()[-1]).items()
    }


def test_what_answers_at_once_loads_no_jax_and_training_loads_no_host_library(tmp_path):
    """In fresh interpreters: what is imported inside a function, or by a library, counts as
    well. Help, errors and lists do not even load NumPy.
    """
    nets = (np.arange(40.0), np.arange(40.0)[::-1])
    days = dates("2024-01-01", 40)
    runs = [str(run(tmp_path / f"run{n}", {"": net}, days)) for n, net in enumerate(nets)]
    commands = [
        ["--help"],
        ["train", "--help"],
        ["train", "--set", "ppo.lr=1"],
        ["train", "--contract", "SPY"],
        ["bench", "nothing"],
        ["bench", "env_step", "--compare", "nowhere"],
        *(["list", what] for what in LISTS),
    ]
    at_once = ["import jaxtrade.progress.screen"]
    at_once += [f"from jaxtrade.cli import main; main({words!r})" for words in commands]
    at_once += [
        "import jaxtrade",
        "import jaxtrade.config",
        "import jaxtrade.errors",
        "import jaxtrade.cli",
        "import jaxtrade.data.features.schema",
        "from jaxtrade import load_config; load_config('quickstart')",
        "from jaxtrade.cli.shared import check_names; from jaxtrade import load_config; "
        "check_names(load_config(None, ['reward.weights.win=1', 'env.task=advised']))",
        f"from jaxtrade.cli import main; main(['runs', {str(tmp_path)!r}])",
        f"from jaxtrade.cli import main; main(['compare', *{runs!r}])",
        "import jaxtrade.evaluation.test_set_history, jaxtrade.storage.trials",
    ]
    slow = {"jax", "pandas", "flax", "optax", *HOST_ONLY}
    held = loaded(at_once)
    assert {statement: names & slow for statement, names in held.items() if names & slow} == {}
    assert not held[at_once[len(commands)]] & {"numpy", "rich", "torch"}
    training = [
        f"import jaxtrade.{name}" for name in modules() if name.partition(".")[0] in TRAINING
    ]
    assert {"import jaxtrade.env.dynamics", "import jaxtrade.rl.returns"} <= set(training)
    held = loaded(training)
    assert "jax" in held[training[-1]]
    refused = HOST_ONLY | TEST_ONLY
    assert {
        statement: names & refused for statement, names in held.items() if names & refused
    } == {}
