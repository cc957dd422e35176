"""`train --auto-resume`: the same command starts a run, continues it, and ends at once when it has
finished.

Runs that are really stopped and continued are in `tests/scale`.
"""

import json

import pytest

from jaxtrade.cli import main
from jaxtrade.config import dump_config, load_config
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import FolderChoice, differing, how_to_start, require_own
from jaxtrade.runs.plan import plan_resumed
from tests.messages import refused, refuses

COMMAND = ["train", "--auto-resume", "--set", "rollout.num_envs=64"]
OWN = ("rollout.num_envs=64",)


def created(path, *overrides):
    """A run's folder as it is just after its start."""
    config = load_config("quickstart", overrides)
    rundir.create_run(
        path, config, {"config_sha256": config.digest(), "data_sha256": "0", "nproc": None}
    )
    return config


def swept(path, found, *overrides):
    """The folder of a sweep or a search as it is just after its start."""

    def fill(new):
        (new / "config.yaml").write_text(dump_config(load_config("quickstart", [*OWN, *overrides])))
        (new / "sweep.json").write_text(json.dumps(found))

    rundir.create_folder(path / "sweep", fill)
    return path / "sweep"


def names(asked, own):
    return [key for key, _, _ in differing(asked, own)]


def test_a_folder_has_all_or_nothing(tmp_path):
    def fails(new):
        (new / "config.yaml").write_text("")
        raise KeyError

    with pytest.raises(KeyError):
        rundir.create_folder(tmp_path / "sweep", fails)
    assert list(tmp_path.iterdir()) == []


def test_what_a_folder_holds(tmp_path):
    run = tmp_path / "run"
    assert how_to_start(run) is FolderChoice.NEW
    run.mkdir()
    assert how_to_start(run) is FolderChoice.NEW
    run.rmdir()
    created(run)
    assert (
        how_to_start(run) is FolderChoice.CONTINUE
    )  # no checkpoint is needed: it then begins again
    (run / "summary.json").write_text("{}")
    assert how_to_start(run) is FolderChoice.DONE
    (run / "summary.json").write_text('{"stop_reason": "control.patience: 8 evaluations"}')
    assert how_to_start(run) is FolderChoice.DONE
    (run / "summary.json").write_text(
        '{"stop_reason": "control.wall_clock: stopped after update 3"}'
    )
    assert how_to_start(run) is FolderChoice.CONTINUE


@pytest.mark.parametrize(
    "found", [{"groups": [{"folder": "group_0"}, {"folder": "group_1"}]}, {"optuna": 8}]
)
def test_a_sweep_has_finished_when_all_its_runs_have(tmp_path, found):
    sweep, own = swept(tmp_path, found), load_config("quickstart", OWN)
    for folder in ("group_0", "group_1") if "groups" in found else ("best",):
        assert how_to_start(sweep) is FolderChoice.CONTINUE
        created(sweep / folder)
        assert how_to_start(sweep) is FolderChoice.CONTINUE
        (sweep / folder / "summary.json").write_text("{}")
    assert how_to_start(sweep) is FolderChoice.DONE
    require_own(own, sweep)
    with refused("seed"):
        require_own(load_config("quickstart", [*OWN, "seed=3"]), sweep)


@pytest.mark.parametrize(
    ("found", "overrides", "own"),
    [
        ({"groups": []}, ("sweep.keys={ppo.num_epochs: [1, 2]}",), "group_0"),
        (
            {"optuna": 8},
            (
                "sweep.keys={ppo.learning_rate: ['log:1e-4..1e-2']}",
                "sweep.optuna=8",
                "split.validation_sessions=1",
            ),
            "best",
        ),
    ],
)
def test_a_resumed_sweep_hands_its_overrides_to_its_runs(tmp_path, found, overrides, own):
    """And a search to its best one."""
    if "optuna" in found:
        pytest.importorskip("optuna", reason='needs the extra: pip install "jaxtrade[optuna]"')
    sweep = swept(tmp_path, found, *overrides)
    plan = plan_resumed(sweep, ["control.wall_clock=1h"])
    assert plan.is_sweep
    assert plan.config.control.wall_clock == 3600
    assert plan.of_program(plan.config, sweep / own).start is FolderChoice.NEW
    created(sweep / own)
    going_on = plan.of_program(plan.config, sweep / own)
    assert (going_on.start, going_on.path) == (FolderChoice.CONTINUE, sweep / own)
    assert going_on.changes == ("control.wall_clock=1h",)
    with refused("ppo.gamma=0.9: "):
        plan_resumed(sweep, ["ppo.gamma=0.9"])


def test_every_key_that_differs_is_named():
    own = load_config("quickstart")
    assert names(own, own) == []
    other = load_config("quickstart", ["seed=3", "network.hidden=[8,8]", "reward.weights.win=1"])
    assert names(other, own) == ["network.hidden", "reward.weights.win", "seed"]
    assert names(own, other) == names(other, own)


def test_what_may_differ():
    own = load_config("quickstart", ["rollout.num_envs=64"])
    assert (
        names(load_config("quickstart", ["rollout.num_envs=64", "control.wall_clock=1h"]), own)
        == []
    )
    assert (
        names(load_config("quickstart", ["rollout.num_envs=auto"]), own) == []
    )  # the run has chosen the number
    adapted = own.model_copy(update={"network": own.network.model_copy(update={"adapter": 16})})
    assert names(own, adapted) == []  # the transfer has set it
    assert names(adapted, own) == ["network.adapter"]


def test_the_same_file_by_another_path_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "bars.csv").write_text("")
    monkeypatch.chdir(tmp_path)
    near, far, other = (
        load_config("quickstart", ["data.source=file", f"data.file={json.dumps(str(path))}"])
        for path in ("bars.csv", tmp_path / "bars.csv", tmp_path / "others.csv")
    )
    assert names(near, far) == []
    assert names(near, other) == ["data.file"]


def test_another_configuration_is_refused_with_both_values(tmp_path):
    config = created(tmp_path / "run")
    require_own(config, tmp_path / "run")
    with pytest.raises(ConfigError, match="another configuration") as refusal:
        require_own(load_config("quickstart", ["seed=3"]), tmp_path / "run")
    assert str(refusal.value).splitlines()[1] == "  seed: 3, the run has 0"


def test_the_command_refuses_and_ends(tmp_path, capsys):
    run = tmp_path / "run"
    refuses(capsys, COMMAND, "add --run-dir DIR")
    refuses(capsys, [*COMMAND, "--run-dir", str(run), "--resume", "other"], "drop --resume")
    created(run, *OWN)
    refuses(capsys, [*COMMAND, "--run-dir", str(run), "--seed", "3"], "seed: 3, the run has 0")
    (run / "summary.json").write_text("{}")
    assert main([*COMMAND, "--run-dir", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"{run}: this run has finished")


def test_a_folder_with_other_things_is_no_run(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    refuses(capsys, [*COMMAND, "--run-dir", str(tmp_path)], tmp_path, "not empty")
