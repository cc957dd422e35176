"""Flags for the keys that everybody sets: what they mean, their place among file, `--test` and
`--set`, refusals.
"""

import argparse
from pathlib import Path

import pytest

from jaxtrade.cli import flags, main, shared, training
from jaxtrade.cli.advise import run_ablation
from jaxtrade.cli.parser import build_parser
from jaxtrade.errors import ConfigError
from jaxtrade.storage.status import StatusSink
from tests.messages import refuses


def resolved(*argv):
    """What `jaxtrade train ARGV` trains."""
    return shared.resolve(build_parser().parse_args(["train", *argv]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000000", 1_000_000),
        ("1_000_000", 1_000_000),
        ("1,000,000", 1_000_000),
        ("1M", 1_000_000),
        ("1m", 1_000_000),
        ("250k", 250_000),
        ("1.5M", 1_500_000),
        ("2G", 2_000_000_000),
        ("1e6", 1_000_000),
        ("2.5E5", 250_000),
        ("7", 7),
        ("9007199254740993", 9_007_199_254_740_993),  # a float64 cannot hold it
    ],
)
def test_a_count_is_read_as_people_write_it(text, value):
    assert flags.count(text) == value


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "1.5", "1X", "M", "1e-3", "0.2k5", "nan", "one", "1e6.5", "1.0001k"]
)
def test_what_is_no_count_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        flags.count(text)


def test_file_then_test_then_flags_then_set(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "seed: 1\nrollout: {num_envs: 128, num_steps: 32}\ntrain: {total_timesteps: 999_424}\n",
        encoding="utf-8",
    )
    given = [
        "--test",
        "--seed",
        "2",
        "--timesteps",
        "300k",
        "--set",
        "train.total_timesteps=400_000",
    ]
    config = resolved(str(file), *given)
    assert config.rollout.num_envs == 64  # --test over the file
    assert config.seed == 2  # the flag over the file
    assert config.train.total_timesteps == 400_000  # --set over the flag over --test
    assert resolved(str(file), *given[:5]).train.total_timesteps == 300_000  # the flag over --test


def test_the_value_0_of_a_flag_counts_as_given(tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), "--seed", "0"]) == 2
    assert capsys.readouterr().err.endswith("; drop --seed\n")


@pytest.mark.parametrize("command", ["train", "curriculum"])
def test_resume_refuses_every_flag(command, tmp_path, capsys):
    given = [
        "--seed",
        "1",
        "--timesteps",
        "1M",
        "--envs",
        "8",
        "--account",
        "rules_off_50k",
        "--name",
        "x",
    ]
    assert main([command, "--resume", str(tmp_path), *given]) == 2
    assert capsys.readouterr().err.endswith("drop --seed, --timesteps, --envs, --account, --name\n")


def test_continue_takes_the_flags_as_it_takes_set(tmp_path, monkeypatch):
    """They change single keys of the configuration of the run that is continued."""
    from jaxtrade.runs import rundir

    source = tmp_path / "source"
    config = resolved("--seed", "5")
    rundir.create_run(
        source, config, {"config_sha256": config.digest(), "data_sha256": "", "nproc": 1}
    )
    given = ["train", "--continue", str(source), "--timesteps", "2M", "--name", "further"]
    monkeypatch.chdir(tmp_path)
    plan = training._new(build_parser().parse_args(given))
    assert (plan.source, plan.keeps, plan.path) == (source, True, Path("runs/further"))
    config = plan.config
    assert (config.seed, config.train.total_timesteps, config.transfer.moments) == (
        5,
        2_000_000,
        True,
    )


