"""Which commits a result may be published of, in repositories of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import provenance, publish
from jaxtrade.errors import DataError
from tests.bench.made_up import STAMP, env_step, write
from tests.bench.test_stamp import git


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Two commits on the branch, and one beside it."""
    (tmp_path / "kept").mkdir()
    git(tmp_path / "kept", "init", "-q", "-b", "main")
    for name in ("first", "second"):
        git(tmp_path / "kept", "commit", "-q", "--allow-empty", "-m", name)
    git(tmp_path / "kept", "checkout", "-q", "-b", "aside")
    git(tmp_path / "kept", "commit", "-q", "--allow-empty", "-m", "never merged")
    git(tmp_path / "kept", "checkout", "-q", "main")
    return tmp_path / "kept"


def commit(folder: Path, name: str) -> str:
    return git(folder, "rev-parse", "--short", name)


def test_only_a_clean_commit_of_the_history_will_do(history: Path) -> None:
    for name in ("HEAD", "HEAD~1"):
        assert provenance.fault(commit(history, name), history) is None
    aside = commit(history, "aside")
    assert provenance.fault(aside, history) == f"commit {aside} is not in this history"
    assert provenance.fault("0123abc", history) == "commit 0123abc is not in this history"
    assert provenance.fault(commit(history, "HEAD") + "+", history) is not None
    assert provenance.fault("unknown", history) == "its commit is unknown"


def test_without_the_whole_history_nothing_is_guessed(history: Path, tmp_path: Path) -> None:
    head = commit(history, "HEAD")
    git(tmp_path, "clone", "-q", "--depth", "1", history.as_uri(), "shallow")
    for folder, reason in (
        (tmp_path / "shallow", "git fetch --unshallow"),
        (tmp_path, "no git history"),
    ):
        assert reason in (provenance.no_history(folder) or "")
        with pytest.raises(DataError, match=reason):
            provenance.fault(head, folder)
    assert provenance.no_history(history) is None


def test_other_commits_are_not_published(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (history / "docs").mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        (history / name).write_text(f"{publish.BEGIN}\n{publish.END}\n")
    rows = history / "targets.yaml"
    rows.write_text("- {what: x, least: 1, bench: memory, at: [none]}\n")
    for at, expected in (
        (commit(history, "HEAD"), 0),
        (commit(history, "aside"), 1),
        (commit(history, "HEAD") + "+", 1),
    ):
        write(env_step(stamp=STAMP | {"commit": at}), history / "bench" / "results")
        assert publish.main([], history, rows) == expected, at
        said = capsys.readouterr().err
        assert ("measure again from a clean commit" in said) == bool(expected)
