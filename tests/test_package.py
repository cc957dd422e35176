"""What a build packs, as far as it shows without building; `python -m tests.package_check` builds
and installs.
"""

import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

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


def test_versions_that_are_stated_twice_agree():
    """The citation has the package's version; ruff before a commit is one that the tests allow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    allowed = [Requirement(line) for line in project["optional-dependencies"]["test"]]
    [ruff] = [each.specifier for each in allowed if each.name == "ruff"]
    pinned = re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(pinned) == 2
    assert all(ruff.contains(version) for version in pinned)
