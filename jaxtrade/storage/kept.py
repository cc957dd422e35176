"""Compiled programs as files, so that the next start of a command neither traces nor lowers nor
compiles.

JAX's own cache is keyed by the lowered program, so JAX must first trace and lower it. The files
here are keyed by what the program is made from (`source.program_key`). `executable` says what a
file holds. It uses internals of JAX, so only the methods of a `Store` import it, and a `Store` is
made only with a version of JAX that was tested (`programs`).
"""

from __future__ import annotations

import functools
import os
import secrets
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import jax

from jaxtrade.storage.source import Source, unchanged
from jaxtrade.types import PyTree

PROGRAM, KEY = ".program", ".key"  # suffixes
MOST_BYTES = 512 * 2**20  # of a folder; a program takes about 100 KB to 1 MB
OLD_SECONDS = 3600.0  # an unfinished file of this age is left over from a process that was killed
# What reading raises for damaged bytes, and what an unknown program may raise.
FAULTS = (
    zlib.error,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    NotImplementedError,
    jax.errors.JaxRuntimeError,
)
APART: dict[str, str | bool] = {"xla_embed_ir_in_executable": False}


class _Hits(threading.local):
    """Counts the programs that JAX reads from its own cache, by thread."""

    count = 0


_HITS = _Hits()


def _listen(event: str, **kwargs: str | int) -> None:
    del kwargs
    _HITS.count += event == "/jax/compilation_cache/cache_hits"


@functools.cache  # one listener per process
def _count_hits() -> _Hits:
    jax.monitoring.register_event_listener(_listen)
    return _HITS


class Store:
    """A folder of compiled programs.

    `TEXT.program` is the program of a lowered text. `KEY.key` names the text that a state of the source code lowers to
    (`source.program_key`), so that a change of the source that changes no program does not compile it again.

    source: the source files as they were before this package's modules were loaded. warn: receives
        a sentence about a
    file that could not be read or written. The program is then compiled as usual.
    """

    def __init__(
        self,
        folder: Path,
        source: Source,
        warn: Callable[[str], None],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.folder, self.source = folder, source
        self._warn, self._most = warn, most_bytes
        self._failed, self._lock = False, threading.Lock()

    def text_of(self, key: str) -> str | None:
        """The text key of a kept program. None if there is none, or if the source files have
        changed meanwhile.
        """
        path = self.folder / f"{key}{KEY}"
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None
        if len(text) != len(key) or not self.holds(text) or not unchanged(self.source):
            return None
        self._used(path)
        return text

    def holds(self, text: str) -> bool:
        """Whether there is a program of this text."""
        return (self.folder / f"{text}{PROGRAM}").is_file()

    def result_like(self, text: str) -> PyTree | None:
        """Shapes and dtypes of the result of a text's program, long before `read` has it. None if
        its file is gone, cannot be read or is damaged."""
        from jaxtrade.storage.executable import result_of

        try:
            return result_of((self.folder / f"{text}{PROGRAM}").read_bytes())
        except (*FAULTS, OSError):
            return None

    def read(self, text: str, args: PyTree) -> jax.stages.Compiled | None:
        """The program of a text. None if there is none, or if its file is damaged; then the file is
        removed.
        """
        path = self.folder / f"{text}{PROGRAM}"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"{path}: {error}; compiling the program again")
            return None
        from jaxtrade.storage.executable import unpacked

        try:
            program = unpacked(data, args)
        except (*FAULTS, OSError) as error:
            self._warn(f"{path}: a kept program cannot be used ({error}); compiling it again")
            with suppress(
                OSError
            ):  # a folder of another user; the file then stays, and is named at each start
                path.unlink(missing_ok=True)
            return None
        self._used(path)
        return program

    def _used(self, path: Path) -> None:
        """Mark a file as used now: those that were used last stay longest."""
        with suppress(OSError):  # read-only, or another process removed it
            os.utime(path)

    def compiled(
        self, lowered: jax.stages.Lowered, name: str
    ) -> tuple[jax.stages.Compiled, bytes | None]:
        """Compile a program that is to be kept -> (the program, its bytes, or None if it cannot be
        kept).

        It passes by JAX's own cache: a program that JAX has read from there lacks code when it is
        serialised again. An option of its default value gives it another key there, and it is not
        written. Its bytes are made before it runs, because XLA then adds to it what cannot be
        serialised. Raises what XLA raises.
        """
        from jaxtrade.storage.executable import beside_the_cache, calls, packed

        hits = _count_hits()
        before = hits.count
        with beside_the_cache():
            try:
                made = lowered.compile(compiler_options=APART)
            except (
                jax.errors.JaxRuntimeError
            ) as error:  # this XLA lacks the option, or the program is at fault
                self._warn(f"the program '{name}' is not kept for the next start: {error}")
                return lowered.compile(), None
        try:
            if hits.count > before:
                raise ValueError("JAX has read it from its own cache")
            return made, packed(made, calls(lowered.as_text()))
        except FAULTS as error:
            self._warn(f"the program '{name}' is not kept for the next start: {error}")
            return made, None

    def write(self, text: str, data: bytes) -> bool:
        """Keep a program. data: from `compiled`. Returns whether it is kept."""
        return not self._failed and self._replace(f"{text}{PROGRAM}", data)

    def link(self, key: str, text: str) -> None:
        """Note which text a key lowers to, unless the source files have changed meanwhile."""
        if not self._failed and unchanged(self.source):
            self._replace(f"{key}{KEY}", text.encode("ascii"))

    def _replace(self, name: str, data: bytes) -> bool:
        path = self.folder / name
        new = path.with_name(f"{name}.{secrets.token_hex(4)}.tmp")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as handle:
                handle.write(data)
            new.replace(path)
            self._evict()
        except OSError as error:
            with self._lock:
                first, self._failed = not self._failed, True
            if first:  # one note is enough
                self._warn(f"{self.folder}: programs are not kept for the next start: {error}")
            return False
        return True

    def _evict(self) -> None:
        """Remove the files that were not used for longest, until the others fit."""
        found = []
        for path in self.folder.iterdir():
            if not path.name.endswith((PROGRAM, KEY, ".tmp")):
                continue
            try:
                stat = path.stat()
            except FileNotFoundError:  # another process removed it
                continue
            found.append((stat.st_mtime, stat.st_size, path))
        total, newest = (
            sum(size for _, size, _ in found),
            max((time for time, _, _ in found), default=0.0),
        )
        for time, size, path in sorted(found):
            unfinished = path.suffix == ".tmp"
            if (newest - time > OLD_SECONDS) if unfinished else (total > self._most):
                path.unlink(missing_ok=True)
                total -= size
