"""Ctrl-C of the command: whatever it does, the process ends with exit code 130 within two seconds.

SIGTERM of a command that can be resumed: it ends with 75, at once if there is nothing to save.

Python runs a signal handler in the main thread, between two steps of Python code. While XLA
compiles or computes, the main thread takes no such step, and no exception can stop XLA. So the
first Ctrl-C does two things:

- The handler raises KeyboardInterrupt in the main thread, which then cleans up and leaves. (Training has a handler of
  its own: it saves at the next chunk border. See `training.run_io`.) While a module is being
  imported, the handler ends the process itself: an exception there crashes the C code of NumPy and
  JAX, or makes it print a traceback.
- A thread reads the signal from a pipe, which the operating system's handler fills at once. If the main thread has not
  left after `GRACE_S`, or if a second Ctrl-C comes, the thread ends the process.

The process ends by `os._exit` in both cases: Python's own end waits for the threads that compile,
or crashes in them. Everything on disk is written so that a process may be killed at any time.

SIGTERM goes the same way to the thread, which ends the process at once with `TERM_CODE`, unless
training has something to save: then its own handler saves at the next chunk border.

Only the command installs this (`run`). In other programs and in notebooks, both signals work as
Python defines them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from types import FrameType

EXIT_CODE = 130
TERM_CODE = 75  # `errors.PreemptedError`: the scripts of schedulers start the same command again
GRACE_S = 1.5  # the time that the main thread has to save and to leave
SAME_S = (
    0.2  # two signals within this time are one Ctrl-C: `timeout -s INT`, for example, sends two
)
_LAST_S = 0.3  # the time that the main thread has to finish once it has begun to end the process


class _State:
    """The state of this process. It is global, because signals are.

    received: a Ctrl-C came.
    handled: its handler has run.
    abandoned: a thread or a hook of another library may hang at the end.
    terminated: SIGTERM ends this process.
    hints: what to add to the line that is printed, the outermost first.
    kept: the hint of a block that was left after the Ctrl-C.
    tasks: what to do before the process ends.
    restore: what to do before the line is printed.
    ending: held by the thread that prints the line and ends the process.
    """

    def __init__(self) -> None:
        self.installed = self.resumable = self.quiet = self.received = self.handled = (
            self.terminated
        ) = self.abandoned = False
        self.grace_s = GRACE_S
        self.hints: list[Callable[[], str]] = []
        self.kept = ""
        self.tasks: list[Callable[[], object]] = []
        self.restore: Callable[[], object] = lambda: None
        self.ending = threading.Lock()


_STATE = _State()


def run(
    work: Callable[[], int], grace_s: float = GRACE_S, quiet: bool = False, resumable: bool = False
) -> int:
    """Run a command as the whole of this process and return its exit code.

    After a Ctrl-C, or an `abandon`, this function does not return.

    work: prints the line of a KeyboardInterrupt itself (`say`), if it can.
    grace_s: see `GRACE_S`.
    quiet: print nothing about a Ctrl-C, because the process that started this one does.
    resumable: SIGTERM ends it with `TERM_CODE`.
    """
    install(grace_s, quiet, resumable)
    try:
        code = work()
    except KeyboardInterrupt:
        say(line())
        code = EXIT_CODE
    if was_received():
        if not _STATE.ending.locked():  # the command has ended by itself meanwhile
            say(line())
        _leave()
    if _STATE.installed:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # the command has finished: its exit code is the truth
    if _STATE.resumable:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _STATE.abandoned:
        _flush()
        os._exit(code)
    return code


def abandon() -> None:
    """Let `run` end the process by `os._exit`.

    Something that was given up may hang at Python's own end.
    """
    _STATE.abandoned = True


def install(grace_s: float = GRACE_S, quiet: bool = False, resumable: bool = False) -> None:
    """Watch for Ctrl-C from now on, and for SIGTERM if the command is `resumable`.

    Does nothing outside the main thread, or for a signal that has another handler already.

    A shell makes the commands that it starts in the background ignore SIGINT; that is left as
    it is.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    term = resumable and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (term or ctrl_c):
        return
    reader, writer = os.pipe()
    if os.name != "nt":  # Windows neither needs this nor has it
        os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _STATE.installed, _STATE.resumable, _STATE.grace_s, _STATE.quiet = ctrl_c, term, grace_s, quiet
    if term:
        signal.signal(signal.SIGTERM, _terminate)
    if ctrl_c:
        signal.signal(signal.SIGINT, _handle)
    if hasattr(signal, "pthread_sigmask"):  # `held_back` in the process that started this one
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_watch, args=(reader,), name="jaxtrade-interrupt", daemon=True).start()


def release() -> None:
    """Stop watching for signals in this process.

    The caller sets handlers of its own, and ends in its own time.
    """
    if _STATE.installed or signal.getsignal(signal.SIGTERM) is _terminate:
        signal.set_wakeup_fd(-1)
        _STATE.installed = _STATE.resumable = False


def is_installed() -> bool:
    """Return whether this process is a command that ends by itself after a Ctrl-C."""
    return _STATE.installed


def ends(received: signal.Signals) -> bool:
    """Return whether this process is a command that a Ctrl-C, or a SIGTERM, ends by itself."""
    return _STATE.installed if received == signal.SIGINT else _STATE.resumable


