"""docs/advisor_faults.md names tests that are there, and leaves no fault out."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "advisor_faults.md").read_text(encoding="utf-8")


def test_every_test_that_it_names_is_there():
    named = set(re.findall(r"`(test_\w+)::(test_\w+)`", PAGE))
    assert len(named) > 80
    there = {
        (path.stem, node.name)
        for path in (*HERE.glob("test_*.py"), *HERE.parent.glob("test_advi*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert sorted(named - there) == []


def test_every_fault_has_a_test_or_says_that_it_has_none():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 34))
    assert [number for number, row in rows if "::" not in row and "not tested" not in row] == []
    invariants = re.findall(r"^\| I(\d+) \| .*::.* \|$", PAGE, re.MULTILINE)
    assert [int(number) for number in invariants] == list(range(1, 13))
