"""May a result be quoted? Its commit is a clean one in this history, and the machine was idle.

`check` refuses to publish any other commit. A result of a machine that was not idle is published as *unverified*.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError
from jaxtrade.runs.commit import environment

from . import idle
from .catalogue import TIMELESS

Fault = Callable[[str, Path], str | None]


def by_name(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`bench`, or `machine/bench` for the results of another machine -> result."""
    return {
        f"{machine}/{bench}" if machine else bench: result
        for machine, benches in results.items()
        for bench, result in benches.items()
    }


def no_history(root: Path) -> str | None:
    """Why commits cannot be checked in `root`; None where they can."""
    if not (root / ".git").exists():
        return "no git history here (a source distribution?)"
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    if shallow.returncode:
        return f"git does not answer: {shallow.stderr.strip()}"
    return (
        "the git history is not complete: git fetch --unshallow"
        if shallow.stdout.strip() == "true"
        else None
    )


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
    """Raises DataError: a result of another commit than a clean one in the history."""
    found = {
        name: find(result["stamp"]["commit"], root) for name, result in by_name(results).items()
    }
    if faults := [f"{name}.json: {why}" for name, why in found.items() if why]:
        raise DataError(f"{'; '.join(faults)}: measure again from a clean commit of this history")


def doubts(result: Mapping[str, Any]) -> list[str]:
    """Why a published result is unverified; nothing where it may be quoted. A bench that measures
    no time needs no idle machine."""
    stamp = result["stamp"]
    return (
        []
        if result.get("bench") in TIMELESS
        else idle.reasons(stamp["load_before"], stamp.get("steal"))
    )


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=False, env=environment()
    )
