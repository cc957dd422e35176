"""A side in a process of its own: torch and its threads beside JAX and its threads would disturb
each other.

    with Worker("sb3", "trainer", {"num_envs": 4}, threads=1) as worker:
        sample = worker.run()          # one repeat of `bench.sb3.trainer(num_envs=4)()`

The child builds the work once, then does one repeat per request and times itself: wall seconds, and
CPU seconds of itself and of the processes it has started. It waits on a pipe in between, which
costs nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade import interrupt

from . import idle
from .harness import Sample

ROOT = Path(__file__).resolve().parent.parent  # of a checkout


class Reply(NamedTuple):
    """One repeat in the child. peak_bytes: its greatest resident memory so far, started processes
    not included.
    answer: what the work returned (JSON)."""

    sample: Sample
    peak_bytes: int
    answer: Any


class WorkerError(RuntimeError):
    """The child ended or failed; the message holds the end of what it wrote."""


class Worker:
    """`module.function(**arguments)` of this package in a child; it returns the work to repeat.
    variables: put over this process's environment."""

    def __init__(
        self,
        module: str,
        function: str,
        arguments: Mapping[str, Any],
        threads: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        own = dict(os.environ) | dict(variables or {})
        if threads is not None:  # every library that a peer may compute with
            own |= dict.fromkeys(
                ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
            )
        code = "import sys; from importlib import import_module as load; load(sys.argv[1] + '.worker').serve(sys.argv)"
        if (
            __package__ == "bench"
        ):  # installed, ROOT is the package itself, whose types.py would hide Python's
            own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [own.get("PYTHONPATH")])])
        self.name = f"{module}.{function}({json.dumps(dict(arguments))})"
        # -P: a checkout that is the working directory must not stand before what is installed
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                code,
                __package__ or "bench",
                module,
                function,
                json.dumps(dict(arguments)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=own,
            start_new_session=True,
        )
        self._held = ExitStack()
        self._held.enter_context(interrupt.child(self._process))

    def run(self) -> Reply:
        """One repeat. Raises WorkerError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(
                f"{self.name}: the process ended with status {process.wait()}; its error is above"
            )
        reply = json.loads(line)
        idle.LEDGER.merge(reply["ticks"])
        return Reply(Sample(reply["wall"], reply["cpu"]), reply["peak_bytes"], reply["answer"])

    def close(self) -> None:
        """End the child; it stops what it started."""
        assert self._process.stdin is not None
        with self._held:
            self._process.stdin.close()
            self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:  # do not wait for the end of its repeat
            self._held.close()
        else:
            self.close()


def _cpu_seconds() -> float:
    """Of this process and of those it has started (SB3's SubprocVecEnv)."""
    import psutil

    spent = time.process_time()
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        spent += times.user + times.system
    return spent


def serve(argv: list[str]) -> None:
    """The child: argv[1:] package, module, function, arguments. What the work prints goes to
    stderr.
    """
    import psutil

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    package, module, function, arguments = argv[1:]
    work = getattr(importlib.import_module(f"{package}.{module}"), function)(
        **json.loads(arguments)
    )
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), _cpu_seconds()
        answer = work()
        sample = {"wall": time.perf_counter() - wall, "cpu": _cpu_seconds() - cpu}
        memory = psutil.Process().memory_info()
        peak = getattr(memory, "peak_wset", None) or peak_resident()
        answers.write(
            json.dumps(
                sample | {"peak_bytes": peak, "answer": answer, "ticks": idle.LEDGER.hand_over()}
            )
            + "\n"
        )
        answers.flush()
    close = getattr(work, "close", None)
    if close is not None:
        close()


def peak_resident() -> int:
    """Bytes of this process at its peak. Linux and `ru_maxrss` there tell them in kB, macOS in
    bytes. On Linux
    `ru_maxrss` begins with the peak of the process that started this one, so it is asked last."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
