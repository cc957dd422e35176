"""Strict sums: a run has one hash on any number of devices and processes, also when it goes on in
another layout.
"""

from __future__ import annotations

import signal

import pytest

from tests.scale.started import TRAIN, ended, free_port, joined, result_of, saved, started, until

pytestmark = pytest.mark.slow
STRICT = (*TRAIN, "--set", "parallel.reduce=strict")
SHORT = ("--timesteps", "2560")  # four chunks of 640 steps
LARGE = (
    "--timesteps",
    "16384",
    *(
        word
        for override in (
            "rollout.num_envs=64",
            "rollout.num_steps=128",
            "network.hidden=[64,64]",
            "ppo.num_minibatches=8",
            "train.chunk_updates=1",
        )
        for word in ("--set", override)
    ),
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def words(processes, devices, run, length=SHORT):
    """The command that trains on so many processes with so many devices each."""
    train = [*STRICT, *length, "--run-dir", str(run)]
    if processes == 1:
        return [*train, "--devices", str(devices)]
    return [
        "launch",
        "local",
        "-n",
        str(processes),
        "--devices-per-process",
        str(devices),
        "--",
        *train,
    ]


def trained(command, cache, run):
    with started([command], cache) as [process]:
        code, _, err = ended(process)
    assert code in (0, 1), err  # 1: the tiny policy may fail a check of its health
    return result_of(run)


def same(found, expected):
    for name, value in expected.items():
        assert found[name] == value, name


def test_a_stopped_run_goes_on_in_another_layout_to_the_same_hash(cache, tmp_path):
    length = ("--timesteps", "32k")
    whole = trained(words(1, 1, tmp_path / "whole", length), cache, tmp_path / "whole")
    run, port = tmp_path / "run", free_port()
    train = [*STRICT, *length, "--run-dir", str(run), "--heartbeat-seconds", "5"]
    with started([[*train, *joined(port, i)] for i in range(2)], cache) as processes:
        until(lambda: saved(run), processes[0])
        processes[1].send_signal(signal.SIGKILL)
        code, _, err = ended(processes[0])
    assert code == 69, err
    assert not (run / "summary.json").exists()
    same(trained(words(1, 4, run, length), cache, run), whole)
