"""A run is read from anywhere: its files are found beside it, where they were, or where the user
says they are.
"""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jaxtrade.cli import build_parser
from jaxtrade.cli.shared import resolve
from jaxtrade.config import load_config, make_config
from jaxtrade.data import bundled
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs import files, rundir
from jaxtrade.runs.evaluate import Request, evaluate_run, open_run
from jaxtrade.runs.job import how_to_continue
from jaxtrade.runs.setup import prepare
from tests.children import run_python
from tests.messages import refused, refuses
from tests.reading import read_json

_ALL = (
    gzip.decompress((Path(bundled.__file__).parent / "es_1m_trade.csv.gz").read_bytes())
    .decode()
    .splitlines(True)
)
BARS = "".join(
    [_ALL[0], *(line for line in _ALL if line < "2013-10-12" and ",201312," in line)]
)  # a week
CONTRACT = """symbol: MYES
kind: future
currency: USD
tick_size: 0.25
tick_value: 12.5
commission: 2.0
slippage: 1
min_stop_ticks: 4
calendar: cme_equity
"""
FLAGS = ["--contract", "my.yaml", "--data", "data/bars.csv", "--set", "data.stamp=open"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with bars and a contract, which is also the current folder."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "bars.csv").write_text(BARS)
    (folder / "my.yaml").write_text(CONTRACT)
    for name in ("NPROC", "XLA_FLAGS"):  # reading a run sets them: give them back afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    return folder


def created(*flags):
    """A run that has trained nothing yet, in the folder runs/a."""
    path = Path("runs/a")
    config = resolve(build_parser().parse_args(["train", *FLAGS, *flags]))
    rundir.create_run(path, config, rundir.provenance(config, prepare(config).market.fingerprint))
    return path.resolve()


def entries(run):
    return read_json(run / "manifest.json")["files"]


def test_the_manifest_says_where_the_files_are_and_what_they_hold(project):
    found = entries(created())
    assert found.keys() == {"data.file", "data.contract"}
    bars = project / "data" / "bars.csv"
    assert found["data.file"] == {
        "given": "data/bars.csv",
        "absolute": str(bars),
        "relative": "../../data/bars.csv",
        "bytes": bars.stat().st_size,
        "sha256": subprocess.run(
            ["sha256sum", str(bars)], capture_output=True, text=True, check=True
        ).stdout.split()[0],
    }
    assert found["data.contract"]["relative"] == "../../my.yaml"


def test_a_shipped_contract_has_no_place(project):
    config = resolve(
        build_parser().parse_args(["train", "--contract", "SPY", "--data", "data/bars.csv"])
    )
    entry = files.record(config, project / "runs" / "a")["data.contract"]
    assert entry.keys() == {"given", "shipped", "bytes", "sha256"}
    assert entry["given"] == "SPY"


def test_it_is_read_from_another_folder(project, tmp_path, monkeypatch):
    run = created()
    assert rundir.read_run(run)[0].data.file == "data/bars.csv"  # still right: as it was typed
    before = open_run(run)[0].market.fingerprint
    monkeypatch.chdir(tmp_path)
    config, _ = rundir.read_run(run)
    assert (config.data.file, config.data.contract) == (
        str(project / "data" / "bars.csv"),
        str(project / "my.yaml"),
    )
    assert open_run(run)[0].market.fingerprint == before


def test_it_is_moved_together_with_its_files(project, tmp_path, monkeypatch):
    created()
    moved = tmp_path / "elsewhere"
    project.rename(moved)
    monkeypatch.chdir(tmp_path)
    setup, _ = open_run(moved / "runs" / "a")
    assert setup.config.data.file == str(moved / "data" / "bars.csv")


def test_it_is_moved_alone(project, tmp_path, monkeypatch):
    run = created().rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert open_run(run)[0].config.data.file == str(project / "data" / "bars.csv")


def test_another_file_beside_it_is_not_taken_for_its_own(project, tmp_path):
    """Of two files the one with the recorded content counts, although the other is beside the
    copied run.
    """
    run = created()
    copied = tmp_path / "copy" / "runs" / "a"
    shutil.copytree(run, copied)
    beside = tmp_path / "copy" / "data" / "bars.csv"
    beside.parent.mkdir()
    beside.write_text("other bars")
    assert (
        Path(rundir.read_run(copied)[0].data.file or "").resolve() == project / "data" / "bars.csv"
    )
    beside.write_bytes((project / "data" / "bars.csv").read_bytes())
    assert rundir.read_run(copied)[0].data.file == str(beside)


def test_files_that_are_nowhere_are_named_with_all_places(project, tmp_path):
    run = created()
    (project / "data" / "bars.csv").rename(tmp_path / "bars.csv")
    with refused(
        f"{run}:",
        "data.file = data/",
        f"{project}/data/bars.csv or ",
        "--data FILE",
        kind=DataError,
    ):
        open_run(run)
    assert open_run(run, data=tmp_path / "bars.csv")[0].config.data.file == str(
        tmp_path / "bars.csv"
    )
    (project / "my.yaml").unlink()
    with refused("data.contract = my.yaml", kind=DataError):
        open_run(run, data=tmp_path / "bars.csv")


@pytest.mark.slow
def test_the_same_bars_in_another_file_are_the_same_bars(project, tmp_path):
    run = created()
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(BARS.encode()))
    assert open_run(run, data=packed)[0].market.fingerprint == open_run(run)[0].market.fingerprint
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("".join(BARS.splitlines(keepends=True)[:-3000]))
    with refused("--data ", "fewer.csv: ", "other", kind=DataError):
        open_run(run, data=fewer)
    with refused("--data none.csv: ", kind=DataError):
        open_run(run, data=Path("none.csv"))


