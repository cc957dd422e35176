"""`jaxtrade menu`: a table of keys that end in a command, which is printed and then run in a process
of its own. `3`, `1`, `NQ` tests the whole curriculum, as in RL-Trainer. Answers may be piped. The
last key of the first list, `q` or the end of the input leaves with the last command's exit code.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from datetime import date
from pathlib import Path
from string import Formatter
from typing import Any

from jaxtrade.cli.flags import count
from jaxtrade.data.contracts import CONTRACTS
from jaxtrade.errors import ConfigError

BARS = "{file} --market {market:ES} --set data.stamp={stamp:open} --set data.time_zone={zone:none}"
MENU = {  # keys -> title, and for a leaf the command with its questions
    "": ("jaxtrade", ""),
    "1": ("Check this machine", "doctor"),
    "2": ("Data", ""),
    "21": ("Check a file of bars", f"data check {BARS}"),
    "22": ("Describe a market: sessions, stops, costs", "data describe --market {market:ES}"),
    "3": ("Train", ""),
    "31": ("Test: the curriculum, in minutes", "curriculum --test --market {market:NQ}"),
    "32": ("Full training", ""),
    "321": ("The bundled week of ES bars", "train quickstart"),
    "322": ("Your own bars", f"train --data {BARS}"),
    "323": ("Three tasks, one after the other (curriculum)", "curriculum"),
    "33": ("Continue", ""),
    "331": ("A run that was stopped, from its newest checkpoint", "train --resume {run}"),
    "332": ("A curriculum that was stopped", "curriculum --resume {course}"),
    "333": ("A finished run, as a new one", "train --continue {run} --timesteps {steps:1M}"),
    "4": ("Evaluate", ""),
    "41": ("Evaluate a run against the baselines", "evaluate {run}"),
    "42": ("Print one session bar by bar", "replay {run} --session {date}"),
}


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """Make a check that an answer is one of a few words, in capitals or not."""
    folded = {word.lower(): word for word in known}

    def check(text: str) -> str:
        if text.lower() not in folded:
            raise ValueError(f"'{text}': expected one of {', '.join(known)}")
        return folded[text.lower()]

    return check


def holding(file: str) -> Callable[[str], str]:
    """Make a check that an answer is a folder that holds `file`, or for an empty name a file."""

    def check(text: str) -> str:
        if not text or not (Path(text) / file).is_file():
            raise ValueError(f"'{text}': there is no file {Path(text) / file}")
        return text

    return check


def null(text: str) -> str:
    """The word `none` as YAML writes it."""
    return "null" if text == "none" else text


QUESTIONS: dict[str, tuple[str, Callable[[str], object]]] = {  # the check raises ValueError
    "file": ("File of bars (CSV, CSV.gz or Parquet)", holding("")),
    "market": ("Market", one_of(CONTRACTS)),
    "stamp": ("A bar's stamp is the time of its open or its close", one_of(("open", "close"))),
    "zone": ("Time zone of the stamps, such as UTC (none: they carry an offset)", null),
    "run": ("Folder of the run", holding("config.yaml")),
    "course": ("Folder of the curriculum", holding("curriculum.yaml")),
    "date": ("Trade date, YYYY-MM-DD", date.fromisoformat),
    "steps": ("Environment steps", count),
}


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


def run(args: Any) -> int:
    """Handle `menu`. Raises ConfigError if it may not ask."""
    if args.non_interactive or (in_automation() and sys.stdin.isatty()):
        why = "--non-interactive" if args.non_interactive else "the variable CI"
        raise ConfigError(
            f"{why}: nothing may be asked, and a menu asks; name a command, such as "
            "'jaxtrade train --test --market NQ' (all: jaxtrade --help)"
        )
    return walk(run_command)


def walk(runner: Callable[[list[str]], int]) -> int:
    """Ask and run until the user leaves -> exit code of the last command; 0 if none was run."""
    code, keys = 0, ""
    try:
        while True:
            title, command = MENU[keys]
            if command:
                words = [filled(word) for word in command.split()]
                print(f"\n$ jaxtrade {shlex.join(words)}\n", flush=True)
                code, keys = runner(words), ""
                if code == 130:  # Ctrl-C
                    return code
                print(f"\n(exit code {code})", flush=True)
                continue
            below = {key[-1]: MENU[key][0] for key in MENU if key and key[:-1] == keys}
            leave = str(len(below) + 1)
            below[leave] = "Back" if keys else "Exit"
            print("\n".join(["", title, *(f"  {key}  {name}" for key, name in below.items())]))
            chosen = ask("Your choice", "", one_of(below))
            if chosen == leave and not keys:
                return code
            keys = keys[:-1] if chosen == leave else keys + chosen
    except EOFError:
        print(flush=True)
        return code


def filled(word: str) -> str:
    """A word of a command, with an answer in place of its question. {name:default} is a question."""
    [(text, name, default, _)] = Formatter().parse(word)
    if name is None:
        return text
    if name in ("run", "course"):  # the default is the newest
        file = "config.yaml" if name == "run" else "curriculum.yaml"
        found = sorted(Path("runs").glob(f"*/{file}"), key=os.path.getmtime)
        default = str(found[-1].parent) if found else ""
    question, check = QUESTIONS[name]
    return text + ask(question, default or "", check)


def ask(question: str, default: str, check: Callable[[str], object]) -> str:
    """Ask until `check` takes the answer. Enter means the default. Raises EOFError to leave."""
    while True:
        try:
            given = input(f"{question}{f' [{default}]' if default else ''}: ")
            if not sys.stdin.isatty():  # a transcript shows the answers too
                print(given if given.isprintable() else "", flush=True)
            if not given.isprintable():
                raise ValueError("expected text")
            given = given.strip() or default
            if given.lower() == "q":
                raise EOFError
            return str(check(given))
        except (ValueError, argparse.ArgumentTypeError) as error:  # also bytes that are no text
            print(f"  {error}", flush=True)


def run_command(words: list[str]) -> int:
    """Run `jaxtrade WORDS` with this process's search path -> exit code. Piped answers are left to
    the menu, and Ctrl-C to the command, which saves and ends.
    """
    start = f"import runpy, sys; sys.path[:] = {sys.path!r}; runpy.run_module('jaxtrade', None, "
    code = [sys.executable, "-P", "-c", start + "'__main__', True)", *words]
    process = subprocess.Popen(code, stdin=None if sys.stdin.isatty() else subprocess.DEVNULL)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        returned = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return returned if returned >= 0 else 128 - returned  # as a shell says that a signal ended it
