"""Manifests for engines: the text files in `templates`, with the values of a job.

`slurm.sh`: one task per GPU, requeued after exit code 75. All tasks of a node see all of its GPUs
(`--gpu-bind=none`), because JAX itself gives task i the GPU i of its node
(`jax/_src/clusters/slurm_cluster.py`).

`jobset.yaml`, `trainjob.yaml`: one pod is one process, with all GPUs of its node; the folder of
runs is on a volume claim that all pods share. The headless service of a JobSet gives process 0 a
host name. If any pod fails, all start again, except after the exit codes that a restart would only
repeat. Trainer's runtime `jax-distributed` sets the `JAX_` variables itself.

`sky.yaml`: a managed job; SkyPilot runs the command once on each node, with all of its GPUs. A
bucket holds the runs, because machines and their disks go away. It is mounted with a cache, since a
run appends to its files, which a plain mount of a bucket refuses.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError
from jaxtrade.launching.job import Job, checked

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
