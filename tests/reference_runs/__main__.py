"""Short runs of everything that trains, and hashes of what they leave: shows that a change computes
the same bits.

    python -m tests.reference_runs                  run all, compare with `hashes.json` (made on the machine it names)
    python -m tests.reference_runs entry gru        some of them
    python -m tests.reference_runs --against REV    compare with what commit REV computes on this machine
    python -m tests.reference_runs --write FILE     write the hashes to FILE instead
    python -m tests.reference_runs --digests --against REV
                                                    compare programs instead of results (`digests`)

Bits depend on the processor and on JAX's version, so `hashes.json` holds for its own machine;
`--against` needs no such luck. Exit code 0: all equal, 1: something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from tests.reference_runs import digests

BASE = "95ef9c75"  # the commit that the package's programs are held against
HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HASHES = HERE / "hashes.json"


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
    document = json.loads(path.read_text(encoding="utf-8"))
    return _sha(json.dumps(document["agents"], sort_keys=True).encode())


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


def _machine():
    flags = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith("flags")), "")
    return {
        "processor": platform.machine(),
        "instructions": _sha(flags.encode()),
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "pandas")},
    }


def run_all(names, folder):
    """Train the runs below `folder`, one process each; run -> digests."""
    from tests.reference_runs.runs import PREPARE, RUNS, write_files

    write_files(folder)
    made = {}
    # One thread: the number of threads decides the order of float sums. One cache: many runs share
    # a program.
    environment = os.environ | {
        "NPROC": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
    }

    def run(words):
        command = [
            sys.executable,
            "-m",
            "jaxtrade.cli",
            *(word.format(folder=folder) for word in words),
        ]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in (
            0,
            1,
        ):  # 1: finished, but a health check or gate of so short a run failed
            raise SystemExit(
                f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}"
            )

    if any("table:" in word for name in names for word in RUNS[name]):
        run(PREPARE)
    for name in names:
        run([*RUNS[name], "--run-dir", str(folder / name)])
        made[name] = hashes_of(folder / name)
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


def _at(revision, names, folder):
    """What another commit's own script computes."""
    out = folder / "hashes.json"
    with _tree(revision, folder) as tree:
        subprocess.run(
            [sys.executable, "-m", "tests.reference_runs", *names, "--write", str(out)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            check=True,
        )
    return json.loads(out.read_text(encoding="utf-8"))["runs"]


def _compare_programs(names, revision, scratch):
    """How many configurations have other programs than those of another commit."""
    jobs = os.cpu_count() or 1
    with _tree(revision, scratch) as tree:
        expected = digests.capture_all(tree, names, scratch / "there", jobs)
    found = digests.capture_all(ROOT, names, scratch / "here", jobs)
    return digests.compare(found, expected)


def compare(found, expected):
    """Print what differs; the number of runs that do."""
    bad = 0
    for name, hashes in found.items():
        known = expected.get(name, {})
        wrong = [
            what
            for what in sorted(hashes.keys() | known.keys())
            if hashes.get(what) != known.get(what)
        ]
        bad += bool(wrong)
        for what in wrong:
            print(
                f"DIFFERS {name}: {what}: {hashes.get(what, 'absent')}, expected {known.get(what, 'absent')}"
            )
    total = sum(len(hashes) for hashes in found.values())
    print(f"{len(found) - bad} of {len(found)} runs equal ({total} hashes)")
    return bad


def main():
    from tests.reference_runs.runs import RUNS, ordered

    programs = digests.commands()
    parser = argparse.ArgumentParser(
        prog="python -m tests.reference_runs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}; default: all"
    )
    parser.add_argument(
        "--against", metavar="REV", help="compare with what this commit computes here"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the hashes, compare nothing"
    )
    parser.add_argument(
        "--digests",
        action="store_true",
        help=f"compare programs, without --against REV those of {BASE}; also of "
        f"{', '.join(sorted(programs.keys() - RUNS.keys()))}",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run folders here")
    chosen = parser.parse_args()
    known = programs if chosen.digests else RUNS
    if unknown := set(chosen.runs) - set(known):
        parser.error(f"unknown runs: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    if chosen.digests:
        with tempfile.TemporaryDirectory() as scratch:
            names = chosen.runs or list(programs)
            return min(_compare_programs(names, chosen.against or BASE, Path(scratch)), 1)
    names = ordered(chosen.runs or list(RUNS))
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch) / "here"
        folder.mkdir(parents=True, exist_ok=True)
        found = run_all(names, folder.resolve())
        if chosen.write:
            commit = subprocess.run(
                ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            document = {"commit": commit, "machine": _machine(), "runs": found}
            chosen.write.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            return 0
        if chosen.against:
            return min(compare(found, _at(chosen.against, names, Path(scratch))), 1)
    document = json.loads(HASHES.read_text(encoding="utf-8"))
    if document["machine"] != _machine():
        print(
            f"note: {HASHES.name} was made on another machine or other versions ({document['machine']}); where runs "
            f"differ, compare by --against {document['commit']}"
        )
    return min(compare(found, document["runs"]), 1)


if __name__ == "__main__":
    raise SystemExit(main())
