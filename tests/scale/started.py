"""Start processes of one run for tests, wait for what they do, and compare what they leave."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

from tests.children import sets

LIMIT_S = (
    240.0  # a process that takes longer hangs; it is then killed, because SIGTERM may not reach it
)
LIGHT = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
# An update takes milliseconds, and every chunk is saved, so a signal finds the run at work.
TRAIN = (
    "train",
    "--auto-resume",
    "--quiet",
    "--timesteps",
    "32k",
    *sets(
        "data.source=synthetic",
        "data.synthetic_sessions=6",
        "network.hidden=[8]",
        "rollout.num_envs=8",
        "rollout.num_steps=16",
        "ppo.num_minibatches=2",
        "train.chunk_updates=5",
        "train.checkpoint_every=1",
        "train.tensorboard=false",
        "monitor.on=false",
        "evaluation.policy_samples=1",
    ),
)
STRICT = (*TRAIN, "--set", "parallel.reduce=strict")
TIMES = (
    "seconds",
    "steps_per_second",
    "eta_seconds",
)  # columns of a row that no two processes share


def free_port():
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def joined(port, index, count=2):
    """The flags of process `index`."""
    return (
        "--coordinator",
        f"127.0.0.1:{port}",
        "--num-processes",
        str(count),
        "--process-id",
        str(index),
    )


@contextmanager
def started(commands, cache, env=None):
    """Start `jaxtrade` once for each command, and kill what is left of them at the end.

    cache: of compiled programs, so that only the first test compiles. env: further variables of
        each process.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "SLURM_", "OMPI_", "SKYPILOT_", "NPROC"))
    }
    common = clean | LIGHT | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "jaxtrade", *words],
            env=common | dict(own),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for words, own in zip(commands, env or [{}] * len(commands), strict=True)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def ended(process, seconds=LIMIT_S):
    """(exit code, standard output, standard error) of a process. Raises TimeoutExpired if it goes
    on for longer.
    """
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def until(condition, process, seconds=LIMIT_S):
    """Wait for something that a process does. Fails if the process ends first."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended first, with {process.returncode}"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def saved(run):
    """Whether the run has saved a checkpoint."""
    return any((run / "checkpoints").glob("update-*"))


def result_of(run):
    """What must be equal for two trainings: digests of the policy and of the rows of metrics
    without their times.
    """
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return {
        "updates": len(rows),
        "policy": hashlib.sha256((run / "policy" / "policy.npz").read_bytes()).hexdigest(),
        "rows": hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest(),
    }


def trained(command, cache, run):
    """The result of a command that trains to the end."""
    with started([command], cache) as [process]:
        code, out, err = ended(process)
    assert code in (0, 1), err  # 1: the tiny policy may fail a check of its health
    assert "[1] " not in out  # process 0 alone prints the result
    return result_of(run)
