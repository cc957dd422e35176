"""Questions of a command to a person at a terminal, or the list of flags that answer them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from jaxtrade.errors import ConfigError
from jaxtrade.text import show

TRIES = 3


class Question(NamedTuple):
    """One thing that a command cannot know.

    text: the question. flag: how to answer it on the command line. hints: lines printed before it.
        usual: the answer
    to an empty line; None if there is none. check: raises ConfigError for an answer that is not
    allowed.
    """

    text: str
    flag: str
    check: Callable[[str], object]
    hints: tuple[str, ...] = ()
    usual: str | None = None


def may_ask(refused: bool) -> bool:
    """Whether there is somebody to ask: a terminal, and no --non-interactive."""
    return not refused and sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: Question) -> str:
    """The answer, as typed. Raises ConfigError after three answers that are not allowed, or at the
    end of input.
    """
    for hint in question.hints:
        show(f"  {hint}")
    usual = "" if question.usual is None else f" [{question.usual}]"
    for _ in range(TRIES):
        try:
            given = input(f"{question.text}{usual}: ").strip() or question.usual or ""
        except EOFError:
            break
        try:
            question.check(given)
        except ConfigError as error:
            show(f"  {error}")
            continue
        return given
    raise ConfigError(f"no answer to '{question.text}'; give {question.flag}")


def one_of(*allowed: str) -> Callable[[str], None]:
    """A check for one of some words."""

    def check(given: str) -> None:
        if given not in allowed:
            raise ConfigError(f"expected {', '.join(allowed)}; found '{given}'")

    return check


def number(least: float, whole: bool = False) -> Callable[[str], None]:
    """A check for a number above `least` (whole: not below it)."""

    def check(given: str) -> None:
        try:
            value = int(given) if whole else float(given)
        except ValueError:
            raise ConfigError(
                f"expected a {'whole ' if whole else ''}number; found '{given}'"
            ) from None
        if not (value >= least if whole else value > least):
            raise ConfigError(
                f"expected {'at least' if whole else 'more than'} {least:g}; found '{given}'"
            )

    return check
