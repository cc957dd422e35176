"""`jaxtrade ablate advisor`: what it refuses at once, and a whole small matrix."""

import json
import signal

import pytest

from jaxtrade.ablation.folder import BEGIN
from jaxtrade.cli import main
from jaxtrade.cli.advise import with_seeds
from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError, PreemptedError
from jaxtrade.parts import LEARNERS
from jaxtrade.training.run_io import RunIO
from tests.messages import refuses


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--kinds", "mock:skiled:0.6"], "did you mean 'skilled'"),
        (["--kinds", "https://h/v1"], "advise precompute"),
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
    command = ["ablate", "advisor", "--test", "--set", "algorithm=own", "--out"]
    refuses(capsys, [*command, str(tmp_path / "new")], "algorithm=own")
    assert not (tmp_path / "new").exists()


def test_one_that_is_stopped_says_how_it_goes_on(tmp_path, capsys, monkeypatch):
    """Training knows only that it was stopped; the flags of the whole are not in its folder."""

    def stopped(*_args):
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / BEGIN).write_text("{}")
        raise RunIO().make_interrupted_error(signal.SIGTERM, 5)

    monkeypatch.setattr("jaxtrade.ablation.run.ablate", stopped)
    assert (
        main(["ablate", "advisor", "--test", "--out", str(tmp_path / "new")])
        == PreemptedError.exit_code
    )
    assert f"--out {tmp_path / 'new'} and --resume" in capsys.readouterr().err


def test_an_old_folder_is_not_written_to(tmp_path, capsys):
    (tmp_path / "ablation.json").write_text("{}")
    refuses(capsys, ["ablate", "advisor", "--test", "--out", str(tmp_path)], "not an empty folder")


def test_only_what_was_begun_is_resumed(tmp_path, capsys):
    flags = ["ablate", "advisor", "--test", "--out", str(tmp_path)]
    refuses(capsys, [*flags, "--resume"], "begin.json")
    begun = {"config_sha256": "0" * 64, "kinds": [], "fusions": []}
    (tmp_path / "begin.json").write_text(json.dumps(begun))
    refuses(capsys, [*flags, "--resume"], "config_sha256 is ")
    refuses(capsys, flags, "--resume")


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
