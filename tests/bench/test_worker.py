"""Work in a process of its own."""

import os
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.worker import ROOT, LateError, Worker, WorkerError
from tests.advisor.service_parts import until
from tests.children import run_python
from tests.messages import refused

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["bench", "jaxtrade"])
def test_a_folder_here_does_not_stand_before_the_package(tmp_path, monkeypatch, capfd, name):
    """As in a checkout, whose `jaxtrade/` is not the installed one: there is no `bench` in it."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise ImportError('the folder here')")
    monkeypatch.chdir(tmp_path)
    with Worker("setting", "no_such_function", {}) as worker, pytest.raises(WorkerError):
        worker.run()
    said = capfd.readouterr().err
    assert "the folder here" not in said
    assert "no attribute 'no_such_function'" in said


def test_the_peak_of_a_process_is_its_own():
    """The kernel's `ru_maxrss` of a new process begins with that of the process that started it."""
    held = np.ones(1 << 27)  # 1 GiB
    code = "from bench.worker import peak_resident; print(peak_resident())"
    said = run_python("-c", code, cwd=ROOT, check=True).stdout
    assert 10e6 < int(said) < held.nbytes


def _has_ended(process):
    """Whether it is gone, or dead and only waits for its parent to hear of it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="no groups of processes there")
def test_what_a_late_child_has_started_ends_with_it(tmp_path, monkeypatch):
    """The time is over as soon as the child has started one."""
    told = tmp_path / "pid"

    class Timer(threading.Timer):
        def run(self):
            until(lambda: told.exists() and told.read_text(), self.interval)
            self.function()

    monkeypatch.setattr(threading, "Timer", Timer)
    code = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    given = {"name": "startup.start", "arguments": {"words": ["-c", code], "times": 1}}
    with Worker("worker", "call", given) as worker, refused("120 seconds", kind=LateError):
        worker.run(120.0)
    assert until(partial(_has_ended, int(told.read_text())))
