"""What a new user waits for: from `git clone` to the table of the README's first command, with
nothing cached.

Every repeat clones this checkout into an empty folder, makes a virtual environment, installs into
it without pip's cache, and trains and evaluates the quickstart with empty caches of its own. The
phases of that command are taken from the lines that it prints as they come.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.errors import DataError

from . import harness
from .catalogue import Options
from .harness import Sample

ROOT = Path(__file__).resolve().parent.parent
CLONE, VENV, INSTALL, TRAIN, ALL = (
    "git clone",
    "python3 -m venv",
    "pip install .",
    "jaxtrade train quickstart",
    "all",
)
PHASES = ("loading", "compiling", "training", "evaluating")  # each begins with a line `PHASE: ...`
START = "starting"  # until the first line


class Once(NamedTuple):
    """One repeat. steps: what each command took; phases: wall seconds of each part of the training
    command.
    """

    steps: dict[str, Sample]
    phases: dict[str, float]


def phases(
    lines: Iterable[str], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
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


def called(words: Sequence[str | Path], folder: Path, variables: dict[str, str]) -> None:
    """Run a command that must succeed. Raises CalledProcessError."""
    subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
        check=True,
    )


def train(folder: Path, variables: dict[str, str]) -> dict[str, float]:
    """The quickstart in a checkout with its own environment: seconds of its phases. Raises
    CalledProcessError.
    """
    words = [str(folder / ".venv" / "bin" / "jaxtrade"), "train", "quickstart", "--non-interactive"]
    with subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        said: list[str] = []
        found = phases(keeping(child.stdout, said))
    if child.returncode:
        sys.stderr.write("".join(said))
        raise subprocess.CalledProcessError(child.returncode, words)
    return found


def keeping(lines: Iterable[str], said: list[str]) -> Iterable[str]:
    """`lines` as they come, each kept in `said`."""
    for line in lines:
        said.append(line)
        yield line


def once() -> Once:
    """Everything from nothing, in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        code = top / "jaxtrade"
        # Python's own search path would find this checkout; caches, also the one of compiled
        # programs, start empty.
        variables = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        }
        variables |= {
            "XDG_CACHE_HOME": str(top / "cache"),
            "PIP_NO_CACHE_DIR": "1",
            "PYTHONUNBUFFERED": "1",
        }
        python = code / ".venv" / "bin" / "python"
        commands = {
            CLONE: ("git", "clone", "--quiet", ROOT, code),
            VENV: (sys.executable, "-m", "venv", code / ".venv"),
            INSTALL: (python, "-m", "pip", "install", "--quiet", "."),
        }
        steps = {}
        for step, words in commands.items():
            folder = code if step == INSTALL else top
            steps[step], _ = harness.of_children(
                lambda words=words, folder=folder: called(words, folder, variables)
            )
        steps[TRAIN], found = harness.of_children(lambda: train(code, variables))
    return Once(
        steps | {ALL: Sample(*(sum(clock) for clock in zip(*steps.values(), strict=True)))}, found
    )


def run(options: Options) -> dict[str, Any]:
    """Raises DataError outside a checkout."""
    if not (ROOT / ".git").exists():
        raise DataError(f"{ROOT}: not a git checkout; this bench clones the one that it lies in")
    taken = harness.take_turns({ALL: once}, options.repeats)[ALL]
    return {
        "config": {"repeats": options.repeats, "caches": "empty"},
        "steps": {
            name: harness.durations([each.steps[name] for each in taken]) for name in taken[0].steps
        },
        "seconds_of_training_command": {
            name: harness.rounded(statistics.median(each.phases[name] for each in taken))
            for name in (START, *PHASES)
        },
    }
