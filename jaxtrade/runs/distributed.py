"""The processes of one run: how many there are, which one this is, where process 0 listens.

Also how they join and leave.

`find_process_group` is a pure function of flags and environment variables, so a contradiction is
reported before JAX loads. `join` then joins the processes. The first of these sources that says
something counts:

1. the flags `--coordinator`, `--num-processes`, `--process-id`;
2. `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID`: Kubeflow Trainer sets them, and
   JAX reads only the first; for the last, `JOB_COMPLETION_INDEX` stands in, which Kubernetes sets
   in pods of indexed jobs;
3. `SKYPILOT_NODE_RANK`, `SKYPILOT_NUM_NODES`, `SKYPILOT_NODE_IPS`;
4. what JAX itself detects: SLURM, Open MPI, Cloud TPU, and Kubernetes if the package `kubernetes` is installed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from jaxtrade import interrupt
from jaxtrade.config import RunConfig
from jaxtrade.errors import (
    ConfigError,
    DivergedError,
    InterruptedRunError,
    JaxtradeError,
    PreemptedError,
    ProcessLostError,
)
from jaxtrade.runs.agents import groups_of
from jaxtrade.training import multiprocess

PORT = 55527  # where process 0 listens if nothing names a port; JAX chooses the same on Kubernetes
HEARTBEAT_S = 15  # silence after which a process counts as dead; JAX's own default is 100
JOIN_S = 300  # how long processes wait for each other at the start


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as this one sees them.

    source: who said so, for messages.
    process_id: of this process, from 0.
    num_processes: None if only JAX can ask (Kubernetes).
    coordinator: `host:port` of process 0; None if JAX finds it.
    method: the name under which JAX detects the cluster; None if it need not, or has no name
        for it.
    """

    source: str
    process_id: int = 0
    num_processes: int | None = 1
    coordinator: str | None = None
    method: str | None = None

    @property
    def alone(self) -> bool:
        """Whether this process trains by itself."""
        return self.num_processes == 1

    def __str__(self) -> str:
        if self.alone:
            return f"one process ({self.source})"
        count = "several" if self.num_processes is None else str(self.num_processes)
        return (
            f"process {self.process_id} of {count}, coordinator {self.coordinator or 'found by JAX'} "
            f"({self.source})"
        )


ALONE = ProcessGroup("nothing says otherwise")


@dataclass(frozen=True)
class ProcessFlags:
    """The flags `--coordinator`, `--num-processes` and `--process-id`. None: not given."""

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None


def find_process_group(
    given: ProcessFlags, env: Mapping[str, str], installed: Callable[[str], bool] | None = None
) -> ProcessGroup:
    """Find the layout that flags and environment describe. `ALONE` if they describe none.

    installed: whether a package is installed; default: looks for it.

    Raises ConfigError if values contradict each other or are incomplete.
    """
    has = installed or (lambda name: importlib.util.find_spec(name) is not None)
    flags = {
        "--coordinator": given.coordinator,
        "--num-processes": given.num_processes,
        "--process-id": given.process_id,
    }
    return (
        _explicit("flags", flags)
        or _from_jax_variables(env)
        or _from_skypilot(env)
        or _detect(env, has)
        or ALONE
    )


def _from_jax_variables(env: Mapping[str, str]) -> ProcessGroup | None:
    count, own = _number(env, "JAX_NUM_PROCESSES"), _number(env, "JAX_PROCESS_ID")
    if (
        count is None and own is None
    ):  # the address alone is JAX's own variable: whoever set it joins by other means
        return None
    name = "JAX_PROCESS_ID"
    if own is None and (index := _number(env, "JOB_COMPLETION_INDEX")) is not None:
        own, name = index, "JOB_COMPLETION_INDEX"
    return _explicit(
        "JAX_* variables",
        {
            "JAX_COORDINATOR_ADDRESS": env.get("JAX_COORDINATOR_ADDRESS") or None,
            "JAX_NUM_PROCESSES": count,
            name: own,
        },
    )


