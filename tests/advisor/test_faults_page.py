"""faults.yaml names tests that are there, for every invariant and fault of docs/ablation.md."""

import ast
import re
from pathlib import Path

import yaml

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "ablation.md").read_text(encoding="utf-8")
TESTS = yaml.safe_load((HERE / "faults.yaml").read_text(encoding="utf-8"))


def test_every_test_that_it_names_is_there():
    named = {tuple(test.split("::")) for tests in TESTS.values() for test in tests}
    assert len(named) > 80
    there = {
        (path.stem, node.name)
        for path in (*HERE.glob("test_*.py"), *HERE.parent.glob("test_advi*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert sorted(named - there) == []


def test_every_fault_has_a_test_or_says_that_it_has_none():
    rows = dict(re.findall(r"^\| (I?\d+) \| (.*) \|$", PAGE, re.MULTILINE))
    faults, invariants = range(1, 34), [f"I{number}" for number in range(1, 13)]
    assert list(rows) == [*invariants, *map(str, faults)]
    assert list(TESTS) == ["all", *invariants, *faults]
    assert [name for name in invariants if not TESTS[name]] == []
    untested = [number for number in faults if not TESTS[number]]
    assert [number for number in untested if "not tested" not in rows[str(number)]] == []
