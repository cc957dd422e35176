"""May a result be quoted? Its commit is a clean one in this history, and the machine was idle.

`check` refuses to publish any other commit. `BEFORE` names the results that were committed before this rule: they are
published as *unverified* until they are measured again, and their entries then go. Nothing is added to it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError

from . import idle
from .catalogue import TIMELESS

BEFORE = {  # result, as `by_name` calls it -> its commit, which is not in this history or had changes
    "ablation": "3de7a08", "curriculum": "b741705", "env_step": "65d92b7+", "rollout": "3de7a08", "scaling": "3de7a08",
}
Fault = Callable[[str, Path], str | None]


def by_name(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`bench`, or `machine/bench` for the results of another machine -> result."""
    return {f"{machine}/{bench}" if machine else bench: result
            for machine, benches in results.items() for bench, result in benches.items()}


def no_history(root: Path) -> str | None:
    """Why commits cannot be checked in `root`; None where they can."""
    if not (root / ".git").exists():
        return "no git history here (a source distribution?)"
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    if shallow.returncode:
        return f"git does not answer: {shallow.stderr.strip()}"
    return "the git history is not complete: git fetch --unshallow" if shallow.stdout.strip() == "true" else None


def fault(commit: str, root: Path) -> str | None:
    """What is wrong with a result's commit; None for a clean commit in the history of HEAD.

    Raises DataError where there is no complete history to look in.
    """
    if commit.endswith("+"):
        return f"commit {commit[:-1]} with uncommitted changes"
    if commit == "unknown":
        return "its commit is unknown"
    if reason := no_history(root):
        raise DataError(f"commits of results cannot be checked: {reason}")
    inside = _git(root, "merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
    return None if inside else f"commit {commit} is not in this history"


def check(results: Mapping[str, Mapping[str, Any]], root: Path, find: Fault = fault) -> None:
    """Raises DataError: a result of another commit than a clean one in the history, and not as `BEFORE` lists it."""
    found = {name: find(result["stamp"]["commit"], root) for name, result in by_name(results).items()
             if BEFORE.get(name) != result["stamp"]["commit"]}
    if faults := [f"{name}.json: {why}" for name, why in found.items() if why]:
        raise DataError(f"{'; '.join(faults)}: measure again from a clean commit of this history")


def doubts(name: str, result: Mapping[str, Any]) -> list[str]:
    """Why a published result is unverified; nothing where it may be quoted. name: as `by_name` calls it. A bench that
    measures no time needs no idle machine."""
    stamp = result["stamp"]
    commit = str(stamp["commit"])
    old = BEFORE.get(name) == commit
    about = (f"commit {commit[:-1]} with uncommitted changes" if commit.endswith("+")
             else f"commit {commit} is not in this history")
    busy = [] if result.get("bench") in TIMELESS else idle.reasons(stamp["load_before"], stamp.get("steal"))
    return [*busy, *([about] if old else [])]


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
