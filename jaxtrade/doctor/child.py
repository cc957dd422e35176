"""Run a Python program in a child process. Its end, even a crash, is returned as a value."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jaxtrade import interrupt

# Windows has no signals. It reports a crash as an NTSTATUS in the exit code.
_NTSTATUS = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC00000FD: "stack overflow",
    0xC0000135: "DLL not found",
    0xC0000409: "stack buffer overrun",
}


@dataclass(frozen=True)
class ChildResult:
    """How a child ended.

    end: "ok" (exit code 0, and a JSON object on the last line of output), "crash" (died from
        `cause`), "hang" (killed
    after `seconds`) or "error" (an exception, or another exit code).
    """

    end: Literal["ok", "crash", "hang", "error"]
    seconds: float
    values: Mapping[str, Any]
    cause: str = ""
    stderr: str = ""


def crash_name(returncode: int) -> str | None:
    """Name of the signal or Windows status that ended a process; None for an ordinary exit.

    A shell or container between the two processes reports signal n as exit code 128 + n.
    """
    if (status := _NTSTATUS.get(returncode & 0xFFFFFFFF)) is not None:
        return status
    if returncode < 0 or 128 < returncode < 128 + 65:
        number = -returncode if returncode < 0 else returncode - 128
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"
    return None


def last_line(text: str) -> str:
    """The last line of a child's output that is not blank, cut to 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def run_child(program: str, timeout: float, env: Mapping[str, str] | None = None) -> ChildResult:
    """Run `program` under this interpreter, with faulthandler on. env: overrides environment
    variables.

    The child gets this process's `sys.path` through PYTHONPATH. `-P` stops `-c` from adding the
    working directory to it.
    """
    start = time.monotonic()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    merged = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **(env or {})}
    try:
        done = _ended([sys.executable, "-P", "-X", "faulthandler", "-c", program], merged, timeout)
    except subprocess.TimeoutExpired as late:
        said = (
            late.stderr.decode("utf-8", "replace")
            if isinstance(late.stderr, bytes)
            else late.stderr or ""
        )
        return ChildResult(
            "hang", time.monotonic() - start, {}, f"no answer in {timeout:.0f} s", said
        )
    except OSError as error:  # the fork failed: process limit reached, or out of memory
        return ChildResult(
            "error", time.monotonic() - start, {}, f"could not start a process: {error}"
        )
    seconds = time.monotonic() - start
    if (cause := crash_name(done.returncode)) is not None:
        return ChildResult("crash", seconds, {}, cause, done.stderr)
    if done.returncode != 0:
        return ChildResult(
            "error",
            seconds,
            {},
            last_line(done.stderr) or f"exit code {done.returncode}",
            done.stderr,
        )
    try:
        values = json.loads(last_line(done.stdout))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return ChildResult("error", seconds, {}, "ended without a result", done.stderr)
    return ChildResult("ok", seconds, values, "", done.stderr)


def _ended(
    words: list[str], env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` for a thread: Ctrl-C, which reaches the main thread only, ends the child
    too.
    """
    with (
        subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process,
        interrupt.child(process),
    ):
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            interrupt.kill(process)
            raise subprocess.TimeoutExpired(words, timeout, *process.communicate()) from None
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def crashed_in(stderr: str) -> str:
    """The innermost frame that faulthandler printed, as 'file:line in name'; empty if there is
    none.
    """
    for line in stderr.splitlines():
        if line.lstrip().startswith('File "') and "<string>" not in line:
            parts = line.strip().split('"')
            return f"{os.path.basename(parts[1])}{parts[2].replace(', line ', ':')}"
    return ""
