"""Tests that need the extra `bench`, `nautilus` or `trackers` are run by .ci/run, and say what to install
where they skip.
"""

import re
from pathlib import Path

import pytest

from tests.reading import ROOT

TESTS = ROOT / "tests"


def users():
    """Test files that ask for a package of the extra."""
    found = (path for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    return {
        path.relative_to(ROOT).as_posix()
        for path in found
        if "from tests.extras import" in path.read_text()
    }


@pytest.mark.parametrize(
    ("extra", "files"),
    [
        ("bench", users()),
        ("nautilus", {"tests/paper/test_nautilus.py"}),
        ("trackers", {"tests/test_trackers.py"}),
    ],
)
def test_every_file_that_needs_an_extra_is_run_with_it(extra, files):
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("no .ci/run here (a source distribution)")
    install = f'pip install -e ".[test,{extra}]"'
    named = re.findall(r"tests/\S+\.py", script.read_text().partition(install)[2])
    assert files <= {*named}
    assert all((ROOT / name).is_file() for name in named)
    assert install in " ".join((ROOT / "docs" / "checks.md").read_text().split())
