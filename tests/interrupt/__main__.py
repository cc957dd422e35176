"""Send Ctrl-C at random moments to train, curriculum, evaluate and bench, and count what comes of
it.

    python -m tests.interrupt --tries 50 --seed 1

Prints one line for each try and a table. The exit code is 1 if a try had a fault. Reaction times
are of this machine, with whatever else runs on it. Linux only.
"""

import argparse
import signal
import statistics
import sys

from tests.interrupt.tries import COMMANDS, random_tries


def table(tries, commands):
    """Exit codes, faults and reaction times by command."""
    lines = [
        f"{'command':<12}{'tries':>6}{'code 130':>10}{'by signal':>11}{'faults':>8}{'median s':>10}"
        f"{'longest s':>11}"
    ]
    for name in (*(command.name for command in commands), "all"):
        own = [each for each in tries if name in (each.command, "all")]
        if own:
            seconds = [each.seconds for each in own]
            lines.append(
                f"{name:<12}{len(own):>6}{sum(each.code == 130 for each in own):>10}"
                f"{sum(each.code == -signal.SIGINT for each in own):>11}{sum(bool(each.faults) for each in own):>8}"
                f"{statistics.median(seconds):>10.2f}{max(seconds):>11.2f}"
            )
    return "\n".join([*lines, "by signal: before Python had started; a shell calls that 130"])


def main():
    """Run the tries. Returns 1 if one had a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.interrupt", description=__doc__)
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[command.name for command in COMMANDS])
    given = parser.parse_args()
    commands = [command for command in COMMANDS if given.only in (None, command.name)]
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background processes of a shell ignore it
    tries = []
    for found in random_tries(given.tries, given.seed, commands):
        tries.append(found)
        print(
            f"{len(tries):>3} {found.command:<11} after {found.delay:6.2f} s: {found.code} in {found.seconds:.2f} s  "
            f"{'; '.join(found.faults) or 'ok'}  | {found.said[-150:]}",
            flush=True,
        )
    print(table(tries, commands))
    return int(any(found.faults for found in tries))


if __name__ == "__main__":
    sys.exit(main())
