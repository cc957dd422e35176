"""`jaxtrade menu`: numbered questions that end in a command. The command is printed, then run in a
process of its own.

The keys are those of RL-Trainer's menu: `3`, `1`, `NQ` runs the smoke test. Answers may be piped.
Key 5, `q` or the end of the input end the menu with the exit code of the last command, Ctrl-C with
130. It loads no heavy library.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.cli.flags import count
from jaxtrade.data.contracts import CONTRACTS
from jaxtrade.errors import ConfigError

Words = list[str]
Runner = Callable[[Words], int]  # runs the words after `jaxtrade` -> exit code
INTERRUPTED = 130
_START = (
    "import runpy, sys; sys.path[:] = {path!r}; "
    "runpy.run_module('jaxtrade', run_name='__main__', alter_sys=True)"
)


class LeaveError(Exception):
    """The input has ended, or the user asked to leave."""


class Branch(NamedTuple):
    """A list of choices: key -> (title, what it leads to). None goes back."""

    title: str
    choices: dict[str, tuple[str, Any]]  # a Branch, a function () -> Words, or None


def add_parser(commands: Any) -> None:
    """Add the parser of `menu`."""
    menu = commands.add_parser(
        "menu", help="choose what to do from numbered lists; prints each command that it runs"
    )
    menu.add_argument("--non-interactive", action="store_true", help="refuse, because a menu asks")


def in_automation() -> bool:
    """Whether the variable CI says that nobody is there to answer."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def opens_by_itself() -> bool:
    """Whether `jaxtrade` without a command opens the menu: a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not in_automation()


def run(args: Any, runner: Runner | None = None) -> int:
    """Handle `menu`. Returns the exit code of the last command; 0 if none was run.

    Raises ConfigError if it may not ask. KeyboardInterrupt is not caught.
    """
    if args.non_interactive or (in_automation() and sys.stdin.isatty()):
        why = "--non-interactive" if args.non_interactive else "the variable CI"
        raise ConfigError(
            f"{why}: nothing may be asked, and a menu asks; name a command, such as "
            "'jaxtrade train --test --market NQ' (all: jaxtrade --help)"
        )
    return walk(runner or run_command)


def walk(runner: Runner) -> int:
    """Ask and run until the user leaves. Returns the exit code of the last command; 0 if none was
    run.
    """
    code, path = 0, [MAIN]
    try:
        while True:
            chosen = choose(path[-1])
            if chosen is None:
                path.pop()
            elif isinstance(chosen, Branch):
                path.append(chosen)
            else:
                words = chosen()
                say(f"\n$ jaxtrade {shlex.join(words)}\n")
                code, path = runner(words), [MAIN]
                if code == INTERRUPTED:
                    return code
                say(f"\n(exit code {code})")
            if not path:
                return code
    except LeaveError:
        say("")
        return code


def choose(branch: Branch) -> Branch | Callable[[], Words] | None:
    """Show a list and ask for a key until it is one of the list."""
    say(f"\n{branch.title}")
    for key, (title, _) in branch.choices.items():
        say(f"  {key}  {title}")
    key = ask(
        "Your choice",
        lambda text: (
            None
            if text in branch.choices
            else f"expected one of {', '.join(branch.choices)}, or q to leave"
        ),
    )
    return branch.choices[key][1]


def say(text: str) -> None:
    """Print a line at once, before what a command prints."""
    print(text, flush=True)


def ask(question: str, fault: Callable[[str], str | None], default: str = "") -> str:
    """Ask until an answer has no fault. Enter means the default.

    fault: answer -> what is wrong with it, or None. Raises LeaveError for `q` and at the end of the
        input.
    """
    while True:
        try:
            given = input(f"{question}{f' [{default}]' if default else ''}: ")
        except EOFError:
            raise LeaveError from None
        except UnicodeDecodeError:
            given = "\0"  # not text: refused below
        if not sys.stdin.isatty():
            say(given if given.isprintable() else "")  # a transcript shows the answers too
        given = given.strip() or default
        if given.lower() == "q":
            raise LeaveError
        wrong = fault(given) if given.isprintable() else "expected text"
        if wrong is None:
            return given
        say(f"  {wrong}")


def ask_market(default: str) -> str:
    """A market's symbol."""
    return ask(
        "Market",
        lambda text: (
            None
            if text.upper() in CONTRACTS
            else f"no market is called '{text}' (known: {', '.join(CONTRACTS)})"
        ),
        default,
    ).upper()


def ask_file(question: str) -> str:
    """The path of a file that exists."""
    return ask(
        question, lambda text: None if Path(text).is_file() else f"there is no file '{text}'"
    )


