"""Join the processes of a run, and leave them: with one clear line if another one has died.

JAX ends a process from a thread of its own (`LOG(FATAL)`, then SIGABRT) when another one stops
answering, after
`HEARTBEAT_S` of silence, or at once if it was process 0. Its Python callback for that moment cannot be used: in JAX
0.10.2 it ends in `std::bad_cast`. So a handler of SIGABRT prints the line, in the thread that aborts; a handler of
Python's own would never run, since the main thread may be deep in a program. Where a collective fails first, as with
gloo on CPUs, Python gets an exception, which `lost` recognises. The two may come at once, in two threads, so each line
is written as the last one of the process (`say`).
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jaxtrade import interrupt
from jaxtrade.errors import (
    ConfigError,
    DivergedError,
    InterruptedRunError,
    JaxtradeError,
    PreemptedError,
    ProcessLostError,
)
from jaxtrade.runs.processes import HEARTBEAT_S, JOIN_S, Layout
from jaxtrade.training import together

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


def join(layout: Layout, heartbeat: int = HEARTBEAT_S, timeout: int = JOIN_S) -> None:
    """Join the other processes of the layout. Does nothing for one process. Call this before JAX
    uses a device.

    heartbeat: seconds of silence after which a process counts as dead. timeout: seconds to wait for
        the others.
    If they do not meet in time, JAX ends the process, which then says so and has the exit code of
    ProcessLostError. Raises ConfigError if JAX finds no cluster, runs already, or cannot listen at
    the coordinator's address.
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
        f"process {together.process_index()} of {together.process_count()}: JAX has ended this process, most likely "
        f"because another process of the run has died (its lines above say which); {AGAIN}"
    )


def _not_joined(layout: Layout, error: Exception) -> ConfigError:
    """The error of a process that could not join the others."""
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
    """Print the last line of this process. If it has joined others, JAX may be saying in a thread,
    at length, that they are gone."""
    sys.stderr.flush()
    if not _HANDLERS:
        print(line, file=sys.stderr)
        return
    with suppress(OSError):
        interrupt.write_last(line, os.dup(2))


def _say_when_aborted(line: str) -> None:
    """Print a line, and end with the exit code of `ProcessLostError`, when JAX aborts this
    process.
    """
    if os.name == "nt":  # its C library has no such handlers by thread
        return
    text, stderr = f"\nerror: {line}", os.dup(2)

    def ended(number: int) -> None:
        del number
        with suppress(OSError):
            interrupt.write_last(text, stderr)
        os._exit(ProcessLostError.exit_code)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    handler, library = kind(ended), ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, kind], ctypes.c_void_p
    library.signal(signal.SIGABRT, handler)
    _HANDLERS.append(handler)


def lost(error: BaseException) -> bool:
    """Whether an exception of JAX says that another process is gone. Never true for a run of one
    process.
    """
    return (
        together.process_count() > 1
        and type(error).__module__.split(".")[0] in ("jax", "jaxlib", "builtins")
        and not isinstance(error, JaxtradeError | OSError)
        and _GONE.search(str(error)) is not None
    )


@contextmanager
def explained() -> Iterator[None]:
    """Turn an exception that says that another process is gone into ProcessLostError."""
    try:
        yield
    except Exception as error:
        if not lost(error):
            raise
        said = " ".join(str(error).split())[:200]
        raise ProcessLostError(
            f"process {together.process_index()} of {together.process_count()}: another process of "
            f"the run has ended or does not answer ({said}); {AGAIN}"
        ) from error


def leave(code: int) -> int:
    """End this process's part in the run -> its exit code. With an error code this function may end
    the process.

    Processes that end together (all stopped by a signal, say) leave in order. One that ends by
    itself must not wait for the others, which may be waiting for it in a collective: it ends at
    once, and JAX ends them.
    """
    if together.process_count() == 1:
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
    """Whether all processes end within some seconds."""
    try:
        together.barrier("end", seconds)
    except (
        Exception
    ):  # JAX has errors of several kinds for this; whichever it is, the others do not come
        return False
    return True
