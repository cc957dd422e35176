"""`jaxtrade menu`: a table of keys that end in a command, which is printed and then run.

The command runs in a process of its own. `3`, `1`, `NQ` tests the whole curriculum, as in
RL-Trainer. Answers may be piped; the command checks them. The last key of the first list, `q` or
the end of the input leaves.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Formatter

import yaml

MENU = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def walk(runner: Callable[[list[str]], int]) -> int:
    """Ask and run until the user leaves.

    Return the exit code of the last command; 0 if none was run.
    """
    code, keys = 0, ""
    while code != 130:  # Ctrl-C
        title, command = MENU[keys]
        try:
            if command:
                words = [_fill_word(word) for word in shlex.split(command)]
                print(f"\n$ jaxtrade {shlex.join(words)}\n", flush=True)
                code, keys = runner(words), ""
                print(f"\n(exit code {code})", flush=True)
                continue
            below = {key: MENU[key][0] for key in MENU if key and key[:-1] == keys}
            leave = f"{keys}{len(below) + 1}"
            below[leave] = "Back" if keys else "Exit"
            print("\n".join(["", title, *(f"  {key[-1]}  {below[key]}" for key in below)]))
            chosen = keys + _ask("Your choice")
        except EOFError:
            break
        if chosen not in below:
            print(f"  expected one of {', '.join(key[-1] for key in below)}")
        elif chosen == leave and not keys:
            break
        else:
            keys = keys[:-1] if chosen == leave else chosen
    return code


def _fill_word(word: str) -> str:
    """Fill a word of a command with its answer.

    A pattern's default is the folder of its newest file.
    """
    [(text, question, default, _)] = Formatter().parse(word)
    if question is not None and default and "*" in default:
        found = sorted(Path().glob(default), key=os.path.getmtime)
        default = str(found[-1].parent) if found else ""
    return text if question is None else text + _ask(question, default or "")


def _ask(question: str, default: str = "") -> str:
    """Ask. Enter means the default. Raises EOFError to leave."""
    given = input(f"{question}{f' [{default}]' if default else ''}: ")
    given = "".join(filter(str.isprintable, given)).strip() or default
    if not sys.stdin.isatty():  # a transcript shows the answers too
        print(given, flush=True)
    if given.lower() == "q":
        raise EOFError
    return given


def run_command(words: list[str]) -> int:
    """Run `jaxtrade WORDS` and return the exit code.

    It gets Ctrl-C, but not the answers that are piped.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "jaxtrade", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=None if sys.stdin.isatty() else subprocess.DEVNULL,
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        returned = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return returned if returned >= 0 else 128 - returned  # as a shell says that a signal ended it