def ask_one_of(question: str, known: Collection[str], default: str = "") -> str:
    """One of a few words."""
    return ask(
        question, lambda text: None if text in known else f"expected {' or '.join(known)}", default
    )


def ask_run(what: str = "config.yaml") -> str:
    """A folder of a run; the newest one below runs/ is the default. what: a file that it must
    hold.
    """
    found = [path.parent for path in Path("runs").glob(f"*/{what}")]
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return ask(
        "Folder of the run",
        lambda text: (
            None
            if text and (Path(text) / what).is_file()
            else f"'{text}' is no folder of a run (it has no {what})"
        ),
        str(newest) if newest else "",
    )


def own_bars() -> Words:
    """The flags that name a file of bars, and say how to read its stamps."""
    file, market = ask_file("File of bars (CSV, CSV.gz or Parquet)"), ask_market("ES")
    stamp = ask_one_of(
        "A bar's stamp is the time of its open or its close", ("open", "close"), "open"
    )
    zone = ask(
        "Time zone of the stamps, such as UTC or America/New_York (none: they carry an offset)",
        lambda _: None,
        "none",
    )
    return [
        "--market",
        market,
        "--data",
        file,
        "--set",
        f"data.stamp={stamp}",
        *(["--set", f"data.time_zone={zone}"] if zone != "none" else []),
    ]


def check_data() -> Words:
    """The command that checks a file."""
    data = own_bars()
    file = data[data.index("--data") + 1]
    return ["data", "check", file, *data[:2], *data[4:]]


def replay() -> Words:
    """The command that prints a session."""

    def fault(text: str) -> str | None:
        try:
            date.fromisoformat(text)
        except ValueError:
            return f"'{text}' is no date; write it as 2013-10-11"
        return None

    return ["replay", ask_run(), "--session", ask("Trade date", fault)]


def further() -> Words:
    """The command that trains a finished run further."""

    def fault(text: str) -> str | None:
        try:
            count(text)
        except argparse.ArgumentTypeError as error:
            return str(error)
        return None

    return ["train", "--continue", ask_run(), "--timesteps", ask("Environment steps", fault, "1M")]


DATA = Branch(
    "Data",
    {
        "1": ("Check a file of bars", check_data),
        "2": (
            "Describe a market: sessions, stops, costs",
            lambda: ["data", "describe", "--market", ask_market("ES")],
        ),
        "3": ("Back", None),
    },
)
FULL = Branch(
    "Full training",
    {
        "1": ("The bundled week of ES bars", lambda: ["train", "quickstart"]),
        "2": ("Your own bars", lambda: ["train", *own_bars()]),
        "3": ("Three tasks, one after the other (curriculum)", lambda: ["curriculum"]),
        "4": ("Back", None),
    },
)
CONTINUE = Branch(
    "Continue",
    {
        "1": (
            "A run that was stopped, from its newest checkpoint",
            lambda: ["train", "--resume", ask_run()],
        ),
        "2": (
            "A curriculum that was stopped",
            lambda: ["curriculum", "--resume", ask_run("curriculum.yaml")],
        ),
        "3": ("A finished run, as a new run with more steps", further),
        "4": ("Back", None),
    },
)
TRAIN = Branch(
    "Train",
    {
        "1": (
            "Test: about a minute on a few days of bars",
            lambda: ["train", "--test", "--market", ask_market("NQ"), "--non-interactive"],
        ),
        "2": ("Full training", FULL),
        "3": ("Continue", CONTINUE),
        "4": ("Back", None),
    },
)
EVALUATE = Branch(
    "Evaluate",
    {
        "1": ("Evaluate a run against the baselines", lambda: ["evaluate", ask_run()]),
        "2": ("Print one session bar by bar", replay),
        "3": ("Back", None),
    },
)
MAIN = Branch(
    "jaxtrade",
    {
        "1": ("Check this machine", lambda: ["doctor"]),
        "2": ("Data", DATA),
        "3": ("Train", TRAIN),
        "4": ("Evaluate", EVALUATE),
        "5": ("Exit", None),
    },
)


def run_command(words: Words) -> int:
    """Run `jaxtrade WORDS` with this process's search path -> exit code. Piped answers are left to
    the menu.
    """
    code = [sys.executable, "-P", "-c", _START.format(path=sys.path), *words]
    process = subprocess.Popen(code, stdin=None if sys.stdin.isatty() else subprocess.DEVNULL)
    with _left_to_the_command():
        returned = process.wait()
    return returned if returned >= 0 else 128 - returned  # as a shell says that a signal ended it


@contextmanager
def _left_to_the_command() -> Iterator[None]:
    """Inside this block Ctrl-C is ignored here: the terminal sends it to the command too, which
    saves and ends.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