def test_a_curriculum_takes_the_flags_for_every_phase(monkeypatch, tmp_path):
    """A `--set` of one phase stands over a flag, as every `--set` does."""
    monkeypatch.chdir(tmp_path)
    phases = {}

    def seen(configs):
        phases.update(
            {
                config.env.task: (
                    config.seed,
                    config.train.total_timesteps,
                    config.rollout.num_envs,
                )
                for config in configs
            }
        )
        raise ConfigError("far enough")

    monkeypatch.setattr(training, "check_memory", seen)
    assert (
        main(
            [
                "curriculum",
                "--seed",
                "3",
                "--timesteps",
                "1e5",
                "--envs",
                "32",
                "--set",
                "phases.manage.run.train.total_timesteps=200_000",
                "--test",
            ]
        )
        == 2
    )
    assert phases == {
        "entry": (3, 100_000, 32),
        "manage": (3, 200_000, 32),
        "advised": (3, 100_000, 32),
    }


def test_an_ablation_takes_flags_over_test(monkeypatch, tmp_path):

    monkeypatch.chdir(tmp_path)
    found = []

    def stop(configs):
        found.extend(configs)
        raise ConfigError("far enough")

    from jaxtrade.runs import xla_settings

    monkeypatch.setattr(xla_settings, "apply_xla_settings", stop)
    given = [
        "ablate",
        "advisor",
        "--test",
        "--market",
        "ES",
        "--timesteps",
        "20480",
        "--envs",
        "16",
    ]
    with pytest.raises(ConfigError, match="far enough"):
        run_ablation(build_parser().parse_args(given))
    [config] = found
    assert (config.data.source, config.train.total_timesteps, config.rollout.num_envs) == (
        "synthetic",
        20_480,
        16,
    )


@pytest.mark.parametrize("argv", [["train"], ["curriculum"], ["ablate", "advisor"]])
@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        (["--name", "there"], "--name there: runs/there "),
        (["--name", "../up"], "--name ../up: expected letters"),
        (["--account", "apex"], "account.preset: "),
        (["--envs", "12"], "rollout.num_envs (12) "),
    ],
)
def test_wrong_values_are_refused_before_anything_is_written(
    argv,
    given,
    fragment,
    tmp_path,
    monkeypatch,
    capsys,
):
    """Even an empty folder of that name is refused: its name is in use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "there").mkdir(parents=True)
    refuses(capsys, [*argv, *given], fragment)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["there"]


@pytest.mark.parametrize("saved", [False, True])
def test_the_name_of_a_run_that_saved_nothing_may_be_freed(saved, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "bad"
    (folder / "checkpoints" / ("update_4" if saved else "")).mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    status = StatusSink(folder, print, {})
    status.note_failure(KeyError("params"))
    status.close()
    assert main(["train", "--name", "bad"]) == 2
    assert ("delete it" in capsys.readouterr().err) == (not saved)


def test_two_flags_for_one_folder_are_refused(capsys):
    refuses(capsys, ["train", "--name", "a", "--run-dir", "b"], "--name a and --run-dir b: ")
    refuses(capsys, ["ablate", "advisor", "--name", "a", "--out", "b"], "--name a and --out b: ")


@pytest.mark.parametrize(
    ("flag", "value", "fragment"),
    [
        (
            "--timesteps",
            "1X",
            "'1X' ",
        ),
        ("--seed", "-1", "'-1' "),
        ("--seed", "1.5", "'1.5' "),
        ("--envs", "0", "'0' "),
        ("--timesteps", "1" * 5000, "1111...1111"),
        ("--seed", "1" * 5000, "1111...1111"),
        ("--devices", "many", "; or all, or auto"),
    ],
)
def test_a_value_that_is_no_number_is_a_usage_error(flag, value, fragment, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", flag, value])
    assert stop.value.code == 2
    assert fragment in capsys.readouterr().err


def test_the_named_folder_is_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = argparse.Namespace(name="first", run_dir=None)
    assert flags.new_folder(args, "ES", "manage") == Path("runs/first")
    args = argparse.Namespace(name=None, run_dir="other/place")
    assert flags.new_folder(args, "ES", "manage") == Path("other/place")
    args = argparse.Namespace(name=None, run_dir=None)
    assert flags.new_folder(args, "ES", "manage").name.startswith("ES-manage-")