def _from_skypilot(env: Mapping[str, str]) -> ProcessGroup | None:
    count, rank = _number(env, "SKYPILOT_NUM_NODES"), _number(env, "SKYPILOT_NODE_RANK")
    if count is None or count == 1:
        return None
    addresses = env.get("SKYPILOT_NODE_IPS", "").split()
    if len(addresses) != count:
        raise ConfigError(
            f"SKYPILOT_NUM_NODES={count}, but SKYPILOT_NODE_IPS names {len(addresses)} addresses; "
            "expected one a node"
        )
    port = env.get("JAX_COORDINATOR_PORT") or str(PORT)
    return _explicit(
        "SkyPilot",
        {
            "SKYPILOT_NODE_IPS": f"{addresses[0]}:{port}",
            "SKYPILOT_NUM_NODES": count,
            "SKYPILOT_NODE_RANK": rank,
        },
    )


def _explicit(source: str, values: Mapping[str, str | int | None]) -> ProcessGroup | None:
    """Make the layout of three named values: coordinator, number and id, in this order.

    None if all of them are absent.

    Raises ConfigError, which names the flag or variable at fault.
    """
    (at, coordinator), (of, count), (by, own) = values.items()
    if coordinator is None and count is None and own is None:
        return None
    if count is not None and int(count) < 1:
        raise ConfigError(f"{of}={count}: expected at least 1 process")
    if count == 1 and not own:  # the coordinator of one process is nobody's business
        return ProcessGroup(source)
    missing = [name for name, value in values.items() if value is None]
    if missing:
        given = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
        raise ConfigError(
            f"{given}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; several "
            f"processes need all of {at}, {of} and {by}, one process needs none"
        )
    assert count is not None
    assert own is not None
    if not 0 <= int(own) < int(count):
        raise ConfigError(
            f"{by}={own}: with {of}={count} expected a number from 0 to {int(count) - 1}"
        )
    return ProcessGroup(source, int(own), int(count), checked_address(str(coordinator), at))


def checked_address(text: str, name: str) -> str:
    """Check and return `host:port`. Raises ConfigError for any other text.

    name: the flag or variable that says it.
    """
    host, _, port = text.rpartition(":")
    if (
        not host
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or not 0 < int(port) < 65536
        or "/" in host
    ):
        raise ConfigError(
            f"{name}={text}: expected HOST:PORT of process 0, such as 10.0.0.1:{PORT}"
        )
    return text


def _detect(env: Mapping[str, str], has: Callable[[str], bool]) -> ProcessGroup | None:
    """Detect the layout that JAX finds by itself (`jax/_src/clusters`).

    Its variables must be present with more than one task.
    """
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
    if all(name in env for name in slurm):
        return _read_task_layout("SLURM", env, "SLURM_NTASKS", "SLURM_PROCID", "slurm")
    if "OMPI_MCA_orte_hnp_uri" in env:
        return _read_task_layout(
            "Open MPI", env, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "ompi"
        )
    if len(hosts := env.get("TPU_WORKER_HOSTNAMES", "").split(",")) > 1 and "TPU_WORKER_ID" in env:
        slices = _number(env, "MEGASCALE_NUM_SLICES") or 1
        own = (_number(env, "MEGASCALE_SLICE_ID") or 0) * len(hosts) + (
            _number(env, "TPU_WORKER_ID") or 0
        )
        return ProcessGroup(
            "Cloud TPU", own, len(hosts) * slices
        )  # the two kinds of TPU hosts share one name in JAX
    if "KUBERNETES_SERVICE_HOST" in env and "JOB_COMPLETION_INDEX" in env and has("kubernetes"):
        return ProcessGroup("Kubernetes", _number(env, "JOB_COMPLETION_INDEX") or 0, None)
    return None


def _read_task_layout(
    source: str, env: Mapping[str, str], count: str, own: str, method: str
) -> ProcessGroup | None:
    """Read a layout whose coordinator JAX finds. None with one task. Raises ConfigError."""
    tasks, task = _number(env, count), _number(env, own)
    if tasks is None or tasks <= 1:
        return None
    if task is None or task >= tasks:
        raise ConfigError(
            f"{own}={env.get(own)}: with {count}={tasks} expected a number from 0 to {tasks - 1}"
        )
    return ProcessGroup(source, task, tasks, None, method)


