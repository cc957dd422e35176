"""The command line: what it refuses, how it says so, and that a refusal writes nothing."""

from __future__ import annotations

import errno
import gzip
import json
import subprocess
import sys

import pytest

from jaxtrade.cli import entry, main
from tests import uncounted

ROWS = [  # minutes of ES with an expiry column
    ("2013-10-07T13:30:00Z", "201312", 1676.75, 1677.25, 1676.50, 1677.00, 100),
    ("2013-10-07T13:31:00Z", "201312", 1677.00, 1677.50, 1676.75, 1677.25, 120),
    ("2013-10-07T13:32:00Z", "201312", 1677.25, 1677.50, 1677.00, 1677.00, 90),
]
HEADER = "time,expiry,open,high,low,close,volume"
STATED = ("--set", "data.stamp=open")


def write_csv(path, rows, header=HEADER):
    path.write_text(
        "\n".join([header, *(",".join(str(cell) for cell in row) for row in rows)]) + "\n"
    )
    return path


def changed(index, column, value):
    rows = [list(row) for row in ROWS]
    rows[index][column] = value
    return [tuple(row) for row in rows]


WRONG_FILES = {
    "missing column": (
        write_csv,
        [row[:-2] + row[-1:] for row in ROWS],
        HEADER.replace(",close", ""),
        (),
        "close",
    ),
    "unsorted": (write_csv, [ROWS[1], ROWS[0], ROWS[2]], HEADER, (), "bars.csv:3"),
    "duplicate stamp": (write_csv, [ROWS[0], ROWS[0], ROWS[2]], HEADER, (), "bars.csv:3"),
    "no zone": (
        write_csv,
        [(row[0].rstrip("Z"), *row[1:]) for row in ROWS],
        HEADER,
        (),
        "data.time_zone",
    ),
    "some without zone": (
        write_csv,
        changed(0, 0, "2013-10-07T13:30:00"),
        HEADER,
        (),
        "bars.csv:3",
    ),
    "high below low": (write_csv, changed(1, 3, 1676.00), HEADER, (), "bars.csv:3"),
    "not a number": (write_csv, changed(2, 5, ""), HEADER, (), "bars.csv:4"),
    "spread": (
        write_csv,
        [(*row, symbol) for row, symbol in zip(ROWS, ("ESZ3", "ESZ3-ESH4", "ESZ3"), strict=True)],
        HEADER + ",symbol",
        (),
        "ESZ3-ESH4",
    ),
    "two contracts": (write_csv, changed(2, 1, "201403"), HEADER, (), "data.expiry"),
    "outside the calendar": (
        write_csv,
        [(row[0].replace("2013", "1999"), *row[1:]) for row in ROWS],
        HEADER,
        (),
        "data.calendar",
    ),
    "too few bars": (write_csv, ROWS, HEADER, (), "too few bars"),
    "another market": (write_csv, ROWS, HEADER, ("--market", "NQ"), "NQ"),
    "off the tick": (write_csv, changed(1, 4, 1676.60), HEADER, (), "1676.6"),
}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A working directory in which anything written would be seen."""
    here = tmp_path / "cwd"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("case", WRONG_FILES)
def test_wrong_file_is_refused_with_one_message(case, empty, tmp_path, capsys):
    make, rows, header, extra, fragment = WRONG_FILES[case]
    path = make(tmp_path / "bars.csv", rows, header)
    market = () if "--market" in extra else ("--market", "ES")
    code = main(["train", "--data", str(path), *market, *extra, *STATED])
    said = capsys.readouterr()
    assert code == 2
    assert fragment in said.err
    assert "bars.csv" in said.err
    assert said.err.count("error:") == 1
    assert "Traceback" not in said.err + said.out
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["train", "--data", "absent.csv", *STATED], "absent.csv"),
        (["train", "--market", "XYZ"], "XYZ"),
        (["train", "--set", "data.market=EX"], "unknown market"),
        (["train", "--contract", "none.yaml"], "contract 'none.yaml': "),
        (["train", "--contract", "SPY", "--market", "ES"], "give one"),
        (
            ["train", "--contract", "SPY"],
            "SPY (bundled: ES, EURUSD, ",
        ),
        (["data", "describe", "--contract", "SPY"], "bundled for SPY"),
        (["train", "--resume", "none", "--contract", "SPY"], "drop --contract"),
        (["train", "--set", "rollout.num_env=8"], "'rollout.num_envs'?"),
        (["train", "--set", "split.test_sessions=99"], "split.test_sessions"),
        (["train", "--set", "account.preset=apex"], "account.preset"),
        (
            ["train", "--set", "control.evaluate_every=5"],
            "split.validation_sessions is ",
        ),
        (["train", "--set", "control.patience=5"], "set control.evaluate_every"),
        (["train", "--set", "env.features=[closed]"], "did you mean 'close'"),
        (["train", "nowhere.yaml"], "nowhere.yaml"),
        (["train", "--set", f"seed={'9' * 5_000}"], "--set seed=999"),
        (["train", "--import", "../mine"], "'../mine' names no module"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["train", "--resume", "nowhere", "--test"], "--test"),
        (["train", "--set", "data.source=file"], "--data"),
        (["train", "--market", "ES", "--set", "data.calendar=nofile.csv"], "nofile.csv"),
        (["evaluate", "nowhere"], "nowhere"),
        (["replay", "nowhere", "--session", "2013-10-11"], "nowhere"),
        (["data", "check", "absent.csv"], "absent.csv"),
        (["data", "check", "absent.csv", "--contract", "SPY"], "absent.csv: no such"),
    ],
)
def test_wrong_arguments(argv, fragment, empty, capsys):
    assert main(argv) == 2
    said = capsys.readouterr()
    assert fragment in said.err
    assert said.err.count("error:") == 1
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


def test_stamp_side_is_never_guessed(empty, tmp_path, capsys):
    path = write_csv(tmp_path / "bars.csv", ROWS)
    assert main(["train", "--market", "ES", "--data", str(path)]) == 2
    assert "data.stamp" in capsys.readouterr().err


def test_cut_gzip_is_refused(empty, tmp_path, capsys):
    whole = gzip.compress(write_csv(tmp_path / "bars.csv", ROWS).read_bytes())
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    assert main(["data", "check", str(cut), *STATED]) == 2
    assert "cut.csv.gz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["train", "--run-dir", ""], "3 is empty (--run-dir)"),
        (["train", "--run-dir="], "2 is empty (--run-dir=)"),
        (["train", ""], "argument 2 is empty (train)"),
        (["evaluate", " "], "argument 2 is empty"),
        (["data", "check", "bars.csv", "--contract", ""], "argument 5 is empty (--contract)"),
    ],
)
def test_an_empty_argument_is_no_default(argv, fragment, empty, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert fragment in capsys.readouterr().err
    assert list(empty.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its shell cannot close them")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed_is_no_fault(closed, empty):
    command = f"'{sys.executable}' -m jaxtrade list {closed}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_command_is_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["trian"])
    assert stop.value.code == 2
    assert "train" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["train", "--help"],
        ["--version"],
        ["train", "--set", "ppo.lr=1"],
        ["train", "--contract", "SPY"],
        ["bench", "--help"],
        ["bench", "nothing"],
        ["bench", "env_step", "--compare", "nowhere"],
    ],
)
def test_answers_without_loading_jax(argv):
    """What keeps help and configuration errors under half a second: none of the heavy packages is
    imported.
    """
    script = (
        "import sys; from jaxtrade.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'jax', 'pandas', 'numpy', 'flax', 'matplotlib', 'jinja2', 'gymnax', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_fault_of_ours_is_shown_and_is_not_exit_1(monkeypatch, capsys):
    def broken(args):
        raise RuntimeError("planted")

    monkeypatch.setitem(entry.COMMANDS, "data", broken)
    assert main(["data", "describe"]) == 70
    said = capsys.readouterr().err
    assert "planted" in said
    assert "bug in jaxtrade" in said


def test_a_full_disk_is_exit_74(monkeypatch, capsys):
    def full(args):
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x")

    monkeypatch.setitem(entry.COMMANDS, "data", full)
    assert main(["data", "describe"]) == 74
    assert "runs/x" in capsys.readouterr().err


def test_data_check_reports_a_good_file(tmp_path, capsys):
    path = write_csv(tmp_path / "bars.csv", ROWS)
    assert main(["data", "check", str(path), *STATED]) == 0
    assert "no fault" in capsys.readouterr().out


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
    assert main(["train", "--run-dir", str(path), *TINY]) == 0
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
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [1, 2, 3, 4]
    assert all(row["learning_rate"] > 0 and row["illegal"] == 0 for row in rows)
    result = json.loads((run / "evaluation/test/evaluation.json").read_text())
    assert result["settings"]["coverage"] == 1.0
    assert result["settings"]["first_session"] == "2013-10-11"


@pytest.mark.slow
def test_train_warns_that_costs_eat_the_stop(tmp_path, capsys):
    # the median stop is 8 ticks of 12.50; a round turn costs 2 x 2.08 of commission and 2 ticks of
    # slippage
    said = f"WARNING: a round turn costs {100 * 29.16 / 100:.0f} % of the median stop"
    path = tmp_path / "es"
    assert main(["train", "--run-dir", str(path), *TINY, "--set", "brackets.stop_atr=1.5"]) == 0
    assert capsys.readouterr().err.count(said) == 1
    assert said in (path / "run.log").read_text()


@pytest.mark.slow
def test_evaluate_again_prints_the_same_json(run, capsys):
    before = json.loads((run / "evaluation/test/evaluation.json").read_text())
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
    assert lines[-6:-2] == [
        f"run       {run}",
        f"pictures  {run / 'training.png'}",
        f"          {run / 'evaluation/test/day.png'}",
        f"          {run / 'evaluation/test/equity.png'}",
    ]
    assert lines[-2].startswith(f"next      jaxtrade evaluate {run} --cost-grid")
    assert lines[-1].startswith(f"          jaxtrade replay {run} --session 2013-10-11")
    assert "\x1b" not in said.err


def added(run, before):
    """Names of the files that are new in the folder of the evaluation. No other file of the run may
    have changed.
    """
    now = {
        path: path.stat().st_mtime_ns
        for path in run.rglob("*")
        if path.is_file() and path.name != "run.lock"
    }
    assert all(now[path] == stamp for path, stamp in before.items() if path in now)
    new = now.keys() - before.keys()
    assert all(path.parent == run / "evaluation/test" for path in new)
    return {path.name for path in new}


@pytest.mark.parametrize("command", [["train"], ["data", "describe"]])
def test_path_without_seconds_is_refused_and_writes_nothing(
    command,
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--set", "env.intrabar=path"]) == 2
    assert "--seconds FILE" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_seconds_are_read_beside_the_bars_and_must_rebuild_them(tmp_path, capsys):
    minutes = write_csv(tmp_path / "bars.csv", ROWS)
    seconds = [
        (f"{row[0][:-3]}{second:02d}Z", "201312", price, price, price, price, 1)
        for row in ROWS
        for second, price in zip((0, 1, 2, 3), row[2:6], strict=True)
    ]
    seconds[1] = (*seconds[1][:2], *[1678.00] * 4, 1)
    fine = write_csv(tmp_path / "seconds.csv", seconds)
    assert main(["data", "describe", "--data", str(minutes), "--seconds", str(fine), *STATED]) == 2
    said = capsys.readouterr().err
    assert "1 of 3 bars" in said
    assert "high 1677.25, seconds give 1678.00" in said


QUOTES = (
    "ts_utc",
    "expiry",
    *(f"{side}_{price}" for side in ("bid", "ask") for price in ("open", "high", "low", "close")),
)


def test_quotes_are_read_beside_the_bars_and_must_cover_them(tmp_path, capsys):
    trades, quotes = write_csv(tmp_path / "bars.csv", ROWS), tmp_path / "quotes.csv"
    rows = [
        (*row[:2], *row[2:6], *(float(price) + 0.25 for price in row[2:6]))
        for row in (ROWS[0], ROWS[2])
    ]
    quotes.write_text(
        "\n".join(",".join(map(str, row)) for row in (QUOTES, *rows)) + "\n", encoding="utf-8"
    )
    given = ["data", "describe", "--data", str(trades), *STATED, "--quotes"]
    assert main([*given, str(quotes)]) == 2
    assert f"{quotes}: bars of 120 s, but {trades} has bars of 60 s" in capsys.readouterr().err
    assert main([*given, str(tmp_path / "none.csv")]) == 2
    assert "check data.quotes (--quotes)" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path), "--quotes", str(quotes)]) == 2
    assert "drop --quotes" in capsys.readouterr().err


@pytest.mark.slow
def test_replay_prints_every_decision_bar(run, capsys):
    assert main(["replay", str(run), "--session", "2013-10-11"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 4 + 433
    )  # four header lines, 09:30 to the bar before the flat bar less the 16:15 halt
    assert lines[4].split()[0] == "09:31:00"
    assert lines[-1].split()[0] > "16:50:00"
    assert main(["replay", str(run), "--session", "2013-10-12"]) == 2
    assert "2013-10-11" in capsys.readouterr().err


@pytest.mark.slow
def test_run_directory_is_never_overwritten(run, capsys):
    assert main(["train", "--run-dir", str(run), *TINY]) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.slow  # test_old_run.py resumes by the command line, rl/test_train.py a finished run
def test_resume_of_a_finished_run_evaluates_it(run, capsys):
    assert main(["train", "--resume", str(run)]) == 0
    said = capsys.readouterr()
    assert "resumed after update 4" in said.err
