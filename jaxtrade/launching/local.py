"""Several processes of one run on this machine: start them, show their lines, stop all when one
fails.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from jaxtrade import interrupt
from jaxtrade.errors import InterruptedRunError, PreemptedError, ProcessLostError

PATIENCE_S = 10.0  # how long the others may take to end by themselves after one has failed
POLL_S = 0.05
TOGETHER = (
    PreemptedError.exit_code,
    InterruptedRunError.exit_code,
)  # all processes end with it, some a little later


def environment(
    base: Mapping[str, str], index: int, count: int, port: int, devices: int | None
) -> dict[str, str]:
    """The environment of process `index` of `count`, which meet at `port` of this machine.

    devices: how many each process computes on: cores' worth of host devices on a CPU, or its own
        GPUs, counted from
    index * devices. None: one host device, or one GPU each.
    """
    each = 1 if devices is None else devices
    own = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
        "JAX_LOCAL_DEVICE_IDS": ",".join(str(index * each + i) for i in range(each)),
    }
    if devices is not None:
        own["JAX_NUM_CPU_DEVICES"] = str(devices)
    return dict(base) | own


def free_port() -> int:
    """A port of this machine on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def shell_code(returncode: int) -> int:
    """The exit code as a shell reports it: 128 + n for a process that died of signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def verdict(codes: Sequence[int]) -> int:
    """The exit code of the whole, from those that are not 0 in the order in which the processes
    ended; 0 without any.

    The first that is a cause counts: that a process has lost another one is a consequence.
    """
    causes = [code for code in codes if code != ProcessLostError.exit_code]
    return next(iter([*causes, *codes]), 0)


def launch(
    words: Sequence[str],
    count: int,
    devices: int | None = None,
    env: Mapping[str, str] = os.environ,
) -> int:
    """Run `jaxtrade WORDS` in `count` processes of this machine -> exit code, as `verdict` says.

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
                    env=environment(env, i, count, port, devices),
                )
            )
        readers = [
            reader for i, process in enumerate(processes) for reader in _readers(f"[{i}] ", process)
        ]
        try:
            with _forwarded(processes):
                return _watched(processes)
        finally:
            for process in processes:
                interrupt.kill(process)
            for reader in readers:
                reader.join(timeout=PATIENCE_S)


def _watched(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended -> exit code. After a failure, those that go on for too long are
    killed.
    """
    running, failed, deadline = list(processes), list[int](), float("inf")
    while running:
        time.sleep(POLL_S)
        ended = [process for process in running if process.poll() is not None]
        running = [process for process in running if process not in ended]
        failed += [shell_code(process.returncode) for process in ended if process.returncode]
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
            return verdict(failed)
    return verdict(failed)


@contextmanager
def _forwarded(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """SIGINT and SIGTERM go to the processes inside this block; a second one kills them."""
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
    """Threads that copy a process's output, line by line, with a prefix."""
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
