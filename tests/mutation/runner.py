"""Applies seeded faults to copies of the repository and runs the tests that must notice them."""

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutation.faults import Fault
from tests.reading import ROOT

SECONDS = 600  # for the tests of one fault
SKIPPED = shutil.ignore_patterns(
    ".git",
    ".venv",
    "venv",
    "__pycache__",
    "*.egg-info",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
)
OUTSIDE = (
    "configs",
    "bench",
)  # top-level folders that are packages of `jaxtrade` once it is installed
TESTS_FAILED, INTERRUPTED = (
    1,
    2,
)  # pytest's exit statuses; it is interrupted where a test file cannot be imported


class Verdict(NamedTuple):
    """outcome: caught, SURVIVED, NOT FOUND (the old text) or BROKEN (no verdict); by: the test that
    failed, or why.
    """

    fault: Fault
    outcome: str
    by: str
    seconds: float

    @property
    def line(self):
        return f"{self.outcome:<9}  {self.fault.package:<10}  {self.fault.id:<44}  {self.seconds:6.1f} s  {self.by}"


class BaselineError(Exception):
    """The unchanged copy does not pass its tests, or is not what gets imported: no verdict would
    mean anything.
    """


def _skipped(folder, names):
    """What is not copied. `runs` at the top holds runs; `jaxtrade/runs` is a package."""
    return SKIPPED(folder, names) | ({"runs"} if Path(folder) == ROOT else set())


class Tree:
    """A copy of the repository whose package and tests are the ones that get imported."""

    def __init__(self, root):
        self.root = root = root.resolve()
        shutil.copytree(ROOT, root, ignore=_skipped)
        for name in OUTSIDE:  # an editable install would find these in the repository
            (root / "jaxtrade" / name).symlink_to(Path("..") / name, target_is_directory=True)
        names = ("jaxtrade", "tests", *(f"jaxtrade.{name}" for name in OUTSIDE))
        code = (
            f"import importlib\nfor name in {names}: print(*importlib.import_module(name).__path__)"
        )
        found = self._python("-c", code).stdout.splitlines()
        if len(found) != len(names) or any(not Path(path).is_relative_to(root) for path in found):
            raise BaselineError(
                f"{', '.join(names)} are imported from {found}, not from the copy in {root}"
            )

    def _python(self, *arguments):
        env = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "CI": "1",
        }  # CI: the same random examples every time
        env.setdefault("JAXTRADE_SHARED", str(ROOT.parent / "shared"))
        env.setdefault("JAX_COMPILATION_CACHE_DIR", str(self.root.parent / "programs"))
        env.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        env.pop(
            "PYTHONDONTWRITEBYTECODE", None
        )  # dozens of processes would each compile the whole package
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def test(self, names):
        """Run the quick tests `names` up to the first failure."""
        return self._python("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *names)

    @contextmanager
    def holding(self, fault):
        """The tree with `fault` in it. Raises ValueError where its old text is not found once."""
        path = self.root / fault.path
        before, after = path.read_text(), fault.applied(self.root)
        self._write(path, after)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path, text):
        path.write_text(text)
        # Compiled code is found by time in whole seconds and by size: a change within a second
        # could go unseen.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def verdict_on(self, fault):
        """What the tests make of a fault."""
        start = time.perf_counter()
        try:
            with self.holding(fault):
                done = self.test(fault.caught_by)
        except ValueError as error:
            return Verdict(fault, "NOT FOUND", str(error), time.perf_counter() - start)
        except subprocess.TimeoutExpired:
            return Verdict(
                fault, "caught", f"a test hangs for {SECONDS} s", time.perf_counter() - start
            )
        seconds = time.perf_counter() - start
        if done.returncode == 0:
            return Verdict(fault, "SURVIVED", ", ".join(fault.caught_by), seconds)
        if done.returncode not in (TESTS_FAILED, INTERRUPTED):
            return Verdict(
                fault,
                "BROKEN",
                f"pytest ended with {done.returncode}: {done.stdout[-300:]}",
                seconds,
            )
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return Verdict(fault, "caught", failed[1] if failed else "?", seconds)


def check_baseline(tree, faults):
    """Raises BaselineError where tests named by `faults` fail on the unchanged copy."""
    done = tree.test(sorted({name for fault in faults for name in fault.caught_by}))
    if done.returncode:
        raise BaselineError(
            f"the tests do not pass on the unchanged copy:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
        )


def audit(faults, jobs):
    """Verdicts as they come, after the tests have passed without any fault. Raises
    BaselineError.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees = queue.Queue()
        first = Tree(Path(folder) / "0" / "tree")
        check_baseline(first, faults)
        trees.put(first)
        for i in range(1, jobs):
            trees.put(Tree(Path(folder) / str(i) / "tree"))

        def verdict_on(fault):
            tree = trees.get()
            try:
                return tree.verdict_on(fault)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(verdict_on, faults)
