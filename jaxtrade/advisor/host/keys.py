"""API keys, read from an environment variable or a private file. The configuration names the place,
never the key.

A `Secret` prints as a mask and cannot be serialised by accident. Its `scrub` removes the key from
texts that others
wrote: a server may echo a key in its error message or in the model's answer.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from jaxtrade.errors import ConfigError

MIN_LENGTH = 8  # scrubbing a shorter "key" would remove ordinary words
_MASK = "[key]"
_HEAD = 6  # servers may echo only the first characters of a key
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_KEY = re.compile(rf"[!-~]{{{MIN_LENGTH},4096}}")


class Secret:
    """An API key. Only `reveal` returns it. Raises ConfigError for text that cannot be a key."""

    __slots__ = ("_value",)

    def __init__(self, value: str, source: str = "the key") -> None:
        if not _KEY.fullmatch(value):
            raise ConfigError(
                f"{source}: not a key; expected {MIN_LENGTH} to 4096 printable characters without blanks"
            )
        self._value = value

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def scrub(self, text: str, parts: bool = True) -> str:
        """`text` with the key masked, plain or escaped. parts: also mask words that begin like the
        key.
        """
        value = self._value
        for form in {
            value,
            quote(value, safe=""),
            value.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/"),
        }:
            text = text.replace(form, _MASK)
        return re.sub(re.escape(value[:_HEAD]) + r"[!-~]*", _MASK, text) if parts else text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


def read_key(
    env: str | None, file: str | Path | None, environ: Mapping[str, str] = os.environ
) -> Secret | None:
    """The key in a named variable or file; None where neither is named.

    Raises ConfigError, whose message never contains the key.
    """
    if env is not None and file is not None:
        raise ConfigError("advisor key_env and key_file: give one of them")
    if env is not None:
        if not _ENV_NAME.fullmatch(env):
            raise ConfigError(
                "advisor key_env: expected the NAME of an environment variable, not the key itself"
            )
        if not environ.get(env):
            raise ConfigError(f"advisor key_env: the environment has no variable {env}")
        return Secret(environ[env].strip(), f"environment variable {env}")
    return None if file is None else _from_file(Path(file))


def _from_file(path: Path) -> Secret:
    try:
        with path.open("rb") as handle:
            status = os.fstat(handle.fileno())
            if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
                raise ConfigError(f"advisor key_file {path}: others may read it; chmod 600 {path}")
            data = handle.read(8192)
    except OSError as error:
        raise ConfigError(f"advisor key_file {path}: {error.strerror}") from None
    return Secret(data.decode("ascii", "replace").strip(), f"advisor key_file {path}")
