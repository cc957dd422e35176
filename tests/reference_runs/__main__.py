"""Digests of the programs of everything that trains: shows that a change computes the same as another
commit.

    python -m tests.reference_runs                  all, here and in the commit `BASE`
    python -m tests.reference_runs entry gru        some of them
    python -m tests.reference_runs --against REV    compare with commit REV

Exit code 0: all equal, 1: something differs.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from tests.reading import ROOT
from tests.reference_runs import digests

BASE = "2000bfaa"  # the commit that the package's programs are held against


def main():
    known = digests.commands()
    parser = argparse.ArgumentParser(
        prog="python -m tests.reference_runs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(known)}")
    parser.add_argument("--against", metavar="REV", default=BASE, help="by default %(default)s")
    chosen = parser.parse_args()
    if unknown := set(chosen.runs) - set(known):
        parser.error(f"unknown runs: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    names, jobs = chosen.runs or list(known), os.cpu_count() or 1
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        tree = scratch / "tree"
        subprocess.run([*git, "add", "--detach", str(tree), chosen.against], check=True)
        try:
            expected = digests.capture_all(tree, names, scratch / "there", jobs)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
        found = digests.capture_all(ROOT, names, scratch / "here", jobs)
    return min(digests.compare(found, expected), 1)


if __name__ == "__main__":
    raise SystemExit(main())
