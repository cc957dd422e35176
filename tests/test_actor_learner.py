"""docs/scale.md: the tests that it names exist, and what it says about processes and pickle holds."""

import ast
import re

import pytest

from tests.reading import ROOT
from tests.structure import imports, modules

PAGE = ROOT / "docs" / "scale.md"
SHARING = ("multiprocessing", "pickle", "cloudpickle", "dill", "concurrent.futures.process")


def test_every_test_of_the_page_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())
    assert len(named) >= 12
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in found, f"{file}::{name}"


@pytest.mark.slow
def test_nothing_is_shared_by_processes_or_pickled():
    """No module of the package imports what shares memory or code between processes, and NumPy's
    files hold none.
    """
    for name, tree in modules().items():
        shared = [each for each in imports(tree, typed=True) if each.startswith(SHARING)]
        assert shared == [], name
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            written = ast.unparse(call.func)
            if written in ("np.load", "np.savez"):
                assert "allow_pickle=False" in ast.unparse(call), f"{name}: {ast.unparse(call)}"
