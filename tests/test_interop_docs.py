"""docs/interop.md is true: its Python runs as printed."""

import re

import pytest

from tests.children import run_python
from tests.extras import needed
from tests.reading import ROOT

PAGE = (ROOT / "docs" / "interop.md").read_text()
BLOCKS = re.findall(r"```python([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
NAMES = [re.findall(r'print\("(\w+)"', code)[0] for _, code in BLOCKS]


def test_every_door_has_a_block():
    assert NAMES == ["gymnax", "gymnasium", "sb3", "seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(("needs", "code"), BLOCKS, ids=NAMES)
def test_the_python_runs_as_printed(needs, code, tmp_path):
    if needs.strip() == "sb3":
        needed("sb3_contrib")
    done = run_python("-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [said] = re.findall(r'print\("(\w+)"', code)
    assert re.search(rf"^{said} ", done.stdout, re.MULTILINE)