def test_changed_bars_are_named(project):
    run = created()
    (project / "data" / "bars.csv").write_text("".join(BARS.splitlines(keepends=True)[:-3000]))
    with refused("bars.csv has changed", "data.file", kind=DataError):
        open_run(run)


def test_a_changed_contract_is_named_and_a_changed_comment_is_none(project):
    run = created()
    (project / "my.yaml").write_text(CONTRACT + "# mine\n")
    open_run(run)
    (project / "my.yaml").write_text(CONTRACT.replace("slippage: 1", "slippage: 2"))
    with pytest.raises(DataError, match=r"my\.yaml has changed") as raised:
        open_run(run)
    assert "sha256 " in str(raised.value)
    assert "data.file" not in str(raised.value)


def test_without_changed_files_the_version_is_to_blame(project):
    run = created()
    manifest = read_json(run / "manifest.json")
    rundir.write_json(run / "manifest.json", manifest | {"data_sha256": "0" * 64})
    with refused("none of its files", kind=DataError):
        open_run(run)
    rundir.write_json(
        run / "manifest.json",
        {key: value for key, value in manifest.items() if key != "files"}
        | {"data_sha256": "0" * 64},
    )
    with refused("contract file have changed", kind=DataError):
        open_run(run)


def test_runs_of_earlier_versions_are_read_as_they_were(project):
    run = created()
    manifest = read_json(run / "manifest.json")
    del manifest["files"]
    rundir.write_json(run / "manifest.json", manifest)
    assert open_run(run)[0].config.data.file == "data/bars.csv"


def test_bundled_bars_take_no_file(project):
    config = make_config({}, "here")
    rundir.create_run(
        Path("runs/b"), config, rundir.provenance(config, prepare(config).market.fingerprint)
    )
    with refused("bundled bars", "--data"):
        open_run(Path("runs/b"), data=project / "data" / "bars.csv")


