"""A function of the benches in a process of its own, once, with a limit of time.

    done = job.run("device_jobs.env_step", {"sizes": [1024]}, seconds=60)
    done.answer        # what `bench.device_jobs.env_step(sizes=[1024])` returned (JSON)

The caller never starts JAX: a GPU's memory, or a whole TPU, belongs to one process, and these come
one after the other. Each job has a group of processes of its own, so that what it has started ends
with it. Imports no JAX.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade import interrupt

from . import idle

ROOT = Path(__file__).resolve().parent.parent  # of a checkout
CODE = "import sys; from importlib import import_module as load; load(sys.argv[1] + '.job').serve(sys.argv)"
GRACE = 5.0  # seconds between asking a job to end and ending it


class Done(NamedTuple):
    """What a job returned, the stamp of the process that it ran in, and the seconds from its start
    to its end.
    """

    answer: Any
    stamp: dict[str, Any]
    seconds: float


class JobError(RuntimeError):
    """A job failed."""


class LateError(JobError):
    """A job was not done when its time was over."""


def run(
    name: str,
    arguments: Mapping[str, Any],
    seconds: float,
    variables: Mapping[str, str] | None = None,
) -> Done:
    """`MODULE.FUNCTION(**arguments)` of this package in a fresh interpreter. What it prints goes to
    stderr.

    Args:
        seconds: after that many the process is ended.
        variables: put over this process's environment.
    Raises:
        JobError: it failed; LateError: it did not end in time.
    """
    module, _, function = name.rpartition(".")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        given, reply = Path(folder) / "given.json", Path(folder) / "reply.json"
        given.write_text(json.dumps(dict(arguments)), encoding="utf-8")
        words = [__package__ or "bench", module, function, str(given), str(reply)]
        # -P: a checkout that is the working directory must not stand before what is installed
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", CODE, *words],
            env=_environment(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
        try:
            with interrupt.cleanup(partial(interrupt.kill, process)):
                status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise LateError(
                f"{name}: it was ended after {seconds:.0f} seconds, its limit"
            ) from None
        finally:  # Ctrl-C does not reach a group of its own
            if interrupt.received():
                interrupt.kill(process)
            end(process)
        if status or not reply.exists():
            raise JobError(f"{name}: its process ended with status {status}; its error is above")
        found = json.loads(reply.read_text(encoding="utf-8"))
    idle.LEDGER.merge(found["ticks"])
    return Done(found["answer"], found["stamp"], time.perf_counter() - start)


def end(process: subprocess.Popen[Any]) -> None:
    """End a job and all that it has started; nothing if it has ended."""
    for kind in ("SIGTERM", "SIGKILL"):
        if process.poll() is not None:
            return
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, kind))
        else:
            process.kill()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    own = dict(os.environ) | dict(variables)
    if (
        __package__ == "bench"
    ):  # installed, ROOT is the package itself, whose types.py would hide Python's
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [own.get("PYTHONPATH")])])
    return own


def serve(argv: list[str]) -> None:
    """The child: argv[1:] package, module, function, file of the arguments, file of the reply."""
    package, module, function, given, reply = argv[1:]
    work = getattr(importlib.import_module(f"{package}.{module}"), function)
    answer = work(**json.loads(Path(given).read_text(encoding="utf-8")))
    from .stamp import stamp

    found = {"answer": answer, "stamp": stamp([], None), "ticks": idle.LEDGER.hand_over()}
    Path(reply).write_text(json.dumps(found), encoding="utf-8")
