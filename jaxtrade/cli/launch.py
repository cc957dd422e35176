"""`jaxtrade launch`: a training in several processes, here or on an engine that exists.

Imports no heavy library.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from jaxtrade.errors import ConfigError
from jaxtrade.launching import job
from jaxtrade.launching.job import LaunchJob, command_of, manifest

ENGINES = {
    "slurm": "print a batch script for SLURM's sbatch",
    "jobset": "print a JobSet for Kubernetes",
    "trainjob": "print a TrainJob for Kubeflow Trainer 2",
    "sky": "print a task for SkyPilot's managed jobs",
}
WORDS = "WORD* -> words  the training, after '--': train CONFIG --run-dir DIR ..."


JOB = """
    --print ! -> printed  print the manifest; starting it is left to the engine's own tools
    --name NAME [jaxtrade]  of the job (default: jaxtrade)
    --nodes N [1] : count  machines (default: 1)
    --gpus-per-node N [1] : whole  GPUs of each machine; 0 trains on CPUs (default: 1)
    """
# Engines -> flags that they alone have, in order.
OF_SOME = (
    (
        "slurm",
        """
        --time HH:MM:SS [24:00:00]  limit of each start; the job then goes on by itself (default:
            24:00:00)
        --partition NAME  partition of the cluster (default: the cluster's)
        """,
    ),
    ("jobset trainjob sky", "--image NAME  container image that holds jaxtrade"),
    ("jobset trainjob", "--claim NAME  volume claim for the runs, which all pods share"),
    ("sky", "--claim NAME  the bucket for the runs, such as s3://my-runs"),
    (
        "jobset trainjob sky",
        "--mount DIR [/runs]  where it is mounted; --run-dir must be below it (default: /runs)",
    ),
    ("sky", "--gpu-kind NAME [H100]  as SkyPilot calls it (default: H100)"),
    (
        "slurm sky",
        """
        --setup LINE ...  a shell line that comes first, e.g. 'source ~/venv/bin/activate'
            (repeatable)
        """,
    ),
)


LAUNCH = (
    "train in several processes: here, or by a manifest for an engine",
    "engine",
    {
        "local": (
            "start the processes on this machine, and stop all when one fails",
            """
            -n, --processes N [2] : count  how many (default: 2)
            --devices-per-process K : count  devices of each: its own GPUs, or host devices on a CPU
                (default: 1)
            """,
            WORDS,
        ),
        **{
            name: (about, JOB, *(text for names, text in OF_SOME if name in names.split()), WORDS)
            for name, about in ENGINES.items()
        },
    },
)


def run(args: argparse.Namespace, parse: Callable[[tuple[str, ...]], object]) -> int:
    """Handle `launch`. Return the exit code. Raises ConfigError.

    parse: parses a command as the launched process will, so that a mistake in it is found here.
    """
    words = tuple(args.words)
    if args.engine == "local":
        if not words:
            raise ConfigError(
                "nothing to launch; write the command after '--', as in: jaxtrade launch local -n 2 -- "
                "train quickstart"
            )
        parse(words)
        return job.launch(words, args.processes, args.devices_per_process)
    command = command_of(words)
    parse(command)
    print(manifest(job_of(args, command), args.engine), end="")
    return 0


def job_of(args: argparse.Namespace, command: tuple[str, ...]) -> LaunchJob:
    """Make the job that the flags of an engine describe.

    Flags that the engine lacks keep their defaults.
    """
    given = vars(args)
    named = {
        "name": args.name,
        "nodes": args.nodes,
        "gpus": args.gpus_per_node,
        "setup": tuple(given.get("setup", ())),
    }
    others = ("image", "time", "partition", "claim", "mount", "gpu_kind")
    return LaunchJob(
        command, **named, **{name: given[name] for name in others if given.get(name) is not None}
    )
