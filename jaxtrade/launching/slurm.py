"""A batch script for SLURM: one task per GPU, which JAX detects by itself, and a requeue after exit
code 75.
"""

from __future__ import annotations

from jaxtrade.errors import PreemptedError
from jaxtrade.launching.job import GRACE_S, Job, checked

LINGER_S = 60  # how long srun lets tasks go on after the first has ended


def script(job: Job) -> str:
    """The text for `sbatch`. Raises ConfigError.

    All tasks of a node see all of its GPUs (`--gpu-bind=none`), because JAX itself gives task i the
    GPU i of its node (`jax/_src/clusters/slurm_cluster.py`); a task that saw only its own would
    look for one that is not there.
    """
    checked(job)
    tasks = max(1, job.gpus)
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={tasks}",
        f"--time={job.time}",
        f"--signal=TERM@{GRACE_S}",
        "--requeue",
        "--open-mode=append",
        f"--output={job.name}-%j.log",
    ]
    if job.gpus:
        options.insert(3, f"--gpus-per-node={job.gpus}")
    if job.partition is not None:
        options.append(f"--partition={job.partition}")
    bind = " --gpu-bind=none" if job.gpus else ""
    return (
        "\n".join(
            [
                "#!/bin/bash",
                "# Written by `jaxtrade launch slurm`. Start it with: sbatch FILE",
                *(f"#SBATCH {option}" for option in options),
                "",
                *job.setup,
                f"# Each task trains on one {'GPU' if job.gpus else 'share of the CPUs'}. A task "
                f"that has lost another one",
                f"# ends by itself; {LINGER_S} s after the first has ended, srun ends the rest.",
                f"srun --wait={LINGER_S}{bind} {job.shell}",
                "code=$?",
                f"# {PreemptedError.exit_code}: stopped by SIGTERM (preemption, or the end of its time) and saved.",
                f'if [ "$code" -eq {PreemptedError.exit_code} ]; then',
                '    scontrol requeue "$SLURM_JOB_ID"',
                "fi",
                'exit "$code"',
            ]
        )
        + "\n"
    )
