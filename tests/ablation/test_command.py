"""`jaxtrade ablate advisor`: what it refuses at once, and a whole small matrix."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

from jaxtrade.ablation.folder import BEGIN
from jaxtrade.cli import main
from jaxtrade.cli.ablate import with_seeds
from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError, PreemptedError
from jaxtrade.parts import LEARNERS
from jaxtrade.storage.trials import read_trials
from jaxtrade.training.run_io import RunIO
from tests.ablation.made import TINY


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--kinds", "mock:skiled:0.6"], "did you mean 'skilled'"),
        (["--kinds", "https://h/v1"], "advise precompute"),
        (["--fusions", "trsut"], "did you mean 'trust'"),
        (["--seeds", "0"], "--seeds 0"),
        (["--seeds", "-1"], "--seeds -1"),
        (
            ["quickstart", "--set", "shared.on=true", "--set", "train.num_seeds=2"],
            "do not meet",
        ),
        (["nowhere"], "nowhere"),
        (["--set", "rollout.num_env=3"], "num_envs"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(flags, names, tmp_path, capsys):
    out = tmp_path / "new"
    assert main(["ablate", "advisor", *flags, "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert names in error
    assert not out.exists()


def test_another_learner_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LEARNERS, "_added", {"own": object()})
    assert (
        main(
            [
                "ablate",
                "advisor",
                "--test",
                "--set",
                "algorithm=own",
                "--out",
                str(tmp_path / "new"),
            ]
        )
        == 2
    )
    assert "algorithm=own" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_one_that_is_stopped_says_how_it_goes_on(tmp_path, capsys, monkeypatch):
    """Training knows only that it was stopped; the flags of the whole are not in its folder."""

    def stopped(*_args):
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / BEGIN).write_text("{}")
        raise RunIO().interrupted(signal.SIGTERM, 5)

    monkeypatch.setattr("jaxtrade.ablation.run.ablate", stopped)
    assert (
        main(["ablate", "advisor", "--test", "--out", str(tmp_path / "new")])
        == PreemptedError.exit_code
    )
    assert f"--out {tmp_path / 'new'} and --resume" in capsys.readouterr().err


def test_an_old_folder_is_not_written_to(tmp_path, capsys):
    (tmp_path / "ablation.json").write_text("{}")
    assert main(["ablate", "advisor", "--test", "--out", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_only_what_was_begun_is_resumed(tmp_path, capsys):
    flags = ["ablate", "advisor", "--test", "--resume", "--out", str(tmp_path)]
    assert main(flags) == 2
    assert "begin.json" in capsys.readouterr().err
    (tmp_path / "begin.json").write_text(
        json.dumps({"config_sha256": "0" * 64, "kinds": [], "fusions": []})
    )
    assert main(flags) == 2
    assert "config_sha256 is " in capsys.readouterr().err
    assert main([part for part in flags if part != "--resume"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_seeds():
    config = load_config(None)
    assert with_seeds(config, None).train.num_seeds == 10
    assert with_seeds(load_config(None, ["train.num_seeds=3"]), None).train.num_seeds == 3
    assert with_seeds(config, 1).train.num_seeds == 1
    with pytest.raises(ConfigError, match="1 to 1024"):
        with_seeds(config, 1025)


def test_the_shipped_matrix_is_a_configuration():
    config = load_config("advisor_ablation")
    assert config.split.test_sessions >= 20
    assert config.data.source == "synthetic"


@pytest.mark.slow
@pytest.mark.long  # test_matrix.py has each part
def test_a_whole_small_matrix(tmp_path, capsys):
    out = tmp_path / "new"
    flags = [part for override in TINY for part in ("--set", override)]
    command = [
        "ablate",
        "advisor",
        "--test",
        *flags,
        "--set",
        "split.test_sessions=5",
        "--out",
        str(out),
        "--kinds",
        "mock:random,mock:oracle,turn",
        "--fusions",
        "trust,none",
    ]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "mock:oracle (CHEATS)" in shown.out
    assert "turn (CHEATS)" in shown.out
    assert "CHEATS: it knows" in shown.err
    document = json.loads((out / "ablation.json").read_text())
    assert list(document["fusions"]) == ["trust", "none"]
    assert document["cheats"] == ["mock:oracle", "turn"]
    assert (out / "ablation.txt").read_text() == shown.out
    kinds = document["fusions"]["none"][
        "kinds"
    ]  # advice that is only counted makes no difference at all
    assert len({kind["parameters_sha256"][0] for kind in kinds.values()}) == 1
    assert kinds["turn"]["test"]["less_none"]["mean"] == 0.0
    assert document["fusions"]["trust"]["kinds"]["none"]["test"]["days"]
    assert document["provenance"]["versions"]["jax"]
    assert document["fusions"]["trust"]["health"]["recompiles"] == {"passed": True, "value": 0}
    first, second = read_trials(tmp_path).openings
    assert (first.kind, first.run, first.split, first.sessions) == ("ablate", "new", "test", 5)
    assert (first.config, first.data) == tuple(
        document["provenance"][f"{name}_sha256"] for name in ("config", "data")
    )
    honest = [
        f"trust/{kind}/{seed}" for kind in ("mock:random", "none") for seed in document["seeds"]
    ]
    assert sorted(first.net) == sorted(honest), "an advisor that knows the future is no trial"
    assert sorted(second.net) == sorted(name.replace("trust", "none") for name in honest)
    shown_days = document["fusions"]["trust"]["kinds"]["none"]["test"]
    assert list(first.dates) == shown_days["days"]
    assert list(first.net[honest[-1]]) == [
        round(value, 3) for value in shown_days["net_by_seed_and_day"][-1]
    ]
    said = f"trials: this test set was opened 2 times ({2 * len(honest)} distinct trials), this time included"
    assert said in shown.out
    assert document["trials"]["opened"] == 2
    resumed = [*command, "--resume"]
    shutil.rmtree(out / "training" / "none")  # killed in its second fusion
    assert main(resumed) == 0
    again = json.loads((out / "ablation.json").read_text())
    for fusion, found in document["fusions"].items():
        assert again["fusions"][fusion]["kinds"] == found["kinds"]
    assert len(read_trials(tmp_path).openings) == 2, "it has shown nothing new"
