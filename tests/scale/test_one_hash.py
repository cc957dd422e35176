"""Strict sums: a run has one hash on any number of devices and processes, also when it goes on in
another layout.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def words(processes: int, devices: int, run: Path, length: Sequence[str] = SHORT) -> list[str]:
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


def trained(command: list[str], cache: Path, run: Path) -> dict[str, Any]:
    with started([command], cache) as [process]:
        code, _, err = ended(process)
    assert code in (0, 1), err  # 1: the tiny policy may fail a check of its health
    return result_of(run)


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        assert found[name] == value, name


def test_one_hash_in_every_layout(cache: Path, tmp_path: Path) -> None:
    """Processes x devices of each, at the size of the quickstart: its products are large enough to
    be divided over threads, of which JAX makes one at least for every device."""
    layouts = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (4, 1)]
    found = {
        layout: trained(
            words(*layout, run := tmp_path / "{}x{}".format(*layout), LARGE), cache, run
        )
        for layout in layouts
    }
    for layout, result in found.items():
        same(result, found[1, 1])
        assert result["updates"] == 2, layout


@pytest.mark.parametrize(
    "received", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_a_stopped_run_goes_on_in_another_layout_to_the_same_hash(
    received: signal.Signals, cache: Path, tmp_path: Path
) -> None:
    length = ("--timesteps", "32k")
    whole = trained(words(1, 1, tmp_path / "whole", length), cache, tmp_path / "whole")
    run, port = tmp_path / "run", free_port()
    train = [*STRICT, *length, "--run-dir", str(run), "--heartbeat-seconds", "5"]
    with started([[*train, *joined(port, i)] for i in range(2)], cache) as processes:
        until(lambda: saved(run), processes[0])
        processes[1].send_signal(received)
        code, _, err = ended(processes[0])
    assert code == (75 if received == signal.SIGTERM else 69), err
    assert not (run / "summary.json").exists()
    same(trained(words(1, 4, run, length), cache, run), whole)


@pytest.mark.long
def test_an_advised_run_has_one_hash_too(cache: Path, tmp_path: Path) -> None:
    """Advice from a table, and the trust in it that the learner measures, on one device and divided
    over four.
    """
    market = [
        word for override in TRAIN if override.startswith("data.") for word in ("--set", override)
    ]
    table = tmp_path / "advice.npz"
    with started(
        [
            [
                "advise",
                "precompute",
                "advised",
                "--advisor",
                "mock:skilled:0.55",
                *market,
                "--out",
                str(table),
            ]
        ],
        cache,
    ) as [process]:
        code, _, err = ended(process)
    assert code == 0, err
    advised = ("advised", "--set", f"advisor.kind=table:{table}", "--set", "advisor.fusion=trust")
    found = {
        devices: trained(
            ["train", *words(1, devices, run := tmp_path / str(devices))[1:], *advised], cache, run
        )
        for devices in (1, 4)
    }
    rows = [
        json.loads(line)
        for line in (tmp_path / "1" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert all(0 < row["trust"] < 2 and row["advice_share"] > 0.9 for row in rows), rows[0]
    same(found[4], found[1])