def _number(env: Mapping[str, str], name: str) -> int | None:
    """Read a whole number of at least 0; None if the variable is absent or empty.

    Raises ConfigError for other text.
    """
    text = env.get(name)
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ConfigError(f"{name}={text}: expected a whole number of at least 0")
    return int(text)


def find_joined() -> ProcessGroup:
    """Find the processes that this one has joined already.

    It did so by itself or by `jax.distributed.initialize` of its caller.
    """
    return ProcessGroup("joined before", multiprocess.process_index(), multiprocess.process_count())


def check_config(config: RunConfig, layout: ProcessGroup) -> None:
    """Check that several processes can train a configuration. One process can train all of them.

    Raises ConfigError for what processes would do differently: they time sizes, and ask advisors,
    each by itself.
    """
    if layout.alone:
        return
    if config.rollout.auto:
        raise ConfigError(
            f"rollout.num_envs=auto: this is {layout}, and each process would measure another size; give "
            "a number (--envs N), for example one that a single process has found"
        )
    if (config.lists_agents and len(groups_of(config)) > 1) or config.sweep.optuna:
        raise ConfigError(
            f"sweep: several programs, one after the other, and this is {layout}: start each of them by "
            "itself, or sweep keys that one program can hold (docs/agents.md)"
        )
    if isinstance(config.parallel.devices, int) and config.parallel.devices % (
        layout.num_processes or 1
    ):
        raise ConfigError(
            f"parallel.devices={config.parallel.devices}: this is {layout}, and each of them brings the "
            "same number of devices; set parallel.devices=all, or the number of all of their devices"
        )
    if config.advisor.on:
        raise ConfigError(
            f"advisor.kind={config.advisor.kind}: an advisor serves a run of one process, and this is "
            f"{layout}; set advisor.kind=off, or train in one process (--num-processes 1)"
        )


# Join the processes of a run, and leave them: with one clear line if another one has died.
#
# JAX ends a process from a thread of its own (`LOG(FATAL)`, then SIGABRT) when another one stops
# answering, after `HEARTBEAT_S` of silence, or at once if it was process 0. Its Python callback
# for that moment cannot be used: in JAX 0.10.2 it ends in `std::bad_cast`. So a handler of SIGABRT
# prints the line, in the thread that aborts; a handler of Python's own would never run, since the
# main thread may be deep in a program. Where a collective fails first, as with gloo on CPUs,
# Python gets an exception, which `is_lost` recognises. The two may come at once, in two threads, so
# each line is written as the last one of the process (`say`).

LEAVE_S = 5.0  # how long a process that ends with an error waits for the others to end too
# All processes stop together with these exit codes, and process 0 may still be saving.
AGREED, LONG_S = (
    (PreemptedError.exit_code, InterruptedRunError.exit_code, DivergedError.exit_code),
    600.0,
)
SHUTDOWN_S = 60  # how long JAX waits at the end for all processes
AGAIN = "start all processes again with the same command; with --auto-resume it goes on from the last checkpoint"
# What a collective says whose partner is gone (gloo on CPUs, NCCL on GPUs, JAX's coordination
# service).
_GONE = re.compile(
    r"[Gg]loo .*(Connection|closed|timed out|timeout)|ncclRemoteError|NCCL.*(remote|abort)|"
    r"coordination service|heartbeat|Socket closed",
    re.DOTALL,
)
_HANDLERS: list[Any] = []  # ctypes frees a handler that nothing holds
_NOT_MET = (
    "the processes did not meet within {timeout} s. Check that all of them were started, that their number and "
    "the coordinator's address are the same everywhere, that process 0 runs at that address, and that no "
    "firewall or proxy variable is in between"
)


