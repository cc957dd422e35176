"""What a build packs, as far as it shows without building; `python -m tests.package_check` builds
and installs.
"""

import re
import subprocess

import pytest

from tests.reading import ROOT


def test_the_source_distribution_names_everything_at_the_top():
    """MANIFEST.in has every file and folder at the top of the checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git here says which files belong to the checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip(f"git does not answer: {listed.stderr.strip()}")
    tops = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    named = {
        word for line in lines if line and line[0] in ("graft", "include") for word in line[1:]
    }
    assert named == tops


def test_every_folder_of_modules_is_a_package_that_setuptools_finds():
    folders = {
        module.parent for top in ("jaxtrade", "bench") for module in (ROOT / top).rglob("*.py")
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_every_test_file_that_ci_names_exists():
    named = " ".join((ROOT / name).read_text() for name in (".ci/run", "tests/oldest.txt"))
    assert not [
        name
        for name in re.findall(r"\btests/[\w/]+(?:\.py|\.txt|\b)", named)
        if not (ROOT / name).exists()
    ]
