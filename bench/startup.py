"""What a user waits for before anything happens: `import jaxtrade`, and `jaxtrade --help`, against
an empty Python.

Every start is a process of its own, with the interpreter and the search path of this one. A repeat
is the mean of
`STARTS` starts. Python's compiled files are there: each side runs once before it counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jaxtrade

from . import harness, programs
from .catalogue import Options
from .harness import Sample

STARTS, QUICK_STARTS = 10, 1
EMPTY, IMPORT, HELP = "python -c pass", "import jaxtrade", "jaxtrade --help"
SIDES = {
    EMPTY: ("-c", "pass"),
    IMPORT: ("-c", "import jaxtrade"),
    HELP: ("-m", "jaxtrade", "--help"),
}


def start(words: Sequence[str], times: int) -> Sample:
    """Mean wall and CPU seconds of some starts of `python WORDS`. Raises CalledProcessError if one
    fails.
    """
    root = str(Path(jaxtrade.__file__).resolve().parent.parent)
    own = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    }
    wall, before = time.perf_counter(), os.times()
    for _ in range(times):
        subprocess.run(
            [sys.executable, "-P", *words],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    seconds, after = time.perf_counter() - wall, os.times()
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return Sample(seconds / times, cpu / times)


def run(options: Options) -> dict[str, Any]:
    starts = QUICK_STARTS if options.quick else STARTS
    for words in SIDES.values():
        start(words, 1)  # Python writes its compiled files
    taken = harness.take_turns(
        {name: partial(start, words, starts) for name, words in SIDES.items()}, options.repeats
    )
    found = {name: programs.durations(samples) for name, samples in taken.items()}
    return {
        "config": {"starts": starts, "repeats": options.repeats},
        "start": found,
        "times_an_empty_python": {
            name: harness.rounded(found[name]["seconds"] / found[EMPTY]["seconds"])
            for name in (IMPORT, HELP)
        },
        "sides": {},
        "ratios": {},
    }
