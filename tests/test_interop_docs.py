"""docs/interop.md is true: its Python runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extras import needed

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
NAMES = [re.findall(r'print\("(\w+)"', code)[0] for _, code in BLOCKS]


def test_every_door_has_a_block():
    assert NAMES == ["gymnax", "gymnasium", "sb3", "seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(("needs", "code"), BLOCKS, ids=NAMES)
def test_the_python_runs_as_printed(needs, code, tmp_path):
    if needs.strip() == "sb3":
        needed("sb3_contrib")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [said] = re.findall(r'print\("(\w+)"', code)
    assert re.search(rf"^{said} ", done.stdout, re.MULTILINE)
