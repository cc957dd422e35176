"""Short runs of everything that trains, and hashes of what they leave: shows that a change computes
the same bits as another commit, on the same machine.

    python -m tests.reference_runs                  run all, here and in the commit `BASE`
    python -m tests.reference_runs entry gru        some of them
    python -m tests.reference_runs --against REV    compare with commit REV
    python -m tests.reference_runs --digests        compare programs instead of results (`digests`)

Exit code 0: all equal, 1: something differs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.reading import ROOT, read_json
from tests.reference_runs import digests
from tests.reference_runs.runs import PREPARE, RUNS, ordered, write_files

BASE = "2000bfaa"  # the commit that the package's programs are held against


def _sha(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def _arrays(path):
    """Name -> dtype, shape and bytes of each array of an `.npz`."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return {
            name: f"{archive[name].dtype}{archive[name].shape}".encode() + archive[name].tobytes()
            for name in archive.files
        }


def _without_names(path):
    """Of all arrays of an `.npz`, whatever they are called."""
    return _sha(*sorted(_arrays(path).values()))


def _parameters(path):
    found = {name: data for name, data in _arrays(path).items() if name.startswith("params/")}
    assert found, f"{path}: no parameters"
    return _sha(*(part for name in sorted(found) for part in (name.encode(), found[name])))


def _evaluation(path):
    """The figures of every agent; the rest of the file says where and when they were made."""
    return _sha(json.dumps(read_json(path)["agents"], sort_keys=True).encode())


def hashes_of(folder):
    """Relative path and what -> hash, of every run at or below `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "state.npz":
            found[f"{name}: parameters"] = _parameters(path)
            found[f"{name}: whole state"] = _without_names(path)
        elif path.name == "evaluation.json":
            found[name] = _evaluation(path)
        elif path.name == "trades.csv":
            found[name] = _sha(path.read_bytes())
    assert found, f"{folder}: nothing to compare"
    return found


def run_all(tree, names, folder):
    """Train the runs below `folder`, one process each, with the package of the checkout at `tree`;
    run -> what it left, with its hash.
    """
    folder.mkdir()
    write_files(folder)
    made = {}
    # One thread: the number of threads decides the order of float sums. One cache: many runs share
    # a program.
    environment = os.environ | {
        "NPROC": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(tree),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
    }

    def run(words):
        command = ["-m", "jaxtrade.cli", *(word.format(folder=folder) for word in words)]
        digests.run(command, folder, environment)

    if any("table:" in word for name in names for word in RUNS[name]):
        run(PREPARE)
    for name in ordered(names):
        run([*RUNS[name], "--run-dir", str(folder / name)])
        made[name] = [": ".join(item) for item in sorted(hashes_of(folder / name).items())]
        print(f"{name}: {len(made[name])} hashes", flush=True)
    return made


@contextmanager
def _tree(revision, folder):
    """A checkout of another commit."""
    tree = folder / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(tree), revision], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main():
    programs = digests.commands()
    parser = argparse.ArgumentParser(
        prog="python -m tests.reference_runs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}; default: all"
    )
    parser.add_argument("--against", metavar="REV", default=BASE, help="by default %(default)s")
    parser.add_argument(
        "--digests",
        action="store_true",
        help=f"compare programs; also of {', '.join(sorted(programs.keys() - RUNS.keys()))}",
    )
    chosen = parser.parse_args()
    known = programs if chosen.digests else RUNS
    if unknown := set(chosen.runs) - set(known):
        parser.error(f"unknown runs: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    names = chosen.runs or list(known)
    jobs = os.cpu_count() or 1
    made = partial(digests.capture_all, jobs=jobs) if chosen.digests else run_all
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        with _tree(chosen.against, scratch) as tree:
            expected = made(tree, names, scratch / "there")
        found = made(ROOT, names, scratch / "here")
    return min(digests.compare(found, expected), 1)


if __name__ == "__main__":
    raise SystemExit(main())
