"""faults.yaml describes every fault and names tests that are there, for every fault and every
invariant of docs/advisor.md.
"""

import ast
import re
from pathlib import Path

import yaml

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "advisor.md").read_text(encoding="utf-8")
TEXT = (HERE / "faults.yaml").read_text(encoding="utf-8")
TESTS = yaml.safe_load(TEXT)


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


def test_every_invariant_and_fault_has_a_test():
    faults, invariants = range(1, 34), [f"I{number}" for number in range(1, 13)]
    assert re.findall(r"^\| (I\d+) \| .* \|$", PAGE, re.MULTILINE) == invariants
    assert list(TESTS) == ["all", *invariants, *faults]
    assert [name for name, tests in TESTS.items() if not tests] == []


def test_every_fault_is_described():
    described = re.findall(r"^# (\d+)\. .+\n(?:# .+\n)*\1:$", TEXT, re.MULTILINE)
    assert described == [str(number) for number in range(1, 34)]
