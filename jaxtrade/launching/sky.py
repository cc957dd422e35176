"""A task for SkyPilot, to be started as a managed job, which starts it again after a preemption."""

from __future__ import annotations

import shlex
from typing import Any

from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError, PreemptedError, ProcessLostError
from jaxtrade.launching.job import Job, checked

RECOVER = (
    PreemptedError.exit_code,
    ProcessLostError.exit_code,
)  # exit codes after which the job goes on elsewhere
BUCKETS = ("s3://", "gs://", "r2://", "oci://", "cos://", "https://")


def task(job: Job) -> str:
    """The YAML for `sky jobs launch FILE`. Raises ConfigError.

    SkyPilot runs the command once on each node, with all of its GPUs. A bucket (`claim`) holds the
    runs, because the machines and their disks go away. It is mounted with a cache (MOUNT_CACHED),
    since a run appends to its files, which a plain mount of a bucket refuses.
    """
    checked(job)
    if job.claim is None or not job.claim.startswith(BUCKETS):
        raise ConfigError(
            f"--claim {job.claim}: expected the bucket that holds the runs, such as s3://my-runs "
            f"({', '.join(BUCKETS)}...)"
        )
    resources: dict[str, Any] = {
        "job_recovery": {"max_restarts_on_errors": 3, "recover_on_exit_codes": list(RECOVER)}
    }
    if job.gpus:
        resources = {"accelerators": f"{job.gpu_kind}:{job.gpus}", "use_spot": True} | resources
    if job.image is not None:
        resources["image_id"] = f"docker:{job.image}"
    return dump_yaml(
        {
            "name": job.name,
            "num_nodes": job.nodes,
            "resources": resources,
            "file_mounts": {job.mount: {"source": job.claim, "mode": "MOUNT_CACHED"}},
            **({"setup": " && ".join(job.setup)} if job.setup else {}),
            "run": shlex.join(("jaxtrade", *job.of_node)),
        }
    )
