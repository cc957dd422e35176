"""The README is true: its Python runs as printed. Its commands are among those of test_site."""

import re

import pytest

from tests.children import run_python
from tests.reading import ROOT

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_python_runs_as_printed(tmp_path):
    """The first page of the documentation is the beginning of it."""
    pattern = re.compile(r"```python\n(.*?)```", re.DOTALL)
    [block] = pattern.findall(README)
    [first] = pattern.findall((ROOT / "docs" / "index.md").read_text())
    plain = {line.partition("  #")[0] for line in block.splitlines()}
    assert {line.partition("  #")[0] for line in first.splitlines()} - plain == {"result.trades"}
    done = run_python("-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{block}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "your policy" in done.stdout
    assert (tmp_path / "equity.png").stat().st_size > 10_000
