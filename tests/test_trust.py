"""Modules of a run's folder are code: none is imported before somebody trusts it, and none of an
edited run at all.
"""

import importlib
import os
import sys
from pathlib import Path

import pytest

from jaxtrade.config import load_config
from jaxtrade.runs import files, rundir
from tests.children import run_python
from tests.messages import refused
from tests.reading import read_json

MODULE = "open('ran', 'a').write('x')\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run that somebody else made, with its module beside it."""
    project = tmp_path / "theirs"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "strange_parts.py").write_text(MODULE)
    config = load_config("quickstart").model_copy(update={"imports": ("strange_parts",)})
    facts = {"config_sha256": config.digest(), "data_sha256": "", "nproc": ""}
    rundir.create_run(Path("runs/a"), config, facts)
    manifest = read_json(Path("runs/a/manifest.json"))
    assert "imports.strange_parts" not in manifest["files"]  # it was not imported here
    return project / "runs" / "a"


def read(run, *words, state=None):
    """`jaxtrade report RUN` in a process of its own. It ends with 2 in any case: there is nothing
    to report.
    """
    env = dict(os.environ) | ({} if state is None else {"XDG_STATE_HOME": state})
    return run_python("-m", "jaxtrade", "report", str(run), *words, cwd=run.parents[1], env=env)


def ran(run):
    return (run.parents[1] / "ran").exists()


@pytest.mark.slow
def test_a_strange_module_is_not_imported(run):
    found = read(run)
    assert found.returncode == 2
    assert "'strange_parts'" in found.stderr
    assert "--trust-imports" in found.stderr
    assert not ran(run)
    assert "--trust-imports" not in read(run, "--trust-imports").stderr
    assert ran(run)


@pytest.mark.slow
def test_an_edited_configuration_comes_before_any_import(run):
    with (run / "config.yaml").open("a") as file:
        file.write("# edited\n")
    text = (run / "config.yaml").read_text().replace("seed: 0", "seed: 1")
    (run / "config.yaml").write_text(text)
    found = read(run, "--trust-imports")
    assert found.returncode == 2
    assert "config.yaml: sha256" in found.stderr
    assert not ran(run)


@pytest.mark.slow
def test_the_maker_of_a_run_is_not_asked_until_the_file_changes(run, tmp_path):
    """The list in the state folder holds path and digest."""
    state = str(tmp_path / "state")
    make = (
        "from pathlib import Path; from jaxtrade.config import load_config; from jaxtrade.runs import rundir\n"
        "config = load_config('quickstart', ['imports=[strange_parts]'])\n"
        "facts = {'config_sha256': config.digest(), 'data_sha256': '', 'nproc': ''}\n"
        "rundir.create_run(Path('runs/b'), config, facts)\n"
    )
    done = run_python("-c", make, cwd=run.parents[1], env={**os.environ, "XDG_STATE_HOME": state})
    assert done.returncode == 0, done.stderr
    assert "--trust-imports" not in read(run, state=state).stderr
    module = run.parents[1] / "strange_parts.py"
    module.write_text(MODULE + "# changed\n")
    assert "--trust-imports" in read(run, state=state).stderr
    module.write_text(MODULE)
    (tmp_path / "state" / "jaxtrade" / "imports.json").write_text("{damaged")
    assert "--trust-imports" in read(run, state=state).stderr


@pytest.mark.parametrize(
    "first", ["__init__.py", "other.py"]
)  # other.py: a package without __init__.py
def test_a_package_is_all_of_its_files(tmp_path, monkeypatch, first):
    whole = f"parts_with_{first.strip('_').removesuffix('.py').strip('_')}"
    package = tmp_path / whole
    package.mkdir()
    for name in (first, "inner.py"):
        (package / name).write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(tmp_path)
    name = f"{whole}.inner"
    importlib.import_module(name)
    assert files.remember([name]) is None
    for each in (name, whole):
        del sys.modules[each]
    files.require_trusted([name], tmp_path)
    (package / "inner.py").write_text("pass")
    with refused(whole):
        files.require_trusted([name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "files"),
    [
        (
            ("train", "--resume"),
            {"config.yaml": "imports: [strange_parts]\n", "sweep.json": '{"groups": []}'},
        ),
        (
            ("curriculum", "--resume"),
            {
                "curriculum.yaml": "enforce_gates: false\nbase: {}\nphases: {a: {run: {imports: "
                "[strange_parts]}, gate: {}}}\n",
                "begin.json": "{}",
            },
        ),
    ],
)
def test_folders_of_sweeps_and_curricula_are_not_believed_either(tmp_path, words, files):
    (tmp_path / "strange_parts.py").write_text(MODULE)
    (tmp_path / "folder").mkdir()
    for name, text in files.items():
        (tmp_path / "folder" / name).write_text(text)
    found = run_python("-m", "jaxtrade", *words, "folder", cwd=tmp_path)
    assert found.returncode == 2
    assert "'strange_parts'" in found.stderr
    assert not (tmp_path / "ran").exists()


def test_a_manifest_adds_no_folder_to_those_that_are_searched(run, tmp_path):
    """Neither for a module that the configuration does not import, nor for one that nobody
    trusted.
    """
    other = tmp_path / "other"
    other.mkdir()
    module = other / "strange_parts.py"
    module.write_text(MODULE)
    entry = {"given": "strange_parts", "absolute": str(module), **files._content(module)}
    (run.parents[1] / "strange_parts.py").unlink()
    before = list(sys.path)
    files.find_imports({"files": {"imports.strange_parts": entry}}, run, ["another"])
    with refused("strange_parts"):
        files.find_imports({"files": {"imports.strange_parts": entry}}, run, ["strange_parts"])
    assert sys.path == before
    assert not ran(run)


def test_a_list_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = files.remember([__name__])
    assert said is not None
    assert "--trust-imports" in said
    assert files.remember(["module_that_is_not_imported"]) is None
