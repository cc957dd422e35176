"""An argument parser that suggests the command or flag that was probably meant. Imports no heavy
library.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '?([^'\s]*)'? \(choose from (.*)\)$")


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The end of a message: the known word that `word` resembles, or nothing."""
    small = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), small, n=1)
    return f"; did you mean {small[near[0]]}?" if near else ""


def key_of_flag(flag: str) -> str:
    """The end of a message about an unknown flag: the configuration key that has its name, or
    nothing.

    A key that several learners have is named `learner.KEY`, which is that of the chosen learner.
    """
    from jaxtrade.config.keys import all_keys  # pydantic is loaded for this message alone
    from jaxtrade.config.learners import LEARNER, SECTIONS
    from jaxtrade.config.meant import foreign

    name = flag.removeprefix("--").replace("-", "_")
    theirs = [key for learner in SECTIONS if (key := foreign(name, learner)) is not None]
    found = list(
        dict.fromkeys([*(key for key in all_keys() if key.rpartition(".")[2] == name), *theirs])
    )
    last = {key.rpartition(".")[2] for key in found}
    if (
        len(found) > 1
        and len(last) == 1
        and all(key.partition(".")[0] in SECTIONS for key in found)
    ):
        found = [f"{LEARNER}.{last.pop()}"]
    return f"; set the key: --set {'=VALUE or --set '.join(found)}=VALUE" if found else ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors about a mistyped command or flag name the nearest one. Exit
    code 2, as usual.

    An error is one line: the usage of a command with many flags would hide it. A flag is not
    completed: `--timestep` is a mistake and not `--timesteps`.
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

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As ArgumentParser does, but a command refuses unknown flags itself: it knows which ones
        it has.
        """
        known, others = super().parse_known_args(args, namespace)
        flags = [word.partition("=")[0] for word in others if word.startswith("-")]
        if flags and self._subparsers is None:
            hint = key_of_flag(flags[0]) if {"overrides", "algorithm"} <= vars(known).keys() else ""
            hint = hint or nearest_word(
                flags[0], (name for name in self._option_string_actions if name[:2] == "--")
            )
            self.error(f"there is no flag {', '.join(flags)}{hint}")
        return known, others
