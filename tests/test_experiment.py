"""Runs through the composition root: resuming to the same bits, refusing other data, one writer."""

import json
import os
import shutil
import signal
from pathlib import Path

import jax
import pytest

from jaxtrade.config import load_config
from jaxtrade.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    InterruptedRunError,
    RunLockedError,
)
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.evaluation.validation import mean_reward
from jaxtrade.runs import computing, rundir, training_job
from jaxtrade.runs.evaluate import evaluate_run, history, replay_run
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import resume, run
from jaxtrade.storage import checkpoint, digests
from jaxtrade.training.run_io import RunIO
from tests.resuming import cut
from tests.rl.test_train import assert_same

OVERRIDES = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=768",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)
OLD = Path(__file__).parent / "fixtures" / "run_0_1_0"
STAGES = (
    "stages.commission_start=0",
    "stages.commission_until=1",
    "stages.forced_start=1",
    "stages.forced_start_end=1",
)


CONTROL = (
    "split.validation_sessions=1",
    "control.evaluate_every=1",
    "control.plateau_patience=1",
    "control.plateau_lr_factor=0.25",
)


@pytest.fixture(scope="module")
def plain():
    return load_config("quickstart", OVERRIDES)


@pytest.fixture(scope="module")
def config():
    return load_config("quickstart", (*OVERRIDES, *CONTROL))


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """Six updates in three chunks, each evaluated on one validation session."""
    return run(config, tmp_path_factory.mktemp("runs") / "whole").path


def final_state(path, config):
    setup = prepare(config)
    like = jax.eval_shape(setup.algorithm.init, jax.random.key(0), setup.params)
    return checkpoint.restore_latest(path / "checkpoints", like).state


def copy_until(finished, to, update):
    """The run as a kill after `update` would have left it: later checkpoints gone, a torn metrics
    line.
    """
    cut(finished, to, update)
    digests.forget(to / "metrics.jsonl")
    with (to / "metrics.jsonl").open("a") as file:
        file.write('{"update": 7, "lo')
    shutil.rmtree(to / "policy")
    return to


def measured(path):
    """Metrics without those that depend on the clock."""
    clock = {"seconds", "steps_per_second", "eta_seconds"}
    return [{key: value for key, value in row.items() if key not in clock} for row in history(path)]


def summary_of(path):
    return json.loads((path / "summary.json").read_text())


