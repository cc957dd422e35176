"""The commit that a run records: of its own checkout, or of the installed build; never of another
repository.
"""

import subprocess

import pytest

from jaxtrade.runs.rundir import STAMP, UNKNOWN, commit


def git(folder, *words):
    who = ["-c", "commit.gpgsign=false", "-c", "user.name=x", "-c", "user.email=x@y"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a package that is committed."""
    top = tmp_path / "checkout"
    package = top / "jaxtrade"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "x")
    return top


def test_a_checkout_asks_git(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout / "jaxtrade") == head
    git(checkout, "tag", "-a", "v1", "-m", "x")  # a tag is no commit
    (checkout / "jaxtrade" / STAMP).write_text("0" * 40)  # of an earlier build
    assert commit(checkout / "jaxtrade") == head
    (checkout / "jaxtrade" / "__init__.py").write_text("changed")
    assert commit(checkout / "jaxtrade") == f"{head}-dirty"


def test_a_repository_that_a_hook_names_is_not_asked(checkout, tmp_path, monkeypatch):
    head = git(checkout, "rev-parse", "HEAD")
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert commit(checkout / "jaxtrade") == head


@pytest.mark.parametrize(
    ("said", "expected"),
    [("a" * 40 + "-dirty\n", "a" * 40 + "-dirty"), ("", UNKNOWN), (None, UNKNOWN)],
)
def test_an_installed_copy_says_what_its_build_wrote(checkout, said, expected):
    """It lies in somebody else's repository, whose commit is not its own."""
    installed = checkout / "lib" / "jaxtrade"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    if said is not None:
        (installed / STAMP).write_text(said)
    assert commit(installed) == expected
