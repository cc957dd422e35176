"""Parts that a configuration chooses by name, such as tasks, networks and learners.

`parts.py` lists the kinds.

A built-in part is listed as `module:attribute` and imported when it is first used, so that names
can be checked before JAX is loaded. A user's module adds its own parts with `register`; `jaxtrade
train --import my_module` imports it before the configuration is read.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from jaxtrade.errors import ConfigError
from jaxtrade.text import did_you_mean

PartT = TypeVar("PartT")


def import_parts(modules: Iterable[str]) -> None:
    """Import the modules in which users register their parts. The current folder is searched first.

    Raises ConfigError for an invalid name, and for a module that does not exist. What a module
    itself raises is not caught.
    """
    for name in modules:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(
                f"imports (--import): '{name}' names no module; give its dotted name, such as my_module "
                "or package.module, without path and .py"
            )
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # the installed command has its own folder there
        try:
            with _registering_as(name):
                importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise  # the module was found; something that it imports was not
            raise ConfigError(
                f"imports (--import): there is no module '{name}' in {os.getcwd()} or among the "
                "installed packages; give its dotted name, without .py"
            ) from None


SCRIPT = "__main__"  # the program itself: nobody can import it again
_asked: str | None = None  # the module that `import_parts` is importing


@contextmanager
def _registering_as(name: str) -> Iterator[None]:
    """Let parts that are registered in this block be those of the module `name`.

    Modules that it imports may register them.
    """
    global _asked
    before, _asked = _asked, name
    try:
        yield
    finally:
        _asked = before


def _find_home() -> str:
    """Return the module from which a part is being registered, of the frames outside this package.

    It is `SCRIPT` for code that is in no module.
    """
    package, frame = __name__.partition(".")[0], sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] != package:
            return _asked or (name if name in sys.modules else SCRIPT)
        frame = frame.f_back
    return SCRIPT


class Registry(Generic[PartT]):
    """Names -> parts of one kind, in the order in which they were added."""

    def __init__(self, kind: str, built_in: Mapping[str, str], *keys: str) -> None:
        """Build the table of one kind of part.

        Args:
            kind: what the parts are, in error messages ("task").
            built_in: name -> `module:attribute`.
            keys: of the configuration, in which the name of a part stands.
        """
        self.kind, self.keys = kind, keys
        self._built_in = dict(built_in)
        self._added: dict[str, PartT] = {}
        self.homes: dict[str, str] = {}  # name of each part that was added -> the module to import

    @property
    def names(self) -> tuple[str, ...]:
        """All names; imports nothing."""
        return (*self._built_in, *self._added)

    def __contains__(self, name: str) -> bool:
        return name in self._built_in or name in self._added

    def register(self, name: str, part: PartT) -> PartT:
        """Add a part and return it. Raises ConfigError where another part has the name."""
        if name in self._built_in or self._added.get(name, part) is not part:
            raise ConfigError(
                f"{self.kind} '{name}' exists already; register yours under another name"
            )
        if name not in self._added:
            self.homes[name] = _find_home()
        self._added[name] = part
        return part

    def check(self, name: str) -> str:
        """Return `name`.

        Raises ConfigError, with the known names and a suggestion, where no part has it.
        """
        if name in self:
            return name
        raise ConfigError(
            f"no {self.kind} is called '{name}' (known: {', '.join(self.names)})"
            f"{did_you_mean(name, self.names)}; a {self.kind} of your own must be registered first: "
            "imports=[MODULE] (--import MODULE)"
        )

    def __getitem__(self, name: str) -> PartT:
        """Return the part. Raises ConfigError as `check`."""
        if self.check(name) in self._added:
            return self._added[name]
        module, _, attribute = self._built_in[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
