"""`python -m tests.mutation [ID ...] [--package NAME] [--jobs N]`: which seeded faults do the quick
tests notice?

Exit status 1 where one survives, or has lost its place in the source.
"""

import argparse
import sys
import time
from collections import Counter

from tests.mutation.faults import read_faults
from tests.mutation.runner import BaselineError, audit


def chosen(ids, package):
    """The faults that were asked for, all by default. Raises SystemExit for an unknown id."""
    faults = [
        fault for fault in read_faults() if fault.caught_by and package in (None, fault.package)
    ]
    known = {fault.id for fault in faults}
    if unknown := [name for name in ids if name not in known]:
        raise SystemExit(
            f"no such mutation: {', '.join(unknown)} (see tests/mutation/mutations.yaml)"
        )
    return [fault for fault in faults if not ids or fault.id in ids]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="mutations to try; all by default")
    parser.add_argument("--package", help="only those of one package")
    parser.add_argument(
        "--jobs", type=int, default=1, help="copies of the repository that are tested side by side"
    )
    options = parser.parse_args(argv)
    faults, start, outcomes = (
        chosen(options.ids, options.package),
        time.perf_counter(),
        Counter(),
    )
    try:
        for verdict in audit(faults, options.jobs):
            outcomes[verdict.outcome] += 1
            print(verdict.line, flush=True)
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 1
    others = "".join(
        f", {count} {name}" for name, count in sorted(outcomes.items()) if name != "caught"
    )
    print(
        f"{outcomes['caught']} of {len(faults)} mutations caught{others} ({time.perf_counter() - start:.0f} s)"
    )
    return int(outcomes["caught"] != len(faults))


if __name__ == "__main__":
    sys.exit(main())
