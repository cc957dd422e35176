"""What is launched: a training command, and where it is to run.

It runs on an engine or in several processes of this machine. `command_of` makes the command fit for
restarts.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from string import Template
from typing import IO, Any

from jaxtrade import interrupt
from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError, InterruptedRunError, PreemptedError, ProcessLostError

# Manifests for engines: the text files in `templates`, with the values of a job.
#
# `slurm.sh`: one task per GPU, requeued after exit code 75. All tasks of a node see all of its
# GPUs (`--gpu-bind=none`), because JAX itself gives task i the GPU i of its node
# (`jax/_src/clusters/slurm_cluster.py`).
#
# `jobset.yaml`, `trainjob.yaml`: one pod is one process, with all GPUs of its node; the folder of
# runs is on a volume claim that all pods share. The headless service of a JobSet gives process 0
# a host name. If any pod fails, all start again, except after the exit codes that a restart would
# only repeat. Trainer's runtime `jax-distributed` sets the `JAX_` variables itself.
#
# `sky.yaml`: a managed job; SkyPilot runs the command once on each node, with all of its GPUs. A
# bucket holds the runs, because machines and their disks go away. It is mounted with a cache,
# since a run appends to its files, which a plain mount of a bucket refuses.

TEMPLATES = {
    "slurm": "slurm.sh",
    "jobset": "jobset.yaml",
    "trainjob": "trainjob.yaml",
    "sky": "sky.yaml",
}
BUCKETS = ("s3://", "gs://", "r2://", "oci://", "cos://", "https://")


def manifest(job: LaunchJob, engine: str) -> str:
    """Render the manifest for an engine of `TEMPLATES`.

    Raises ConfigError for a job that the engine would refuse.
    """
    pods = engine in ("jobset", "trainjob")
    check_job(job, needs_image=pods, needs_claim=pods)
    if engine == "sky" and not (job.claim or "").startswith(BUCKETS):
        raise ConfigError(
            f"--claim {job.claim}: expected the bucket that holds the runs, such as s3://my-runs "
            f"({', '.join(BUCKETS)}...)"
        )
    values = {"nodes": job.nodes, "gpus": job.gpus or None, "with_gpus": "" if job.gpus else None}
    return _fill_template(
        TEMPLATES[engine], values | (_of_shell if engine == "slurm" else _of_yaml)(job)
    )


def _of_shell(job: LaunchJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "tasks": max(1, job.gpus),
        "time": job.time,
        "partition": job.partition,
        "setup": "\n".join(job.setup) or None,
        "share": "GPU" if job.gpus else "share of the CPUs",
        "bind": " --gpu-bind=none" if job.gpus else "",
        "shell": job.shell,
    }


def _of_yaml(job: LaunchJob) -> dict[str, Any]:
    words = ["jaxtrade", *job.of_node]
    single = {
        "name": job.name,
        "image": job.image,
        "image_id": job.image and f"docker:{job.image}",
        "claim": job.claim,
        "mount": job.mount,
        "accelerators": f"{job.gpu_kind}:{job.gpus}" if job.gpus else None,
    }
    return {
        **{name: value and dump_yaml([value])[2:].rstrip() for name, value in single.items()},
        "host": f"{job.name}-worker-0-0.{job.name}",
        "command": dump_yaml(words).rstrip(),
        "setup": dump_yaml({"setup": " && ".join(job.setup)}).rstrip() if job.setup else None,
        "run": dump_yaml({"run": shlex.join(words)}).rstrip(),
    }


def _fill_template(name: str, values: Mapping[str, Any]) -> str:
    """Fill a template with values.

    A line with a value of None is left out, and a value of several lines is indented as its line.
    """
    made = []
    for line in (
        (files("jaxtrade.launching") / "templates" / name).read_text(encoding="utf-8").splitlines()
    ):
        template = Template(line.lstrip())
        if all(values[each] is not None for each in template.get_identifiers()):
            made.append(textwrap.indent(template.substitute(values), line[: -len(line.lstrip())]))
    return "\n".join(made) + "\n"


NAME = re.compile(
    r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
)  # a DNS label, with room for what the engines add


@dataclass(frozen=True)
class LaunchJob:
    """A training to launch.

    command: the words after `jaxtrade`, from `command_of`.
    name: of the job.
    nodes: machines.
    gpus: on each; 0 trains on CPUs.
    image: of the container; None where the engine needs none.
    time: limit as HH:MM:SS.
    partition: of SLURM.
    setup: shell lines that come first.
    claim: the volume claim (Kubernetes) or the bucket (SkyPilot) that holds the runs.
    mount: where it is mounted.
    """

    command: tuple[str, ...]
    name: str = "jaxtrade"
    nodes: int = 1
    gpus: int = 1
    gpu_kind: str = "H100"
    image: str | None = None
    time: str = "24:00:00"
    partition: str | None = None
    setup: tuple[str, ...] = ()
    claim: str | None = None
    mount: str = "/runs"

    @property
    def run_dir(self) -> str:
        """The run's folder, as the command names it."""
        return self.command[self.command.index("--run-dir") + 1]

    @property
    def of_node(self) -> tuple[str, ...]:
        """The command for an engine that starts one process on each node.

        A process alone uses one GPU unless it is told to use all.
        """
        told = any(word == "--devices" or "parallel.devices" in word for word in self.command)
        return (
            self.command
            if told or self.nodes > 1 or self.gpus < 2
            else (*self.command, "--devices", "all")
        )

    @property
    def shell(self) -> str:
        """The command as a POSIX shell reads it."""
        return shlex.join(("jaxtrade", *self.command))


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a training command with `--auto-resume`: engines run it again as it is.

    Raises ConfigError for another command than `train`, without `--run-dir`, or with a flag that a
    restart contradicts.
    """
    if not words or words[0] != "train":
        raise ConfigError(
            f"expected a training after '--', as in '-- train CONFIG --run-dir DIR', found "
            f"'{' '.join(words)}'"
        )
    split = [
        part
        for word in words
        for part in (
            word.split("=", 1)
            if word.startswith("--") and "=" in word and not word.startswith("--set")
            else [word]
        )
    ]
    if "--run-dir" not in split[:-1]:
        raise ConfigError(
            "the folder of the run is missing; add --run-dir DIR to the training, on storage that all "
            "machines share"
        )
    for flag in (
        "--resume",
        "--continue",
        "--name",
        "--coordinator",
        "--num-processes",
        "--process-id",
    ):
        if flag in split:
            raise ConfigError(
                f"{flag}: the launched command starts and continues its run by --auto-resume, in "
                "--run-dir, and the engine numbers the processes; leave it out"
            )
    return tuple(split if "--auto-resume" in split else [*split, "--auto-resume"])


def check_job(job: LaunchJob, needs_image: bool = False, needs_claim: bool = False) -> LaunchJob:
    """Return the job. Raises ConfigError for a value that the engine would refuse.

    needs_image, needs_claim: whether the engine runs containers, and on a named volume.
    """
    for flag, text in (
        ("--name", job.name),
        ("--time", job.time),
        ("--partition", job.partition),
        ("--image", job.image),
        ("--claim", job.claim),
        ("--mount", job.mount),
        ("--gpu-kind", job.gpu_kind),
        *(("--setup", line) for line in job.setup),
        *(("the training", word) for word in job.command),
    ):
        if text and not text.isprintable():
            raise ConfigError(
                f"{flag} {text!r}: holds a line break or another character that cannot be printed, which "
                "would add a line of its own to the manifest"
            )
    if job.partition is not None and not re.fullmatch(r"[A-Za-z0-9_.,-]+", job.partition):
        raise ConfigError(
            f"--partition {job.partition}: expected its name, or several with commas in between"
        )
    if not NAME.fullmatch(job.name):
        raise ConfigError(
            f"--name {job.name}: expected lower-case letters, digits and '-', at most 40, the first a "
            "letter"
        )
    if not re.fullmatch(r"[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]", job.time):
        raise ConfigError(f"--time {job.time}: expected hours, minutes and seconds, as in 24:00:00")
    if needs_image and not job.image:
        raise ConfigError(
            "--image is missing: containers need one that holds jaxtrade (docs/scale.md shows how "
            "to build it)"
        )
    if needs_claim and not job.claim:
        raise ConfigError(
            "--claim is missing: name the volume that all pods share and that outlives them "
            "(docs/scale.md)"
        )
    if (needs_claim or job.claim) and not PurePosixPath(job.run_dir).is_relative_to(job.mount):
        raise ConfigError(
            f"--run-dir {job.run_dir}: is not below {job.mount} (--mount), where the volume is; a run "
            "elsewhere would be lost with its machine"
        )
    return job


# Several processes of one run on this machine: start them, show their lines, stop all when one
# fails.

PATIENCE_S = 10.0  # how long the others may take to end by themselves after one has failed
POLL_S = 0.05
TOGETHER = (
    PreemptedError.exit_code,
    InterruptedRunError.exit_code,
)  # all processes end with it, some a little later


def environment(
    base: Mapping[str, str], index: int, count: int, port: int, devices: int | None
) -> dict[str, str]:
    """Return the environment of process `index` of `count`, which meet at `port` of this machine.

    devices: how many each process computes on: cores' worth of host devices on a CPU, or its own
        GPUs, counted from index * devices. None: one host device, or one GPU each.
    """
    each = devices or 1
    own = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
        "JAX_LOCAL_DEVICE_IDS": ",".join(str(index * each + i) for i in range(each)),
    }
    if devices:
        own["JAX_NUM_CPU_DEVICES"] = str(devices)
    return dict(base) | own


def free_port() -> int:
    """Find a port of this machine on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def combine_exit_codes(codes: Sequence[int]) -> int:
    """Return the exit code of the whole; 0 if no process failed.

    codes: those that are not 0, in the order in which the processes ended. The first that is a
        cause counts: that a process has lost another one is a consequence.
    """
    causes = [code for code in codes if code != ProcessLostError.exit_code]
    return next(iter([*causes, *codes]), 0)


