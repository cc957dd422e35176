"""The commit of a result is that of the benches' own checkout; new results do not make it a changed
one.
"""

from bench.harness import commit
from tests.test_commit import git


def test_commit(tmp_path):
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    source, result = tmp_path / "bench" / "source.py", results / "env_step.json"
    assert commit(tmp_path / "bench") == "unknown"
    for path in (source, result):
        path.write_text("old")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert commit(tmp_path) == commit(tmp_path / "bench") == head
    result.write_text("new")
    assert commit(tmp_path / "bench") == head
    source.write_text("new")
    assert commit(tmp_path / "bench") == f"{head}+"
    installed = tmp_path / ".venv" / "site-packages" / "jaxtrade" / "bench"
    installed.mkdir(parents=True)
    assert commit(installed) == "unknown"
