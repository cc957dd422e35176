"""An argument parser that suggests the command or flag that was probably meant. Imports no heavy library."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '?([^'\s]*)'? \(choose from (.*)\)$")


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The end of a message: the known word that `word` resembles, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors about a mistyped command or flag name the nearest one. Exit code 2, as usual.

    An error is one line: the usage of a command with many flags would hide it. A flag is not completed: `--timestep` is
    a mistake and not `--timesteps`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        found = _CHOICE.search(message)
        if found is not None:
            message += nearest_word(found[1], re.findall(r"[\w-]+", found[2]))
        elif message.endswith("required: COMMAND"):
            super().error(f"give a command; `{self.prog} --help` lists them")
        if "--help" not in message:
            message += f" (see {self.prog} --help)"
        self.exit(2, f"error: {message}\n")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As ArgumentParser does, but a command refuses unknown flags itself: it knows which ones it has."""
        known, others = super().parse_known_args(args, namespace)
        flags = [word.partition("=")[0] for word in others if word.startswith("-")]
        if flags and self._subparsers is None:
            hint = nearest_word(flags[0], (name for name in self._option_string_actions if name.startswith("--")))
            self.error(f"there is no flag {', '.join(flags)}{hint}")
        return known, others
