"""Draw new examples for all property tests: `python -m tests.fresh_examples [--seed N] [pytest's
own words]`.

The tests draw the same examples every time, so that a change fails by its own fault alone. This
draws others, and prints the seed that draws them again. It is run by hand; what it finds becomes an
`@example` of the test.
"""

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def files():
    """The files with property tests."""
    return sorted(
        str(path.relative_to(TESTS.parent))
        for path in TESTS.rglob("test_*.py")
        if "@given" in path.read_text()
    )


def main():
    """Run the property tests -> pytest's exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    args, words = parser.parse_known_args()
    print(f"python -m tests.fresh_examples --seed {args.seed}", flush=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-m",
        "slow or not slow",
        f"--hypothesis-seed={args.seed}",
        "-p",
        "no:cacheprovider",
        *(words or files()),
    ]
    return subprocess.run(
        command, env=os.environ | {"JAXTRADE_NEW_EXAMPLES": "1"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