def launch(
    words: Sequence[str],
    count: int,
    devices: int | None = None,
) -> int:
    """Run `jaxtrade WORDS` in `count` processes of this machine. Return the exit code (`combine_exit_codes`).

    Each line of output gets its process in front: `[0] `. SIGINT and SIGTERM go to all processes; a
    second one kills them. When one fails, the others have `PATIENCE_S` to end too.
    """
    port = free_port()
    processes: list[subprocess.Popen[bytes]] = []
    with interrupt.cleanup(
        lambda: [interrupt.kill(process) for process in processes]
    ):  # a signal before the last one
        for i in range(count):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "jaxtrade", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env=environment(os.environ, i, count, port, devices),
                )
            )
        readers = [
            reader for i, process in enumerate(processes) for reader in _readers(f"[{i}] ", process)
        ]
        try:
            with _forward_signals(processes):
                return _wait_for_all(processes)
        finally:
            for process in processes:
                interrupt.kill(process)
            for reader in readers:
                reader.join(timeout=PATIENCE_S)


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, and return the exit code.

    After a failure, those that go on for too long are killed.
    """
    running, failed, deadline = list(processes), list[int](), float("inf")
    while running:
        time.sleep(POLL_S)
        ended = [process for process in running if process.poll() is not None]
        running = [process for process in running if process not in ended]
        codes = [process.returncode for process in ended if process.returncode]
        # As a shell reports them: 128 + n for a process that died of signal n.
        failed += [code if code > 0 else 128 - code for code in codes]
        for process in ended:
            if process.returncode < 0:  # it could say nothing itself
                print(
                    f"process {processes.index(process)} was ended by {signal.Signals(-process.returncode).name}; "
                    "the others cannot go on without it",
                    file=sys.stderr,
                    flush=True,
                )
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + PATIENCE_S * (3 if failed[0] in TOGETHER else 1)
        if time.monotonic() > deadline:
            for process in running:
                interrupt.kill(process)
            return combine_exit_codes(failed)
    return combine_exit_codes(failed)


@contextmanager
def _forward_signals(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Forward SIGINT and SIGTERM to the processes inside this block. A second one kills them."""
    seen: list[int] = []

    def forward(number: int, frame: Any) -> None:
        del frame
        for process in processes:
            if seen:
                interrupt.kill(process)
            elif process.poll() is None:
                process.send_signal(number)
        seen.append(number)

    interrupt.release()
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _readers(prefix: str, process: subprocess.Popen[bytes]) -> list[threading.Thread]:
    """Start threads that copy a process's output, line by line, with a prefix."""
    pairs = ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    threads = [
        threading.Thread(target=_copy, args=(prefix, source, sink), daemon=True)
        for source, sink in pairs
    ]
    for thread in threads:
        thread.start()
    return threads


def _copy(prefix: str, source: IO[bytes] | None, sink: IO[str]) -> None:
    assert source is not None
    for line in source:
        sink.write(
            f"{prefix}{line.decode('utf-8', 'replace').rstrip()}\n"
        )  # one call, so that lines stay whole
        sink.flush()
