"""Tests that need the `bench` or the `trackers` extra are run by .ci/run, and say what to install
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


def test_every_file_that_needs_the_extra_is_run_with_it():
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("no .ci/run here (a source distribution)")
    with_extra = script.read_text().partition('pip install -e ".[test,bench]"')[2]
    named = set(re.findall(r"tests/\S+\.py", with_extra))
    assert users() <= named
    assert all((ROOT / name).is_file() for name in named)


def test_the_trackers_are_run_with_their_packages():
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("no .ci/run here (a source distribution)")
    with_extra = script.read_text().partition('pip install -e ".[test,trackers]"')[2]
    assert "tests/test_trackers.py" in with_extra
    page = (ROOT / "docs" / "checks.md").read_text()
    assert '".[test,trackers]"' in page
