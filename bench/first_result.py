"""What a new user waits for: from `git clone` to the README's first table, with nothing cached.

Every repeat clones this checkout into an empty folder, makes a virtual environment, installs into
it without pip's cache, and trains and evaluates the quickstart with empty caches of its own. The
phases of that command are taken from the lines that it prints as they come.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jaxtrade.errors import DataError

from . import harness
from .harness import Sample
from .worker import ROOT

CLONE, VENV, INSTALL = "git clone", "python3 -m venv", "pip install ."
TRAIN, RUNS, ALL = "jaxtrade train", ("proof", "quickstart"), "all"
PHASES = ("loading", "compiling", "training", "evaluating")  # each begins with a line `PHASE: ...`
START = "starting"  # until the first line


def phases(lines, clock=time.perf_counter):
    """Wall seconds of each phase of a run, from when its first lines came until `lines` ends.

    Raises DataError where a phase never began: its time would count for another one.
    """
    began = {START: clock()}
    for line in lines:
        name = line.partition(":")[0]
        if name in PHASES and name not in began:
            began[name] = clock()
    if missing := [name for name in PHASES if name not in began]:
        raise DataError(f"the output of `{TRAIN}` has no line that begins with '{missing[0]}:'")
    ends = [*list(began.values())[1:], clock()]
    return {name: end - start for (name, start), end in zip(began.items(), ends, strict=True)}


def train(folder, variables, run):
    """Train a configuration in a checkout with its own environment; return seconds of its phases.

    Raises CalledProcessError.
    """
    words = [str(folder / ".venv" / "bin" / "jaxtrade"), "train", run, "--non-interactive"]
    said = []
    with subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        found = phases(said.append(line) or line for line in child.stdout or ())
    if child.returncode:
        sys.stderr.write("".join(said))
        raise subprocess.CalledProcessError(child.returncode, words)
    return found


def once():
    """Do everything from nothing, in a folder that is deleted afterwards.

    Returns what each command took, and seconds of each part of the training commands.
    """
    with tempfile.TemporaryDirectory() as top:
        code = Path(top) / "jaxtrade"
        # Python's own search path would find this checkout; caches, also the one of compiled
        # programs, start empty.
        caches = {
            "XDG_CACHE_HOME": f"{top}/cache",
            "PIP_NO_CACHE_DIR": "1",
            "PYTHONUNBUFFERED": "1",
        }
        own = os.environ.keys() - {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        variables = {name: os.environ[name] for name in own} | caches
        python = str(code / ".venv" / "bin" / "python")
        steps = {}
        for step, folder, words in (
            (CLONE, top, ("git", "clone", "--quiet", str(ROOT), str(code))),
            (VENV, top, (sys.executable, "-m", "venv", str(code / ".venv"))),
            (INSTALL, code, (python, "-m", "pip", "install", "--quiet", ".")),
        ):
            given = {"cwd": folder, "env": variables}
            steps[step], _ = harness.of_children(harness.called, words, **given)
        found = {}
        for run in RUNS:
            steps[f"{TRAIN} {run}"], found[run] = harness.of_children(train, code, variables, run)
        steps[ALL] = Sample(*map(sum, zip(*steps.values(), strict=True)))
    return steps, found


def run(options):
    """Measure it. Raises DataError outside a checkout."""
    if not (ROOT / ".git").exists():
        raise DataError(f"{ROOT}: not a git checkout; this bench clones the one that it lies in")
    taken = harness.take_turns({ALL: once}, options.repeats)[ALL]
    every, parts = zip(*taken, strict=True)
    return {
        "config": {"repeats": options.repeats, "caches": "empty"},
        "steps": {name: harness.durations([each[name] for each in every]) for name in every[0]},
        "seconds_of_training_commands": {
            run: {
                name: statistics.median(each[run][name] for each in parts)
                for name in (START, *PHASES)
            }
            for run in RUNS
        },
    }
