"""What is launched: a training command, and where it is to run. `command_of` makes the command fit
for restarts.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from string import Template
from typing import Any

from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError

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


def manifest(job: Job, engine: str) -> str:
    """The text for an engine of `TEMPLATES`. Raises ConfigError for a job that it would refuse."""
    pods = engine in ("jobset", "trainjob")
    checked(job, needs_image=pods, needs_claim=pods)
    if engine == "sky" and not (job.claim or "").startswith(BUCKETS):
        raise ConfigError(
            f"--claim {job.claim}: expected the bucket that holds the runs, such as s3://my-runs "
            f"({', '.join(BUCKETS)}...)"
        )
    values = {"nodes": job.nodes, "gpus": job.gpus or None, "with_gpus": "" if job.gpus else None}
    return _filled(TEMPLATES[engine], values | (_of_shell if engine == "slurm" else _of_yaml)(job))


def _of_shell(job: Job) -> dict[str, Any]:
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


def _of_yaml(job: Job) -> dict[str, Any]:
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


def _filled(name: str, values: Mapping[str, Any]) -> str:
    """A template with its values. A line with a value of None is left out, and a value of several
    lines is indented as its line.
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
class Job:
    """A training to launch.

    command: the words after `jaxtrade`, from `command_of`. name: of the job. nodes: machines. gpus:
        on each; 0 trains
    on CPUs. image: of the container; None where the engine needs none. time: limit as HH:MM:SS.
    partition: of SLURM.
    setup: shell lines that come first. claim: the volume claim (Kubernetes) or the bucket
        (SkyPilot) that holds the
    runs. mount: where it is mounted.
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
        """The command for an engine that starts one process on each node. A process alone uses one
        GPU unless it is told to use all."""
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
    """The words of a training command, with `--auto-resume`: engines run the same command again.

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


def checked(job: Job, needs_image: bool = False, needs_claim: bool = False) -> Job:
    """The job itself. needs_image, needs_claim: whether the engine runs containers, and on a named
    volume.

    Raises ConfigError for a value that the engine would refuse.
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
        if text is not None and not text.isprintable():
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
    if needs_image and job.image is None:
        raise ConfigError(
            "--image is missing: containers need one that holds jaxtrade (docs/distributed.md shows how "
            "to build it)"
        )
    if needs_claim and job.claim is None:
        raise ConfigError(
            "--claim is missing: name the volume that all pods share and that outlives them "
            "(docs/distributed.md)"
        )
    if (needs_claim or job.claim is not None) and not PurePosixPath(job.run_dir).is_relative_to(
        job.mount
    ):
        raise ConfigError(
            f"--run-dir {job.run_dir}: is not below {job.mount} (--mount), where the volume is; a run "
            "elsewhere would be lost with its machine"
        )
    return job
