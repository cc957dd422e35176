"""What a run says of itself (`--perf`, `performance_info`), a limit on its time, and running
without jit.
"""

import re
import shutil
from typing import Any, cast

import pytest

import jaxtrade as jt
from jaxtrade.cli.entry import main
from jaxtrade.cli.parser import build_parser
from jaxtrade.cli.shared import resolve
from jaxtrade.config import load_config
from jaxtrade.evaluation.test_set_history import trials_of
from jaxtrade.runs import job, rundir, trainer
from jaxtrade.runs import train as training
from jaxtrade.runs.agents import resumed_config
from jaxtrade.runs.auto_envs import SizeMeasurement
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.train import resume, run
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.trials import read_trials
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import plan_run
from jaxtrade.training.run_io import WallClock
from tests.messages import missing, refused, refuses
from tests.reading import OLD, read_json
from tests.structure import ROOT

TINY = (
    "data.source=synthetic",
    "data.synthetic_sessions=4",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "train.total_timesteps=768",
    "train.chunk_updates=2",
    "train.tensorboard=false",
    "evaluation.policy_samples=1",
)


# --- the clock


def test_the_clock_ends_a_run_between_chunks_and_not_at_its_end():
    times = iter([100.0, 105.0, 110.0, 111.0])
    clock = WallClock(10.0, 40, lambda: next(times))
    assert clock(None, 10) == Change()
    assert clock(None, 40) == Change(), "it has finished: nothing is cut short"
    assert clock.reason is None
    assert clock(None, 30) == Change(stop=True)
    assert not missing(clock.reason or "", "control.wall_clock: ", "30 of 40", "11.0 s", "10.0 s")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d", 86400),
        ("null", None),
    ],
)
def test_times_with_units(text, seconds):
    assert load_config(None, [f"control.wall_clock={text}"]).control.wall_clock == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [("15x", "a time such as 90s, 15m"), ("0", "above 0"), ("-1", "above 0"), ("true", "a number")],
)
def test_times_that_are_none(text, said):
    with refused(said):
        load_config(None, [f"control.wall_clock={text}"])