def join(layout: ProcessGroup, heartbeat: int = HEARTBEAT_S, timeout: int = JOIN_S) -> None:
    """Join the other processes of the layout. Does nothing for one process.

    Call this before JAX uses a device.

    heartbeat: seconds of silence after which a process counts as dead.
    timeout: seconds to wait for the others.

    If they do not meet in time, JAX ends the process, which then reports it and has the exit code
    of ProcessLostError. Raises ConfigError if JAX finds no cluster, runs already, or cannot listen
    at the coordinator's address.
    """
    if layout.alone:
        return
    import jax

    jax.config.update(
        "jax_enable_preemption_service", False
    )  # it swallows SIGTERM, which our loop handles itself
    named = (
        {}
        if layout.coordinator is None
        else {
            "coordinator_address": layout.coordinator,
            "num_processes": layout.num_processes,
            "process_id": layout.process_id,
            "cluster_detection_method": "deactivate",
        }
    )
    if layout.coordinator is None and layout.method is not None:
        named["cluster_detection_method"] = layout.method
    _say_when_aborted(f"{layout}: {_NOT_MET.format(timeout=timeout)}")
    try:
        jax.distributed.initialize(
            **named,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=SHUTDOWN_S,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise _not_joined(layout, error) from error
    _say_when_aborted(
        f"process {multiprocess.process_index()} of {multiprocess.process_count()}: JAX has ended this "
        f"process, most likely because another process of the run has died (its lines above say which); {AGAIN}"
    )


def _not_joined(layout: ProcessGroup, error: Exception) -> ConfigError:
    """Make the error of a process that could not join the others."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "start RPC server" in first:
        return ConfigError(
            f"{layout}: process 0 cannot listen at that port ({first}); choose another one, which "
            "nothing else uses"
        )
    return ConfigError(
        f"{layout}: JAX could not join the processes ({first}); name them by --coordinator HOST:PORT, "
        "--num-processes N and --process-id I, or train alone with --num-processes 1"
    )


def say(line: str) -> None:
    """Print the last line of this process.

    If it has joined others, JAX may be printing in a thread, at length, that they are gone.
    """
    sys.stderr.flush()
    if not _HANDLERS:
        print(line, file=sys.stderr)
        return
    with suppress(OSError):
        interrupt.write_last(line, os.dup(2))


def _say_when_aborted(line: str) -> None:
    """Print a line, and end with the code of `ProcessLostError`, when JAX aborts this process."""
    if os.name == "nt":  # its C library has no such handlers by thread
        return
    text, stderr = f"\nerror: {line}", os.dup(2)

    def report_end(number: int) -> None:
        del number
        with suppress(OSError):
            interrupt.write_last(text, stderr)
        os._exit(ProcessLostError.exit_code)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    handler, library = kind(report_end), ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, kind], ctypes.c_void_p
    library.signal(signal.SIGABRT, handler)
    _HANDLERS.append(handler)


def is_lost(error: BaseException) -> bool:
    """Return whether an exception of JAX says that another process is gone.

    Never true for a run of one process.
    """
    return (
        multiprocess.process_count() > 1
        and type(error).__module__.split(".")[0] in ("jax", "jaxlib", "builtins")
        and not isinstance(error, JaxtradeError | OSError)
        and _GONE.search(str(error)) is not None
    )


@contextmanager
def explain_loss() -> Iterator[None]:
    """Turn an exception that says that another process is gone into ProcessLostError."""
    try:
        yield
    except Exception as error:
        if not is_lost(error):
            raise
        said = " ".join(str(error).split())[:200]
        raise ProcessLostError(
            f"process {multiprocess.process_index()} of {multiprocess.process_count()}: another process of "
            f"the run has ended or does not answer ({said}); {AGAIN}"
        ) from error


def leave(code: int) -> int:
    """End this process's part in the run and return its exit code.

    With an error code this function may end the process.

    Processes that end together (all stopped by a signal, say) leave in order. One that ends by
    itself must not wait for the others, which may be waiting for it in a collective: it ends at
    once, and JAX ends them.
    """
    if multiprocess.process_count() == 1:
        return code
    if code:
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # obeyed already; engines send it again to processes that linger
    if code and (
        code == ProcessLostError.exit_code or not _all_leave(LONG_S if code in AGREED else LEAVE_S)
    ):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _all_leave(seconds: float) -> bool:
    """Return whether all processes end within some seconds."""
    try:
        multiprocess.barrier("end", seconds)
    except (
        Exception
    ):  # JAX has errors of several kinds for this; whichever it is, the others do not come
        return False
    return True
