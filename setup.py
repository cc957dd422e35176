"""Finds the packages, and puts the commit of the source into every wheel and source distribution.

The commit is in `jaxtrade/_commit.txt`. Everything else about the package is in pyproject.toml. A
build without the git history (from a source distribution, for example) passes on the commit that it
finds there, or has none.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
STAMP = Path("jaxtrade") / "_commit.txt"
# As in jaxtrade/runs/commit.py, which cannot be imported here: its package may lack what it needs.
GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def stamp(folder: Path) -> None:
    """Write the commit into a folder of files that are about to be packed. Without the history, nothing is written."""
    if not (ROOT / ".git").exists():
        return
    try:
        done = subprocess.run(GIT, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git here, or a checkout of another user
        return
    (folder / STAMP).unlink(missing_ok=True)  # may be a link to a file of the source
    (folder / STAMP).write_text(done.stdout.strip() + "\n", encoding="ascii")


class Build(build_py):
    """`build_py` with the commit. An editable install has none: it asks git when it runs."""

    def run(self) -> None:
        """Copy the package, and write the commit beside it."""
        super().run()
        if not self.editable_mode:
            stamp(Path(self.build_lib))


class Source(sdist):
    """`sdist` with the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, and write the commit among them."""
        super().make_release_tree(base_dir, files)
        stamp(Path(base_dir))


PACKAGES = [
    *find_packages(include=["jaxtrade", "jaxtrade.*"]),
    *(f"jaxtrade.{name}" for name in find_packages(include=["bench", "bench.*"])),
    "jaxtrade.configs",
]
setup(packages=PACKAGES, cmdclass={"build_py": Build, "sdist": Source})
