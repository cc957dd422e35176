"""`jaxtrade bench`: what it refuses, what goes to stdout, where results go, and that one failure
stops no other.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bench import catalogue, command, idle
from jaxtrade import cli
from jaxtrade.cli import entry
from tests.bench.made_up import env_step, write
from tests.messages import refused, refuses
from tests.reading import read_json
from tests.structure import ROOT


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def reported(monkeypatch):
    """Benches `one` and `two`, which return what they were reported; `bad` fails. No others."""
    seen = []

    def run(options):
        seen.append(options)
        return {key: env_step()[key] for key in ("config", "sides", "ratios")}

    def fail(options):
        raise RuntimeError("planted")

    monkeypatch.setattr(
        idle, "load", lambda: 0.1
    )  # of the machine that runs the tests, nothing is asked
    monkeypatch.setattr(catalogue, "BENCHES", {"one": "a thing", "two": "another", "bad": "none"})
    for name, work in (("one", run), ("two", run), ("bad", fail)):
        module = ModuleType(f"bench.{name}")
        module.run = work  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"bench.{name}", module)
    return seen


@pytest.mark.parametrize(
    ("argv", "fragments"),
    [
        (["env_stpe"], ["'env_stpe'", "did you mean 'env_step'", *catalogue.BENCHES]),
        (["env_step", "--repeats", "4"], ["--repeats 4", "at least 5"]),
        (["env_step", "--quick", "--repeats", "0"], ["--repeats 0", "at least 1"]),
        (["env_step", "--purejaxrl", "nowhere"], ["--purejaxrl nowhere"]),
        (["env_step", "--compare", "nowhere.json"], ["nowhere.json", "cannot be read"]),
        (["env_step", "--compare", "."], ["--compare .", "no result of env_step"]),
    ],
)
def test_refused_before_anything_runs(argv, fragments, here, capsys):
    assert cli.main(["bench", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error:") == 1
    assert all(fragment in said.err for fragment in fragments)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("{", "not JSON"),
        ("[]", "no bench, quick, stamp"),
        ('{"bench": "env_step"}', "no quick, stamp"),
    ],
)
def test_what_is_no_result_is_refused(text, fragment, here, capsys):
    (here / "old.json").write_text(text)
    refuses(capsys, ["bench", "env_step", "--compare", "old.json"], fragment)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("device", {"parts": ["memry"]}, "--part memry: expected one of correctness"),
        ("env_step", {"parts": ["memory"]}, "of `jaxtrade bench device`"),
        ("env_step", {"again": True}, "of `jaxtrade bench device`"),
        ("accelerator", {"targets": ["b100"]}, "--target b100: expected one of h200"),
        ("env_step", {"targets": ["h200"]}, "of `jaxtrade bench accelerator`"),
        ("versions", {}, "give another checkout of jaxtrade"),
        ("versions", {"code": Path("nowhere")}, "give another checkout of jaxtrade"),
        ("env_step", {"code": ROOT}, "--code: of `jaxtrade bench versions`"),
    ],
)
def test_flags_of_single_benches(name, given, said):
    with refused(said):
        command.request(names=[name], **given)


def test_single_benches_are_not_among_all():
    assert not {"device", "accelerator", "versions"} & set(command.request(quick=True).names)
    assert command.request(names=["accelerator"], shapes=["gru"]).shapes == ("gru",)
    assert command.request(names=["versions"], code=ROOT).code == ROOT


def test_one_line_of_json_a_table_and_a_file(reported, here, capsys):
    assert cli.main(["bench", "one", "--repeats", "9"]) == 0
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    result = json.loads(line)
    assert result == read_json(here / "bench" / "results" / "one.json")
    assert result["stamp"]["command"] == "jaxtrade bench one --repeats 9"
    [options] = reported
    assert (options.quick, options.repeats, options.purejaxrl) == (False, 9, None)
    assert "SubprocVecEnv(8)" in said.err
    assert str(Path("bench/results/one.json")) in said.err


def stolen(monkeypatch, share):
    monkeypatch.setattr(idle.LEDGER, "worst", lambda: {"share": share, "side": "theirs"})


def test_a_busy_machine_is_refused_before_anything_runs(
    reported,
    here,
    capsys,
    monkeypatch,
):
    monkeypatch.setattr(idle, "load", lambda: 0.31)
    for names in (["one"], ["one", "two"]):
        assert cli.main(["bench", *names]) == 2
        said = capsys.readouterr()
        assert "load average 0.31 at the start" in said.err
        assert "--force" in said.err
        assert said.out == ""
    assert reported == []
    assert list(here.iterdir()) == []
    assert cli.main(["bench", "one", "--quick"]) == 0


def test_steal_time_during_a_side_keeps_a_result_from_the_disk(
    reported,
    here,
    capsys,
    monkeypatch,
):
    stolen(monkeypatch, 0.02)
    assert cli.main(["bench", "one"]) == 1
    said = capsys.readouterr()
    result = json.loads(said.out)  # no measurement is lost
    assert (result["forced"], result["reasons"]) == (False, ["steal time 2 % during theirs"])
    assert "not written" in said.err
    assert list(here.rglob("*.json")) == []
    stolen(monkeypatch, 0.01)
    assert cli.main(["bench", "one"]) == 0
    result = read_json(here / "bench" / "results" / "one.json")
    assert (result["forced"], result["reasons"]) == (False, [])
    assert (result["stamp"]["load_before"], result["stamp"]["steal"]) == (
        0.1,
        {"share": 0.01, "side": "theirs"},
    )


def test_force_writes_and_marks(
    reported,
    here,
    capsys,
    monkeypatch,
):
    stolen(monkeypatch, 0.02)
    monkeypatch.setattr(idle, "load", lambda: 2.0)
    assert cli.main(["bench", "one", "--force"]) == 0
    result = read_json(here / "bench" / "results" / "one.json")
    assert result["forced"]
    assert result["reasons"] == ["load average 2.00 at the start", "steal time 2 % during theirs"]
    assert "NOT IDLE: load average 2.00" in capsys.readouterr().err
    stolen(monkeypatch, 0.0)
    monkeypatch.setattr(idle, "load", lambda: 0.1)
    assert cli.main(["bench", "one", "--force"]) == 0
    assert not read_json(here / "bench" / "results" / "one.json")["forced"]  # there was no need


def test_between_benches_the_load_decays(reported, here, monkeypatch):
    done = []
    monkeypatch.setattr(command, "own_process", lambda words: done.append(words[1]) or 0)
    monkeypatch.setattr(idle, "settle", lambda: done.append("settle"))
    assert cli.main(["bench"]) == 0
    assert done == ["one", "settle", "two", "settle", "bad"]
    done.clear()
    assert cli.main(["bench", "--quick"]) == 0
    assert done == ["one", "two", "bad"]
    done.clear()
    monkeypatch.setattr(idle, "load", lambda: 2.0)  # a busy machine will not settle
    assert cli.main(["bench", "one", "two", "--force"]) == 0
    assert done == ["one", "two"]


def test_quick_results_have_a_folder_of_their_own(reported, here, capsys):
    assert cli.main(["bench", "one", "--quick", "--purejaxrl", "."]) == 0
    assert [path.relative_to(here).as_posix() for path in here.rglob("*.json")] == [
        "bench/results/quick/one.json"
    ]
    stamped = json.loads(capsys.readouterr().out)["stamp"]["command"]
    assert (
        stamped == "jaxtrade bench one --quick --purejaxrl DIR"
    )  # no folder of this machine in a result
    [options] = reported
    assert (options.repeats, options.purejaxrl) == (command.QUICK_REPEATS, Path("."))


def test_a_quick_run_replaces_no_full_result(reported, here, capsys):
    full = write(env_step() | {"bench": "one"}, here / "kept")
    refuses(capsys, ["bench", "one", "--quick", "--out", "kept"], "full result")
    assert not read_json(full)["quick"]
    assert reported == []


def test_compare_reads_the_file_before_it_is_replaced(reported, here, capsys):
    write(env_step(rate=1_000_000.0) | {"bench": "one"}, here / "bench" / "results")
    assert cli.main(["bench", "one", "--compare", "bench/results"]) == 0
    said = capsys.readouterr().err
    assert "new against old" in said
    assert "4.321" in said  # 4,321,000 over 1,000,000
    assert 'commit: "abc1234" ->' in said


def test_a_failing_bench_is_shown_and_writes_nothing(reported, here, capsys):
    assert cli.main(["bench", "bad"]) == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert "planted" in said.err
    assert list(here.rglob("*.json")) == []


def test_a_disk_that_refuses_loses_no_measurement(
    reported,
    here,
    capsys,
    monkeypatch,
):
    def full(result, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(catalogue, "write", full)
    assert cli.main(["bench", "one"]) == 74
    said = capsys.readouterr()
    assert json.loads(said.out)["bench"] == "one"
    assert "--out" in said.err


def test_several_run_in_a_process_each_and_the_worst_code_counts(
    reported,
    here,
    capsys,
    monkeypatch,
):
    ran = []

    def process(words):
        ran.append(words)
        return 70 if words[1] == "bad" else 0

    monkeypatch.setattr(command, "own_process", process)
    write(env_step() | {"bench": "two"}, here / "old")
    assert cli.main(["bench", "--quick", "--compare", "old"]) == 70
    assert [words[1] for words in ran] == ["one", "two", "bad"]  # the failure of one stops no other
    assert ["--compare" in words for words in ran] == [
        False,
        True,
        False,
    ]  # who has an earlier result
    assert "bad (70)" in capsys.readouterr().err
    ran.clear()
    monkeypatch.setattr(idle, "settle", lambda: None)
    assert cli.main(["bench", "two", "one", "two", "--out", "there", "--purejaxrl", "old"]) == 0
    assert ran == [
        ["bench", name, "--repeats", "7", "--out", "there", "--purejaxrl", "old"]
        for name in ("two", "one")
    ]
    parsed = cli.build_parser().parse_args(ran[0])
    assert (parsed.names, parsed.out, parsed.repeats) == (["two"], Path("there"), 7)


def killed(words):
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_process_of_its_own(capfd):
    assert command.own_process(["bench", "nothing"]) == 2  # the command's own exit code
    assert "no bench is called 'nothing'" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_a_killed_process_is_reported(capfd):
    assert command.own_process(["bench", "one"], killed) == 70
    assert (
        f"bench one: its process was ended by signal {int(signal.SIGTERM)}"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize("layout", ["installed", "checkout"])
def test_where_the_benches_are_found(layout, tmp_path, monkeypatch):
    package, beside = tmp_path / "site" / "jaxtrade", tmp_path / "site" / "bench"
    folder = package / "bench" if layout == "installed" else beside
    folder.mkdir(parents=True)
    (folder / "catalogue.py").touch()
    package.mkdir(exist_ok=True)
    if layout == "installed":  # a folder of that name beside an installed package is another's
        beside.mkdir()
        (beside / "catalogue.py").touch()
    asked = []
    monkeypatch.setattr(entry, "__file__", str(package / "cli" / "entry.py"))
    monkeypatch.setattr(entry, "importlib", SimpleNamespace(import_module=asked.append))
    monkeypatch.setattr(sys, "path", list(sys.path))
    entry.bench_module("command")
    assert asked == [{"installed": "jaxtrade.bench.command", "checkout": "bench.command"}[layout]]
    assert (str(tmp_path / "site") in sys.path) == (layout == "checkout")


def test_missing_benches_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(entry, "__file__", str(tmp_path / "jaxtrade" / "cli" / "entry.py"))
    with refused("benches are missing"):
        entry.bench_module("command")
