"""What a user waits for before anything happens: `import jaxtrade`, and `jaxtrade --help`, against
an empty Python.

Every start is a process of its own, with the interpreter and the search path of this one. A repeat
is the mean of `STARTS` starts. Python's compiled files are there: each side runs once before it
counts.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import jaxtrade

from . import harness
from .harness import Sample
from .worker import search_path

STARTS, QUICK_STARTS = 10, 1
EMPTY, IMPORT, HELP = "python -c pass", "import jaxtrade", "jaxtrade --help"
SIDES = {
    EMPTY: ("-c", "pass"),
    IMPORT: ("-c", "import jaxtrade"),
    HELP: ("-m", "jaxtrade", "--help"),
}


def start(words, times) -> Sample:
    """Mean wall and CPU seconds of some starts of `python WORDS`. Raises CalledProcessError if one
    fails.
    """
    root = Path(jaxtrade.__file__).resolve().parent.parent
    own = os.environ | {"PYTHONPATH": search_path(root, os.environ.get("PYTHONPATH"))}

    def starts():
        for _ in range(times):
            harness.called([sys.executable, "-P", *words], env=own)

    sample, _ = harness.of_children(starts)
    return Sample(sample.wall / times, sample.cpu / times)


def run(options):
    starts = QUICK_STARTS if options.quick else STARTS
    for words in SIDES.values():
        start(words, 1)  # Python writes its compiled files
    work = {name: partial(start, words, starts) for name, words in SIDES.items()}
    taken = harness.take_turns(work, options.repeats)
    found = {name: harness.durations(samples) for name, samples in taken.items()}
    return {
        "config": {"starts": starts, "repeats": options.repeats},
        "start": found,
        "times_an_empty_python": {
            name: harness.rounded(found[name]["seconds"] / found[EMPTY]["seconds"])
            for name in (IMPORT, HELP)
        },
    }
