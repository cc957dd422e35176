"""Runs through the composition root: resuming to the same bits, refusing other data, one writer."""

import os
import shutil
import signal

import jax
import pytest

from jaxtrade.config import load_config
from jaxtrade.errors import (
    CheckpointError,
    DataError,
    InterruptedRunError,
    RunLockedError,
)
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.runs import rundir, xla_settings
from jaxtrade.runs.evaluate import Request, evaluate_run, history, replay_run
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import resume, run
from jaxtrade.storage import checkpoint, digests
from jaxtrade.training import loop
from jaxtrade.training.run_io import RunIO
from tests.messages import refused
from tests.reading import OLD, read_json
from tests.resuming import cut, final_state
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
    return read_json(path / "summary.json")


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
    assert_same(final_state(copied), final_state(finished))
    assert measured(copied) == measured(finished)
    assert summary_of(copied)["validation"] == summary_of(finished)["validation"]
    for name in ("policy/policy.npz", "policy_best/policy.npz", "evaluation/test/trades.csv"):
        assert (copied / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.slow
def test_resume_without_a_checkpoint_starts_again(finished, tmp_path, monkeypatch):
    """And under the run's own threads and compiler flags, whatever the new process was given."""
    copied = copy_until(finished, tmp_path / "cut", 0)
    monkeypatch.setattr(xla_settings, "backends_started", lambda: False)  # as in a new process
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("NPROC", "64")
    resume(copied)
    manifest = read_json(finished / "manifest.json")
    assert {"jax", "numpy", "python", "jaxtrade"} <= manifest["versions"].keys()
    assert os.environ["XLA_FLAGS"] == manifest["xla_flags"] != ""
    assert os.environ["NPROC"] == manifest["nproc"] != "64"
    assert measured(copied) == measured(finished)


@pytest.mark.slow
def test_resume_refuses_other_data(finished, tmp_path):
    copied = tmp_path / "other"
    shutil.copytree(finished, copied)
    manifest = read_json(copied / "manifest.json")
    rundir.write_json(copied / "manifest.json", manifest | {"data_sha256": "0" * 64})
    with refused("another market", kind=DataError):
        resume(copied)


def test_an_incomplete_manifest_is_refused(tmp_path):
    copied = tmp_path / "incomplete"
    shutil.copytree(OLD, copied)
    rundir.write_json(copied / "manifest.json", {})
    with refused("manifest.json: ", "'config_sha256'"):
        resume(copied)


def test_one_writer_per_run(tmp_path):
    with (
        rundir.lock_run(tmp_path),
        refused("pid", kind=RunLockedError),
        rundir.lock_run(tmp_path),
    ):
        pass  # pragma: no cover


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
    assert "your policies of 3 seeds (4 .. 6)" in result.table
    return result.path


@pytest.mark.slow
def test_several_seeds_leave_a_policy_and_an_evaluation_each(seeds_run):
    assert sorted(path.name for path in (seeds_run / "policy").iterdir()) == [
        "seed_4",
        "seed_5",
        "seed_6",
    ]
    folder = seeds_run / "evaluation/test"
    together = read_json(folder / "seeds.json")
    own = [read_json(folder / f"seed_{seed}/evaluation.json") for seed in (4, 5, 6)]
    nets = [document["agents"]["greedy"]["strategy"]["net_profit"] for document in own]
    figure = together["spread"]["strategy"]["net_profit"]
    assert figure["each"] == nets
    assert (figure["min"], figure["median"], figure["max"]) == tuple(sorted(nets))
    assert [document["provenance"]["trained_seed"] for document in own] == [4, 5, 6]
    assert len(history(seeds_run)[-1]["param_delta/each"]) == 3
    with refused("3 policies", "seed_4", kind=CheckpointError):
        load_policy(seeds_run)
    assert load_policy(seeds_run / "policy/seed_5").schema["actions"]["names"][0] == "HOLD"


@pytest.mark.slow
def test_one_of_several_seeds_is_named(seeds_run):
    assert "your policies of 3 seeds" in evaluate_run(Request(seeds_run))
    one = evaluate_run(Request(seeds_run, seed=5))
    assert one + "\n" == (seeds_run / "evaluation/test/seed_5" / "evaluation.txt").read_text()
    with refused("seed 7: ", "(--seed) 4 .. 6"):
        evaluate_run(Request(seeds_run, seed=7))
    with refused("several policies; ", "(--seed) 4 .. 6"):
        next(replay_run(Request(seeds_run), "2013-10-11"))
    assert next(replay_run(Request(seeds_run, seed=6), "2013-10-11"))


def test_a_plain_run_evaluates_nothing_between_and_rolls_back_as_configured(
    plain, tmp_path, monkeypatch
):
    given = {}

    def started(*args, **keywords):
        given.update(keywords)
        raise RunIO().make_interrupted_error(signal.SIGINT, 3)

    monkeypatch.setattr(loop, "train", started)
    control = plain.control.model_copy(update={"max_rollbacks": 7})
    with refused("after update 3; ", "continue with", kind=InterruptedRunError):
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
