"""The commit of the code that runs: of its own checkout, or of the one that the installed package
was built from.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

STAMP = "_commit.txt"  # in the package; written by setup.py into wheels and source distributions
UNKNOWN = "unknown"
PACKAGE = Path(__file__).resolve().parent.parent
# Where git looks instead of around the current folder. Git sets them for hooks: they name another
# repository.
PLACES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
)


def commit(package: Path = PACKAGE) -> str:
    """40 hex digits, with "-dirty" if the source had changes that were not committed; "unknown" if
    nothing says it.

    A package in its own checkout asks git. An installed copy may lie inside another repository,
    whose commit would say
    nothing: it reads what the build has written.
    """
    found = _of_checkout(package)
    if found is None and (package / STAMP).is_file():
        found = (package / STAMP).read_text(encoding="ascii").strip()
    return found or UNKNOWN


def environment() -> dict[str, str]:
    """The environment in which git looks around the folder that it is told, and nowhere else."""
    return {name: value for name, value in os.environ.items() if name not in PLACES}


def _of_checkout(package: Path) -> str | None:
    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(package), *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
                env=environment(),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if (
        top is None
        or Path(top).resolve() != package.parent.resolve()
        or git("ls-files", "--error-unmatch", str(package / "__init__.py")) is None
    ):
        return None
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