def was_received() -> bool:
    """Return whether a Ctrl-C came in this process. Always False where `install` was not called."""
    return _STATE.received


def is_first_interrupt() -> bool:
    """Return whether this is the first call in this process, for handlers of SIGINT.

    Always True without `install`.
    """
    if not _STATE.installed:
        return True
    _note()
    before, _STATE.handled = _STATE.handled, True
    return not before


def at_end(task: Callable[[], object]) -> None:
    """Call `task` if Ctrl-C ends this process. It may run in any thread, and must be quick."""
    _STATE.tasks.append(task)


def before_line(task: Callable[[], object]) -> None:
    """Call `task` before the line is printed, to leave the terminal usable.

    It may run in any thread.
    """
    _STATE.restore = task


@contextmanager
def cleanup(task: Callable[[], object]) -> Iterator[None]:
    """Register `task` with `at_end` for as long as this block lasts."""
    _STATE.tasks.append(task)
    try:
        yield
    finally:
        _STATE.tasks.remove(task)


@contextmanager
def hint(text: Callable[[], str]) -> Iterator[None]:
    """End the line that Ctrl-C prints with `text()` inside this block, for example how to continue.

    The error of a run that a signal has stopped ends with it too (`read_hint`).

    An empty text adds nothing. Of several blocks, the outermost counts. `text` may run in
    any thread.
    """
    _STATE.hints.append(text)
    try:
        yield
    finally:
        if was_received() or isinstance(sys.exception(), KeyboardInterrupt):
            _STATE.kept = text() or _STATE.kept
        _STATE.hints.remove(text)


@contextmanager
def held_back() -> Iterator[None]:
    """Delay Ctrl-C to the end of this block.

    In a command that is started inside it, Ctrl-C waits for `install`.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def child(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a process and what it started at the end of this block and if Ctrl-C ends this process.

    Start it with `start_new_session=True`: the terminal then sends Ctrl-C to this process alone.
    """
    with cleanup(partial(kill, process)):
        try:
            yield
        finally:
            kill(process)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process that has not ended, with its group if that is its own."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):  # it ended just now
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def read_hint() -> str:
    """Return the text of the outermost `hint` that is not empty; empty if none is."""
    return next((said for text in _STATE.hints if (said := text())), "")


def line() -> str:
    """Return the line that Ctrl-C prints."""
    said = read_hint() or _STATE.kept
    _STATE.kept = ""
    if _STATE.terminated:
        return f"stopped by SIGTERM; {said or 'nothing was saved yet'}"
    return f"interrupted; {said}" if said else "interrupted"


def say(text: str) -> None:
    """Print the one line about an interruption.

    If another thread has begun to end the process, wait for the end.
    """
    if not _STATE.installed:
        print(text, file=sys.stderr)
        return
    _STATE.ending.acquire()
    _write(text)


def _note() -> None:
    if not _STATE.received:
        _STATE.received = True
        # What threads and destructors print about the interruption says nothing to the user.
        sys.unraisablehook = threading.excepthook = lambda *_: None


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT outside of training.

    It raises once: a second exception would stop the cleaning up of the first.
    """
    del number
    if not is_first_interrupt():
        return
    if _importing(frame):
        _end()
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM outside of training.

    The thread ends the process, even while the main thread computes.
    """


def _stops_at_once() -> bool:
    """Return whether SIGTERM ends this process now: no other handler has something to save."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler is _terminate or bool(getattr(handler, "idle", False))


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported in this frame or in one that called it."""
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _watch(reader: int) -> None:
    """Read signals from the pipe, for ever."""
    began = 0.0
    while True:
        for number in os.read(reader, 64):
            if number == signal.SIGTERM and _stops_at_once():
                _STATE.terminated = True
                _note()
                _end()
            if number != signal.SIGINT:
                continue
            _note()
            if not began:
                began = time.monotonic()
                timer = threading.Timer(_STATE.grace_s, _end)
                timer.daemon = True
                timer.start()
            elif time.monotonic() - began > SAME_S:
                _end()


def _end() -> None:
    """End the process now.

    If the main thread is about to leave (and this is another), wait for it briefly.
    """
    with ExitStack() as stack:
        stack.callback(_leave)
        if _STATE.ending.acquire(timeout=_LAST_S):
            _write(line())


def _leave() -> None:
    """Clean up and end the process. A task that fails stops neither the others nor the end."""
    with ExitStack() as stack:
        stack.callback(os._exit, TERM_CODE if _STATE.terminated else EXIT_CODE)
        if threading.current_thread() is threading.main_thread():
            stack.callback(_flush)
        for task in list(_STATE.tasks):
            stack.callback(task)


def _flush() -> None:
    with suppress(OSError, ValueError):  # the reader has gone, or the stream is closed
        sys.stdout.flush()


def _write(text: str) -> None:
    """Write the last line to stderr, past Python's buffers.

    The thread that holds their lock may never go on.
    """
    _STATE.restore()
    if _STATE.quiet:
        return
    with suppress(OSError):
        write_last(text, os.dup(2))


def write_last(text: str, stderr: int) -> None:
    """Write a line to a copy of stderr, as the last one. Raises OSError.

    What any thread writes to stderr itself after it is lost.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.write(stderr, f"{text}\n".encode())
