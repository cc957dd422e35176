"""What a user waits for first: `import jaxtrade` and `jaxtrade --help`, against an empty Python.

Every start is a process of its own, with the interpreter and the search path of this one. A repeat
is the mean of `STARTS` starts. Python's compiled files are there: each side runs once before it
counts.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

import jaxtrade

from . import harness
from .harness import Sample
from .worker import finding

STARTS, QUICK_STARTS = 10, 1
EMPTY, IMPORT, HELP = "python -c pass", "import jaxtrade", "jaxtrade --help"
SIDES = {
    EMPTY: ("-c", "pass"),
    IMPORT: ("-c", "import jaxtrade"),
    HELP: ("-m", "jaxtrade", "--help"),
}


def start(words, times):
    """Return mean wall and CPU seconds of some starts of `python WORDS`.

    Raises CalledProcessError if one fails.
    """
    root = Path(jaxtrade.__file__).resolve().parent.parent

    def starts():
        for _ in range(times):
            harness.called([sys.executable, "-P", *words], env=finding(root))

    sample, _ = harness.of_children(starts)
    return Sample(*np.divide(sample, times))


def run(options):
    starts = QUICK_STARTS if options.quick else STARTS
    for words in SIDES.values():
        start(words, 1)  # Python writes its compiled files
    work = {name: partial(start, words, starts) for name, words in SIDES.items()}
    found = harness.timed(work, options.repeats)
    return {
        "config": {"starts": starts, "repeats": options.repeats},
        "start": found,
        "times_an_empty_python": {
            name: found[name]["seconds"] / found[EMPTY]["seconds"] for name in (IMPORT, HELP)
        },
    }
