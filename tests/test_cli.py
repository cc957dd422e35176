"""The command line: what it refuses, how it says so, and that a refusal writes nothing."""

import errno
import json
import subprocess
import sys

import pytest

from jaxtrade.cli import entry, main
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.storage.sinks import read_rows
from tests import uncounted, vendors
from tests.messages import missing, refuses
from tests.reading import read_json

ROWS = [  # minutes of ES with an expiry column
    "2013-10-07T13:30:00Z,201312,1676.75,1677.25,1676.50,1677.00,100",
    "2013-10-07T13:31:00Z,201312,1677.00,1677.50,1676.75,1677.25,120",
    "2013-10-07T13:32:00Z,201312,1677.25,1677.50,1677.00,1677.00,90",
]
HEADER = "time,expiry,open,high,low,close,volume"
STATED = ("--set", "data.stamp=open")


def write_csv(path, rows):
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


XlaRuntimeError = type("XlaRuntimeError", (RuntimeError,), {})  # it is known by its name


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A working directory in which anything written would be seen."""
    here = tmp_path / "cwd"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize(
    ("rows", "stated", "fragment"),
    [
        ([ROWS[1], ROWS[0], ROWS[2]], STATED, "bars.csv:3"),
        (ROWS, STATED, "too few bars"),
        (ROWS, (), "data.stamp"),
    ],
)
def test_wrong_file_is_refused(rows, stated, fragment, empty, tmp_path, capsys):
    path = write_csv(tmp_path / "bars.csv", rows)
    refuses(capsys, ["train", "--data", str(path), "--market", "ES", *stated], "error:", fragment)
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["train", "--market", "XYZ"], "XYZ"),
        (["train", "--set", "data.market=EX"], "unknown market"),
        (
            ["train", "--contract", "SPY"],
            "SPY (bundled: ES, EURUSD, ",
        ),
        (["data", "describe", "--contract", "SPY"], "bundled for SPY"),
        (["train", "--resume", "none", "--contract", "SPY"], "drop --contract"),
        (["train", "--set", "env.features=[closed]"], "did you mean 'close'"),
        (["train", "--import", "../mine"], "'../mine' names no module"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["train", "--set", "data.source=file"], "--data"),
        (["train", "--market", "ES", "--set", "data.calendar=nofile.csv"], "nofile.csv"),
        (["evaluate", "nowhere"], "nowhere"),
        (["replay", "nowhere", "--session", "2013-10-11"], "nowhere"),
        (["data", "check", "absent.csv", "--contract", "SPY"], "absent.csv: no such"),
        (["train", "--run-dir", ""], "3 is empty (--run-dir)"),
        (["train", "--run-dir="], "2 is empty (--run-dir=)"),
        (["train", ""], "argument 2 is empty (train)"),
        (["evaluate", " "], "argument 2 is empty"),
        (["data", "check", "bars.csv", "--contract", ""], "argument 5 is empty (--contract)"),
    ],
)
def test_wrong_arguments(argv, fragment, empty, capsys):
    refuses(capsys, argv, "error:", fragment)
    assert list(empty.iterdir()) == []


EVERY = (
    "cfg",
    "--set",
    "a=1",
    "--market",
    "ES",
    "--contract",
    "c",
    "--data",
    "d",
    "--seconds",
    "s",
    "--quotes",
    "q",
    "--test",
    "--run-dir",
    "r",
    "--from",
    "f",
    "--advisor",
    "rules",
)
DROPPED = ["CONFIG", *(word for word in EVERY if word.startswith("--"))]


@pytest.mark.parametrize(
    ("argv", "dropped"),
    [
        (
            ["train", *EVERY, "--continue", "c", "--resume", "x"],
            [*(word for word in DROPPED if word != "--data"), "--continue"],
        ),
        (
            ["curriculum", *EVERY, "--phase", "p", "--resume", "x"],
            [*DROPPED, "--phase"],
        ),
        (
            ["train", *EVERY, "--continue", "x"],
            ["CONFIG", "--from", "--market", "--contract", "--test"],
        ),
    ],
)
def test_every_flag_that_clashes_is_named(argv, dropped, empty, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err.partition("; drop ")[2]
    assert said.partition(" (")[0].strip().split(", ") == dropped


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its shell cannot close them")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed_is_no_fault(closed, empty):
    command = f"'{sys.executable}' -m jaxtrade list {closed}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("planted"), 70, ("planted", "bug in jaxtrade")),
        (KeyError("theirs"), 70, ("theirs", "your module mine.network")),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 74, ("runs/x",)),
        (MemoryError("3 TiB"), 71, ("error: memory ran out (3 TiB)",)),
        (XlaRuntimeError("RESOURCE_EXHAUSTED"), 71, ("memory ran out (RESOURCE_EXHAUSTED)",)),
    ],
)
def test_a_fault_has_its_exit_code_and_a_bug_is_called_one(error, code, said, monkeypatch, capsys):
    module = {
        "__name__": "mine.network" if isinstance(error, KeyError) else "jaxtrade.x",
        "error": error,
    }
    exec("def broken(args): raise error", module)
    monkeypatch.setitem(entry.COMMANDS, "data", module["broken"])
    assert main(["data", "describe"]) == code
    shown = capsys.readouterr().err
    assert not missing(shown, *said)
    assert ("Traceback" in shown) == (code == 70)


def test_data_check_reports_a_good_file(tmp_path, capsys):
    path = write_csv(tmp_path / "bars.csv", ROWS)
    assert main(["data", "check", str(path), *STATED]) == 0
    assert "no fault" in capsys.readouterr().out


def test_data_takes_a_file_or_the_configuration_that_reads_it(tmp_path, capsys):
    """Both are the same bars. `init` writes such a configuration, and names the bars from there."""
    path = tmp_path / "bars.csv"
    path.write_bytes(vendors.databento(load_bundled(get_contract("ES"), end="2013-10-08")))
    (tmp_path / "mine.yaml").write_text("data: {source: file, file: bars.csv, market: ES}\n")
    for action in ("check", "describe"):
        said = []
        for given in (path, tmp_path / "mine.yaml"):
            assert main(["data", action, str(given)]) == 0
            said.append(capsys.readouterr().out.splitlines()[:3])  # without what the keys decide
        assert said[0] == said[1]
        assert str(path) in said[0][0]


TINY = (
    "--set",
    "rollout.num_envs=8",
    "--set",
    "rollout.num_steps=16",
    "--set",
    "ppo.num_minibatches=2",
    "--set",
    "network.hidden=[8]",
    "--set",
    "train.total_timesteps=512",
    "--set",
    "train.chunk_updates=2",
    "--set",
    "train.checkpoint_every=1",
    "--set",
    "train.tensorboard=false",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "es"
    assert main(["train", "--run-dir", str(path), *TINY, "--set", "brackets.stop_atr=1.5"]) == 0
    return path


@pytest.mark.slow
def test_train_leaves_a_whole_run(run):
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert {
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "run.log",
        "summary.json",
        "policy/policy.npz",
        "evaluation/test/trades.csv",
        "evaluation/test/equity.csv",
        "evaluation/test/equity.png",
        "evaluation/test/day.png",
        "training.png",
        "evaluation/test/evaluation.json",
    } <= names
    rows = read_rows(run / "metrics.jsonl")
    assert [(row["update"], row["illegal"]) for row in rows] == [(n, 0) for n in (1, 2, 3, 4)]
    result = read_json(run / "evaluation/test/evaluation.json")
    assert result["settings"]["coverage"] == 1.0
    assert result["settings"]["first_session"] == "2013-10-11"
    # The median stop is 8 ticks of 12.50; a round turn costs 2 x 2.08 of commission and 2 ticks of
    # slippage.
    assert f"WARNING: a round turn costs {29.16:.0f} % of" in (run / "run.log").read_text()


@pytest.mark.slow
def test_evaluate_again_prints_the_same_json(run, capsys):
    before = read_json(run / "evaluation/test/evaluation.json")
    assert main(["evaluate", str(run), "--json"]) == 0
    said = capsys.readouterr()
    assert uncounted.document(json.loads(said.out)) == uncounted.document(before)
    assert json.loads(said.out)["trials"]["opened"] == before["trials"]["opened"] + 1
    # What the command does is on stderr, where each phase is named first. A note says what this JAX
    # lacks, if anything.
    lines = [
        line
        for line in said.err.splitlines()
        if not line.startswith("note: steps on a CPU are slower")
    ]
    assert lines[:2] == ["loading: JAX", "evaluating: 6 agents, 1 session (test)"]
    assert lines[-5:-3] == [
        f"run       {run}",
        "files     evaluation/test/evaluation.txt, training.png, evaluation/test/day.png, "
        "evaluation/test/equity.png",
    ]
    assert lines[-3].startswith(f"next      jaxtrade report {run} --open")
    assert lines[-2].startswith(f"          jaxtrade replay {run} --session 2013-10-11")
    assert lines[-1].startswith(f"          jaxtrade evaluate {run} --cost-grid")
    assert "\x1b" not in said.err


def test_path_without_seconds_is_refused_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refuses(capsys, ["train", "--set", "env.intrabar=path"], "--seconds FILE")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_replay_prints_every_decision_bar(run, capsys):
    assert main(["replay", str(run), "--session", "2013-10-11"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 4 + 433
    )  # four header lines, 09:30 to the bar before the flat bar less the 16:15 halt
    assert lines[4].split()[0] == "09:31:00"
    assert lines[-1].split()[0] > "16:50:00"
    refuses(capsys, ["replay", str(run), "--session", "2013-10-12"], "2013-10-11")


@pytest.mark.slow
def test_run_directory_is_never_overwritten(run, capsys):
    refuses(capsys, ["train", "--run-dir", str(run), *TINY], "--resume")
