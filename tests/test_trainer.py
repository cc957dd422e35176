"""`jaxtrade.Trainer`: a run in steps."""

import pytest

import jaxtrade as jt
from jaxtrade.runs import trainer as trainers
from tests.messages import missing, refused

TINY = {
    "source": "synthetic",
    "synthetic_sessions": 4,
    "hidden": [8],
    "num_envs": 8,
    "num_steps": 16,
    "total_timesteps": 256,
    "chunk_updates": 2,
    "tensorboard": False,
    "policy_samples": 1,
}


def test_faults_are_told_at_once_and_nothing_is_there_before_training():
    with refused("'total_timesteps'"):
        jt.Trainer("quickstart", total_timestep=5)
    trainer = jt.Trainer("quickstart", **TINY)
    assert (trainer.config.rollout.num_envs, trainer.config.data.source) == (8, "synthetic")
    assert not missing(repr(trainer), "Trainer(ES, ", "manage", "ppo", "256 steps", "not trained")
    for use in (
        trainer.evaluate,
        trainer.performance_info,
        lambda: trainer.policy,
        lambda: trainer.run,
    ):
        with refused("call train() first"):
            use()


def test_a_name_is_that_of_a_folder_in_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for make in (jt.run, jt.Trainer):
        with refused("name='x'", "path='y'"):
            make("quickstart", "y", name="x")
        with refused("name=a/b", "path="):
            make("quickstart", name="a/b")
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "file").touch()
    with refused("runs/x"):
        jt.run("quickstart", name="x")
    with refused("runs/x"):
        jt.Trainer("quickstart", name="x").train()


@pytest.mark.slow
def test_a_run_in_steps_is_the_run(tmp_path):
    trainer = jt.Trainer("quickstart", tmp_path / "run", **TINY)
    result = trainer.train()
    assert result.path == trainer.path == tmp_path / "run"
    assert f"trained: {result.path}" in repr(trainer) or "more" in repr(trainer)
    assert trainer.evaluate().table == result.table
    assert trainer.evaluate("train").path.name == "train", "it is evaluated when it is asked for"
    assert trainer.performance_info()["num_envs"] == 8
    assert trainer.policy.action_names == jt.open_run(result.path).policy.action_names
    assert trainer.train().training.updates == 2, "a finished run has nothing left to train"


def test_python_keeps_its_programs_where_the_commands_do(monkeypatch):
    done = []
    monkeypatch.setattr(trainers, "use_cache", lambda: done.append("cache") or "not writable")
    monkeypatch.setattr(trainers, "run_config", lambda *_: done.append("run"))
    with pytest.warns(UserWarning, match="not writable"):
        trainers.run("quickstart")
    assert done == ["cache", "run"]