def test_files_of_an_advisor_are_found_and_checked(project, tmp_path, monkeypatch):
    names = {
        "advisor.template": "own.md",
        "advisor.context.news": "news.jsonl",
        "advisor.context.calendar": "events.csv",
        "advisor.kind": "table.npz",
    }
    for name in names.values():
        (project / name).write_text("one")
    given = [f"{key}={name}" for key, name in names.items()]
    config = load_config(None, [*given, "advisor.kind=table:table.npz"])
    manifest = {"files": files.record(config, project / "runs" / "a")}
    assert manifest["files"].keys() == names.keys()
    moved = tmp_path / "moved"
    project.rename(moved)
    monkeypatch.chdir(tmp_path)
    located = files.locate(config, manifest, moved / "runs" / "a")
    assert files.list_files(located) == {key: str(moved / name) for key, name in names.items()}
    files.require(located, manifest, moved / "runs" / "a")
    for key, name in names.items():
        (moved / name).write_text("two")
        with pytest.raises(ConfigError, match=rf"\({key}\) has changed"):
            files.require(located, manifest, moved / "runs" / "a")
        files.require(located, manifest, moved / "runs" / "a", advisor=False)
        (moved / name).write_text("one")


@pytest.mark.slow
def test_a_module_of_the_user_s_own_is_found(project, tmp_path):
    """In a process of its own: this one has imported the module already. A module that has changed
    needs trust.
    """
    (project / "my_own_parts.py").write_text("")
    read = (
        "import sys; from pathlib import Path; from jaxtrade.runs.rundir import read_run\n"
        "print(read_run(Path(sys.argv[1]))[0].imports)"
    )
    make = (
        "from pathlib import Path; from jaxtrade.config import load_config; from jaxtrade.runs import rundir\n"
        "config = load_config('quickstart', ['imports=[my_own_parts]'])\n"
        "facts = {'config_sha256': config.digest(), 'data_sha256': '', 'nproc': ''}\n"
        "rundir.create_run(Path('runs/a'), config, facts)"
    )

    def python(code, *words, cwd):
        return run_python("-P", "-c", code, *words, cwd=cwd)

    assert python(make, cwd=project).returncode == 0
    found = python(read, str(project / "runs" / "a"), cwd=tmp_path)
    assert found.stdout == "('my_own_parts',)\n", found.stderr
    (project / "my_own_parts.py").write_text("raise RuntimeError('planted')")
    assert "--trust-imports" in python(read, str(project / "runs" / "a"), cwd=tmp_path).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "another advisor"),
        (("--advisor", "rules"), "trained without an advisor"),
    ],
)
def test_evaluate_never_drops_a_setting_in_silence(project, given, said, capsys):
    run = created()
    words = ["evaluate", str(run), *given, "--set"]
    refuses(capsys, [*words, "advisor.options.model=m"], said, "--advisor")
    refuses(capsys, [*words, "costs.commission=5"], "--set costs.commission=5:", "trained with")


@pytest.mark.slow
def test_evaluate_takes_only_what_changes_something(project):
    run = created("--advisor", "mock:skilled:0.6")
    for override, said in (
        ("advisor.fusion=slots", "advisor.options.*, advisor.service.*, "),
        ("advisor.horizon=30", "changes nothing"),
        ("advisor.memory=10", "advisor.options.*"),
    ):
        with refused(said):
            evaluate_run(Request(run, advisor="mock:skilled:0.9", overrides=[override]))


def test_how_to_continue_needs_a_checkpoint(tmp_path):
    went_on = f"continue with: jaxtrade train --resume {tmp_path}"
    assert re.fullmatch(f".*saved nothing.*; {re.escape(went_on)}", how_to_continue(tmp_path))
    (tmp_path / "checkpoints" / "update-00000002").mkdir(parents=True)
    assert how_to_continue(tmp_path) == went_on
    spaced = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name} of mine"))
    assert how_to_continue(spaced).split("--resume ")[1] == f"'{spaced}'"


def test_a_run_given_as_a_configuration_is_named_as_one(tmp_path):
    run = tmp_path / "my run"
    run.mkdir()
    for name in ("config.yaml", "manifest.json"):
        (run / name).write_text("{}")
    with refused(
        f"{run}: a folder", f"jaxtrade evaluate '{run}'", f"jaxtrade train --resume '{run}'"
    ):
        load_config(run)