@pytest.mark.slow
def test_resumed_run_ends_in_the_same_bits(finished, config, tmp_path, capsys):
    """And takes the same decisions. Its newest checkpoint is damaged: it is passed over."""
    copied = copy_until(finished, tmp_path / "cut", 4)
    newest = checkpoint.list_checkpoints(copied / "checkpoints")[-1][1] / "state.npz"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    assert resume(copied).exit_code == 0
    assert "state.npz" in capsys.readouterr().err
    assert_same(final_state(copied, config), final_state(finished, config))
    assert measured(copied) == measured(finished)
    assert summary_of(copied)["validation"] == summary_of(finished)["validation"]
    for name in ("policy/policy.npz", "policy_best/policy.npz", "evaluation/test/trades.csv"):
        assert (copied / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.slow
def test_resume_without_a_checkpoint_starts_again(finished, tmp_path, monkeypatch):
    """And under the run's own threads and compiler flags, whatever the new process was given."""
    copied = copy_until(finished, tmp_path / "cut", 0)
    monkeypatch.setattr(computing, "backends_started", lambda: False)  # as in a new process
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("NPROC", "64")
    resume(copied)
    manifest = json.loads((finished / "manifest.json").read_text())
    assert os.environ["XLA_FLAGS"] == manifest["xla_flags"] != ""
    assert os.environ["NPROC"] == manifest["nproc"] != "64"
    assert measured(copied) == measured(finished)


@pytest.mark.slow
def test_resume_refuses_other_data(finished, tmp_path):
    copied = tmp_path / "other"
    shutil.copytree(finished, copied)
    manifest = json.loads((copied / "manifest.json").read_text())
    rundir.write_manifest(copied, manifest | {"data_sha256": "0" * 64})
    with pytest.raises(DataError, match="another market"):
        resume(copied)


@pytest.mark.slow
@pytest.mark.parametrize("use", [resume, evaluate_run, lambda path: replay_run(path, "2013-10-11")])
def test_an_edited_configuration_is_refused(finished, tmp_path, use):
    copied = tmp_path / "edited"
    shutil.copytree(finished, copied)
    text = (copied / "config.yaml").read_text()
    (copied / "config.yaml").write_text(text.replace("commission: null", "commission: 0.0"))
    with pytest.raises(ConfigError, match="made with"):
        use(copied)


def test_an_incomplete_manifest_is_refused(tmp_path):
    copied = tmp_path / "incomplete"
    shutil.copytree(OLD, copied)
    rundir.write_json(copied / "manifest.json", {})
    with pytest.raises(ConfigError, match=r"manifest\.json: .*'config_sha256'"):
        resume(copied)


def test_one_writer_per_run(tmp_path):
    with (
        rundir.locked(tmp_path),
        pytest.raises(RunLockedError, match="pid"),
        rundir.locked(tmp_path),
    ):
        pass  # pragma: no cover


@pytest.mark.slow
def test_manifest_carries_provenance(finished, config):
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["config_sha256"] == prepare(config).config.digest()
    assert manifest["seed"] == config.seed
    assert {"jax", "numpy", "python", "jaxtrade"} <= manifest["versions"].keys()
    assert manifest["nproc"]
    assert len(manifest["data_sha256"]) == 64


@pytest.fixture(scope="module")
def seeds_run(plain, tmp_path_factory):
    """Three seeds as one program."""
    train = plain.train.model_copy(update={"num_seeds": 3})
    result = run(
        plain.model_copy(update={"seed": 4, "train": train}),
        tmp_path_factory.mktemp("runs") / "seeds",
    )
    assert result.exit_code == 0
    assert list(result.evaluations) == [4, 5, 6]
    assert result.evaluation is result.evaluations[4]
    assert "greedy policies of 3 seeds (4 .. 6)" in result.table
    return result.path


@pytest.mark.slow
def test_several_seeds_leave_a_policy_and_an_evaluation_each(seeds_run):
    assert sorted(path.name for path in (seeds_run / "policy").iterdir()) == [
        "seed_4",
        "seed_5",
        "seed_6",
    ]
    folder = seeds_run / "evaluation/test"
    together = json.loads((folder / "seeds.json").read_text())
    own = [json.loads((folder / f"seed_{seed}/evaluation.json").read_text()) for seed in (4, 5, 6)]
    nets = [document["agents"]["greedy"]["strategy"]["net_profit"] for document in own]
    figure = together["spread"]["strategy"]["net_profit"]
    assert figure["each"] == nets
    assert (figure["min"], figure["median"], figure["max"]) == tuple(sorted(nets))
    assert [document["provenance"]["trained_seed"] for document in own] == [4, 5, 6]
    assert len(history(seeds_run)[-1]["param_delta/each"]) == 3
    with pytest.raises(CheckpointError, match=r"3 policies.*seed_4"):
        load_policy(seeds_run)
    assert load_policy(seeds_run / "policy/seed_5").schema["actions"]["names"][0] == "HOLD"


@pytest.mark.slow
def test_several_seeds_resume_to_the_same_bits(seeds_run, tmp_path):
    copied = copy_until(seeds_run, tmp_path / "cut", 4)
    assert resume(copied).exit_code == 0
    assert measured(copied) == measured(seeds_run)
    files = ("policy/seed_6/policy.npz", "evaluation/test/seeds.txt")
    for name in files:
        assert (copied / name).read_bytes() == (seeds_run / name).read_bytes()


@pytest.mark.slow
def test_one_of_several_seeds_is_named(seeds_run):
    assert "greedy policies of 3 seeds" in evaluate_run(seeds_run)
    one = evaluate_run(seeds_run, seed=5)
    assert one + "\n" == (seeds_run / "evaluation/test/seed_5" / "evaluation.txt").read_text()
    with pytest.raises(ConfigError, match=r"seed 7: .*\(--seed\) 4 \.\. 6"):
        evaluate_run(seeds_run, seed=7)
    with pytest.raises(ConfigError, match=r"several policies; .*\(--seed\) 4 \.\. 6"):
        next(replay_run(seeds_run, "2013-10-11"))
    assert next(replay_run(seeds_run, "2013-10-11", seed=6))


@pytest.mark.slow
def test_the_best_policy_earned_its_score(finished, config):
    reported = summary_of(finished)["validation"]
    scores = dict(reported["scores"])
    assert list(scores) == [2, 4, 6]
    assert reported["best_score"] == max(scores.values()) == scores[reported["best_update"]]
    assert [update for update, _ in checkpoint.list_checkpoints(finished / "best")] == [
        reported["best_update"]
    ]
    setup = prepare(config)
    policy = load_policy(finished / "policy_best").policy
    assert (
        mean_reward(setup.env, setup.params, setup.splits["validation"], setup.algorithm, [policy])
        == reported["best_score"]
    )
    log = (finished / "run.log").read_text()
    assert f"best at update {reported['best_update']}" in log
    assert "  actions % " in log


def test_a_plain_run_evaluates_nothing_between_and_rolls_back_as_configured(
    plain, tmp_path, monkeypatch
):
    given = {}

    def started(*args, **keywords):
        given.update(keywords)
        raise RunIO().interrupted(signal.SIGINT, 3)

    monkeypatch.setattr(training_job, "train", started)
    control = plain.control.model_copy(update={"max_rollbacks": 7})
    with pytest.raises(InterruptedRunError, match=r"after update 3; .*continue with"):
        run(plain.model_copy(update={"control": control}), tmp_path / "plain")
    assert (given["max_rollbacks"], given["hooks"]) == (7, [])


# --- stages


def test_nobody_but_the_learner_is_given_staged_parameters(plain):
    staged, ours = (
        prepare(load_config("quickstart", (*OVERRIDES, *STAGES))).params,
        prepare(plain).params,
    )
    assert staged.forced_start is None
    assert int(staged.contract.commission) > 0
    assert jax.tree.structure(staged) == jax.tree.structure(ours)
    assert_same(staged, ours)