# --- a run that the clock ends, and that goes on


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A run whose limit passes after the first of four chunks, and the lines that it printed in
    `run.log`.
    """
    path = tmp_path_factory.mktemp("runs") / "limited"
    config = load_config(
        "quickstart",
        [
            *TINY,
            "control.wall_clock=0.001",
            "train.checkpoint_every=2",
            "train.total_timesteps=1024",
        ],
    )
    assert run(config, path).exit_code in (0, 1)
    return path


@pytest.mark.slow
def test_a_limited_run_says_why_it_ended_and_has_saved_and_evaluated(limited):
    summary = read_json(limited / "summary.json")
    assert (summary["updates"], summary["stopped_early"]) == (2, True)
    reason = summary["stop_reason"]
    assert not missing(reason, "control.wall_clock: ", "update 2 of 8", "limit 0.0 s")
    pattern = rf"{re.escape(reason)}; .*: jaxtrade train --resume {re.escape(str(limited))}"
    assert re.search(pattern, (limited / "run.log").read_text())
    assert jt.open_run(limited).evaluation.table


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(limited, tmp_path):
    path = tmp_path / "limited"
    shutil.copytree(limited, path)
    written = (path / "config.yaml").read_bytes()
    resume(path)
    assert read_json(path / "summary.json")["updates"] == 4 == len(history(path))
    resume(
        path, set=["control.wall_clock=1h"]
    )  # without it, the run's own limit would end it after update 6 too
    summary = read_json(path / "summary.json")
    assert (summary["updates"], summary["stopped_early"], summary["stop_reason"]) == (
        8,
        False,
        None,
    )
    assert (path / "config.yaml").read_bytes() == written
    first, second = read_trials(path.parent).looks
    assert first.config == second.config
    assert first.policies != second.policies, "the run went on: another policy, and another trial"
    assert len(trials_of([first, second])) == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "ppo.gamma=0.5",
            "wall_clock, parallel.devices",
        ),
        ("control.wall_clock=soon", "expected seconds"),
        ("control.wall_clok=5", "drop --set"),
    ],
)
def test_a_resumed_run_takes_a_new_limit_and_no_other_key(override, said, capsys):
    refuses(capsys, ["train", "--resume", str(OLD), "--set", override], said)
    if "wall_clock=" not in override:
        with refused("except control.wall_clock"):
            resumed_config(rundir.read_run(OLD)[0], [override])


def test_the_limit_of_a_resumed_run():
    config = load_config(None, ["control.wall_clock=5s"])
    limits = [
        resumed_config(config, given).control.wall_clock
        for given in ([], ["control.wall_clock=2m"])
    ]
    assert limits == [5.0, 120.0]
    assert resumed_config(config, ["control.wall_clock=null"]).control.wall_clock is None


def test_a_set_of_symbols_has_a_folder_of_a_safe_name():
    path = rundir.new_run_path("EURUSD+USDJPY", "entry")
    assert path.name.startswith("EURUSD-USDJPY-entry-")
    assert rundir.NAME.fullmatch(path.name)


# --- figures


@pytest.mark.slow
def test_what_was_measured_is_told_with_units(limited):
    info = jt.performance_info(limited)
    assert set(info) == {*job.UNITS, "units"} == {*info["units"], "units"}
    assert info == jt.performance_info(jt.open_run(limited)) == jt.performance_info(str(limited))
    assert info["steps_per_second"] == read_json(limited / "summary.json")["steps_per_second"] > 0
    assert (info["num_envs"], info["num_steps"], info["agents"]) == (8, 16, 1)
    assert info["compile_seconds"] > 0
    assert {"loading", "compiling", "training", "evaluating"} <= set(info["phase_seconds"])
    assert info["market_bytes"] > info["state_bytes"] > 0
    assert info["program_bytes"] > info["market_bytes"], "the market is an argument of the program"
    assert info["times_one_env"] is None, "it is measured on request alone"
    assert "times one env" not in "".join(trainer.lines(info))


@pytest.mark.slow
def test_one_environment_is_timed_on_request_and_remembered(limited, monkeypatch):
    speeds = {8: 600.0, 1: 100.0}
    monkeypatch.setattr(
        trainer,
        "measure_update",
        lambda setup, limit: SizeMeasurement(0, speeds[setup.config.rollout.num_envs], 0, 0.0),
    )
    assert jt.performance_info(limited, against_one=True)["times_one_env"] == 6.0
    assert jt.performance_info(limited)["times_one_env"] == 6.0


def test_a_run_of_an_earlier_version_has_the_figures_that_it_wrote():
    info = jt.performance_info(OLD)
    assert info["steps_per_second"] == read_json(OLD / "summary.json")["steps_per_second"]
    assert info["market_bytes"] is None


@pytest.mark.slow
def test_an_unfinished_run_has_no_figures(limited, tmp_path):
    path = tmp_path / "unfinished"
    shutil.copytree(limited, path)
    (path / "summary.json").unlink()
    with refused("has not finished", "--resume"):
        jt.performance_info(path)


@pytest.mark.slow
def test_the_command_prints_them(limited, monkeypatch, capsys):
    result = jt.open_run(limited)
    monkeypatch.setattr(
        training, "train", lambda *given: training.RunResult(limited, cast(Any, None), {}, 0)
    )
    monkeypatch.setattr(training.RunResult, "summary", property(lambda self: result.table))
    assert main(["train", "--perf", "--name", "unused", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(result.table)
    assert re.search(r"^measured .*:\n  steps per second +[\d,.]+", out, re.MULTILINE)


def test_no_speed_stands_in_the_package_as_a_literal():
    """A speed-up or a steps/s figure in the package's own text would be a claim, and not a
    measurement.
    """
    claim = re.compile(
        r"\d\s*x (faster|speed)|\d\s*[kM]?\s*steps/s|speed-?up of \d|times faster", re.IGNORECASE
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "jaxtrade").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if claim.search(line)
    ]
    assert not found
    for text in ("2.7x faster", "45k steps/s", "3x speedup", "ten times faster"):
        assert claim.search(text), "the search finds what it is for"


# --- without jit


@pytest.mark.slow
def test_eager_compiles_no_training_program(monkeypatch, tmp_path):
    made = []

    class Recorded(Programs):
        """Compiles, and remembers what it was asked for without jit."""

        def __init__(self, eager=False):
            super().__init__()
            self.without = eager

        def begin(self, name, *given, **more):
            made.extend([name] * self.without)
            return super().begin(name, *given, **more)

    monkeypatch.setattr(training, "Programs", Recorded)
    path = run(
        load_config("quickstart", [*TINY, "compute.eager=true", "train.total_timesteps=256"]),
        tmp_path / "eager",
    ).path
    assert made == ["init", "train chunk of 2 updates"]
    assert rundir.read_run(path)[0].compute.eager, "a resume runs without jit too"


def test_the_flag_sets_the_key(capsys):
    assert load_config(None).compute.eager is False
    config = resolve(build_parser().parse_args(["train", "--test", "--eager", "--timesteps", "1"]))
    assert config.compute.eager
    per_update = config.rollout.num_envs * config.rollout.num_steps
    assert (
        plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps).total_steps
        == per_update
    )
    assert config.train.checkpoint_every == 1
    refuses(capsys, ["evaluate", "--eager"])
    refuses(capsys, ["train", "--eager", "--resume", str(OLD)], "drop --eager")
