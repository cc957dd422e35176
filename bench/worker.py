"""Work in a process of its own, apart from torch or JAX in the process that asks.

Torch and its threads beside JAX and its threads would disturb each other, and a GPU's memory, or a
whole TPU, belongs to one process.

    with Worker("sb3", "trainer", {"num_envs": 4}, threads=1) as worker:
        sample = worker.run()          # one repeat of `bench.sb3.trainer(num_envs=4)`
    once("correctness.update", {}, 60) # what `bench.correctness.update()` returns, within a minute

The work is a generator. What it does before its first `yield` is preparation; then each request
resumes it until it yields the answer of one repeat. The child times itself: wall seconds, and
CPU seconds of itself and of the processes it has started. It waits on a pipe in between, which
costs nothing. It has a group of processes of its own, so that what it has started ends with it.
"""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import namedtuple
from contextlib import ExitStack, closing
from pathlib import Path

from jaxtrade import interrupt

from . import idle

ROOT = Path(__file__).resolve().parent.parent  # of a checkout
CODE = "import sys; from importlib import import_module as load; load(sys.argv[1] + '.worker').serve(sys.argv)"
THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS"  # of what peers compute with


# One repeat of one side, in seconds.
Sample = namedtuple("Sample", "wall cpu")
# One repeat in the child. peak_bytes: its greatest resident memory so far, started processes not
# included. answer: what the work returned (JSON).
Reply = namedtuple("Reply", "sample peak_bytes answer")


class WorkerError(RuntimeError):
    """The child ended or failed; what it wrote stands above."""


class LateError(WorkerError):
    """A repeat was not done when its time was over."""


class Child:
    """A process that answers each line on its stdin by a line of JSON.

    The line is a `Reply`, and the ticks of its sides (`idle`). name: for messages. variables: its
    environment.
    """

    def __init__(self, name, words, variables):
        self.name = name
        # -P: a checkout that is the working directory must not stand before what is installed
        self._process = subprocess.Popen(
            [sys.executable, "-P", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
            start_new_session=True,
        )
        self._held = ExitStack()
        self._held.enter_context(interrupt.child(self._process))

    def run(self, seconds=None):
        """One repeat; after that many seconds the child and all that it has started are ended.

        Raises WorkerError; LateError: its time was over.
        """
        late = threading.Event()

        def end():
            late.set()
            interrupt.kill(self._process)

        timer = threading.Timer(threading.TIMEOUT_MAX if seconds is None else seconds, end)
        timer.daemon = True
        timer.start()
        try:
            print("go", file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            self._process.wait()
            raise LateError(f"{self.name}: it was ended after {seconds:.0f} seconds, its limit")
        if not line:
            raise WorkerError(
                f"{self.name}: the process ended with status {self._process.wait()}; its error is above"
            )
        reply = {"peak_bytes": 0, "answer": None, "ticks": {}} | json.loads(line)
        idle.LEDGER.merge(**reply["ticks"])
        return Reply(Sample(reply["wall"], reply["cpu"]), reply["peak_bytes"], reply["answer"])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with self._held:
            if kind is not KeyboardInterrupt:  # else do not wait for the end of its repeat
                self._process.communicate()


class Worker(Child):
    """`module.function(**arguments)` of this package in a child: a generator of repeats.

    variables: put over this process's environment.
    """

    def __init__(self, module, function, arguments, threads=None, variables=None):
        own = os.environ | (variables or {})
        own |= dict.fromkeys(THREADS.split(), str(threads)) if threads else {}
        if __package__ == "bench":  # installed, ROOT is the package, whose types.py would hide
            own = finding(ROOT, own)  # Python's
        given = json.dumps(arguments)
        words = ["-c", CODE, __package__, module, function, given]
        super().__init__(f"{module}.{function}({given})", words, own)


def finding(first, variables=os.environ):
    """Variables of a process that finds the modules of a folder first."""
    path = filter(None, (str(first), variables.get("PYTHONPATH")))
    return variables | {"PYTHONPATH": os.pathsep.join(path)}


def once(name, arguments, seconds=None, variables=None):
    """Return what `MODULE.FUNCTION(**arguments)` of this package returns, in a fresh process.

    What it prints goes to stderr.

    Raises WorkerError: it failed; LateError: it did not end in time.
    """
    given = {"name": name, "arguments": arguments}
    with Worker("worker", "call", given, variables=variables) as worker:
        return worker.run(seconds).answer


def call(name, arguments):
    """Do the work of `once`."""
    yield
    yield loaded(name)(**arguments)


def loaded(name):
    """`MODULE.FUNCTION` of this package."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def cpu_seconds():
    """Of this process and, where psutil is installed, of those it has started (SubprocVecEnv)."""
    spent = time.process_time()
    if importlib.util.find_spec("psutil"):
        import psutil

        for child in psutil.Process().children(recursive=True):
            times = child.cpu_times()
            spent += times.user + times.system
    return spent


def serve(argv):
    """Run as the child: argv[1:] package, module, function, arguments.

    What the work prints goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _, module, function, arguments = argv[1:]
    with closing(loaded(f"{module}.{function}")(**json.loads(arguments))) as work:
        next(work)
        for _ in sys.stdin:
            wall, cpu = time.perf_counter(), cpu_seconds()
            reply = {"answer": next(work)}
            reply |= {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
            reply |= {"peak_bytes": peak_resident(), "ticks": idle.LEDGER.hand_over()}
            print(json.dumps(reply), file=answers, flush=True)


def peak_resident():
    """Return bytes of this process at its peak.

    Linux and `ru_maxrss` there tell them in kB, macOS in bytes. On Linux `ru_maxrss` begins with
    the peak of the process that started this one, so it is asked last.
    """
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    status = Path("/proc/self/status")
    if status.exists() and (told := re.search(r"VmHWM:\s+(\d+)", status.read_text())):
        return 1024 * int(told[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
