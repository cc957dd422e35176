"""Flags of a run that several processes train together. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from jaxtrade.cli.flags import count, whole
from jaxtrade.cli.usage import add_flags
from jaxtrade.config import RunConfig
from jaxtrade.runs import processes
from jaxtrade.runs.processes import HEARTBEAT_S, JOIN_S, Given, Layout, check_config, layout_of
from jaxtrade.training.together import process_count

if TYPE_CHECKING:
    from jaxtrade.progress.screen import Screen

ENGINES = "SLURM, Open MPI, Kubernetes, Kubeflow Trainer and SkyPilot"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name the processes of a run."""
    add_flags(
        parser,
        """
        --auto-resume  continue the run in --run-dir if there is one, else start it; the same
            command again and again is right
        """,
    )
    group = process_options(parser, JOIN_S)
    add_flags(
        group,
        f"""
        --heartbeat-seconds S [{HEARTBEAT_S}]  silence after which a process counts as dead, and the others end
            (default: {HEARTBEAT_S})
        """,
        heartbeat_seconds=count,
    )


def process_options(parser: argparse.ArgumentParser, join_seconds: int) -> Any:
    """Add the flags that name the processes -> their group. join_seconds: how long they wait for
    each other.
    """
    group = parser.add_argument_group("several processes (docs/distributed.md)")
    add_flags(
        group,
        f"""
        --coordinator HOST:PORT  where process 0 listens, for runs of several processes (found by
            itself on {ENGINES})
        --num-processes N  how many processes train this run together; 1: this one alone, whatever
            the environment says
        --process-id I  the number of this process, from 0; process 0 writes the run's folder
        --join-seconds S [{join_seconds}]  how long processes wait for each other at the start (default: {join_seconds})
        """,
        num_processes=count,
        process_id=whole,
        join_seconds=count,
    )
    return group


def given(args: argparse.Namespace) -> Given:
    """The flags that name the processes."""
    return Given(args.coordinator, args.num_processes, args.process_id)


def layout(args: argparse.Namespace, config: RunConfig) -> Layout:
    """The processes that train a run. Raises ConfigError if flags or environment contradict each
    other, or if several processes cannot train this configuration."""
    found = layout_of(given(args), os.environ)
    check_config(config, found)
    return found


def join(args: argparse.Namespace, found: Layout, screen: Screen) -> None:
    """Join the other processes, if there are any and this one has not joined them yet.

    Raises ProcessLostError, ConfigError.
    """
    if found.alone or process_count() > 1:
        return
    screen.phase("joining", str(found))
    _results_alone()
    processes.join(found, args.heartbeat_seconds, args.join_seconds)


def _results_alone() -> None:
    """Keep standard output for results: what a library writes to its file (gloo prints which
    processes it has met) goes to standard error from now on."""
    if sys.stdout is not sys.__stdout__:  # inside another program, which looks after its output
        return
    sys.stdout.flush()
    sys.stdout = os.fdopen(
        os.dup(sys.stdout.fileno()),
        "w",
        buffering=1,
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
    )
    os.dup2(sys.stderr.fileno(), 1)
