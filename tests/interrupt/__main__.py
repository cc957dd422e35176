"""Send Ctrl-C at random moments to train, curriculum, evaluate and bench, and count what comes of
it. With --term, send SIGTERM to the commands that can be resumed.

    python -m tests.interrupt --tries 50 --seed 1
    python -m tests.interrupt --tries 30 --term

Prints one line for each try and how many had a fault. The exit code is 1 if a try had a fault. Reaction times
are of this machine, with whatever else runs on it. Linux only.
"""

import argparse
import signal
import sys

from tests.interrupt.tries import COMMANDS, RESUMABLE, random_tries


def main():
    """Run the tries. Returns 1 if one had a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.interrupt", description=__doc__)
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=sorted({command.name for command in (*COMMANDS, *RESUMABLE)})
    )
    parser.add_argument("--term", action="store_true")
    given = parser.parse_args()
    commands, sent = (RESUMABLE, signal.SIGTERM) if given.term else (COMMANDS, signal.SIGINT)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background processes of a shell ignore it
    tries = []
    for found in random_tries(
        given.tries,
        given.seed,
        [command for command in commands if given.only in (None, command.name)],
        sent,
    ):
        tries.append(found)
        print(
            f"{len(tries):>3} {found.command:<11} after {found.delay:6.2f} s: {found.code} in {found.seconds:.2f} s  "
            f"{'; '.join(found.faults) or 'ok'}  | {found.said[-150:]}",
            flush=True,
        )
    faulty = sum(bool(found.faults) for found in tries)
    print(
        f"{faulty} of {len(tries)} had a fault; the longest took {max(t.seconds for t in tries):.2f} s"
    )
    return int(faulty > 0)


if __name__ == "__main__":
    sys.exit(main())
