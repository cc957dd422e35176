"""Programs that are compiled beside other work: XLA compiles in threads, without Python's lock.

A program is traced and lowered where `Programs.begin` is called, because tracing holds Python's
lock and follows the settings of its thread. XLA then compiles it in a thread. With a `Store`, a
program of an earlier start is read instead.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import jax

from jaxtrade import interrupt
from jaxtrade.storage.kept import Store
from jaxtrade.storage.source import described, program_key, text_key
from jaxtrade.types import PyTree

THREADS = 2  # XLA uses further threads of its own for large programs


class Pending:
    """A program that is being compiled or read. kept: whether it comes from an earlier start, once
    it is ready. eager: whether it is a function that is not compiled at all (`storage.eager`)."""

    def __init__(self) -> None:
        self.kept = self.eager = False
        self.seconds = 0.0  # spent on this program, in whatever thread
        self._future: Future[Any] = Future()
        self._lowered: jax.stages.Lowered | None = None
        self._described: Callable[[], PyTree | None] = lambda: None

    @classmethod
    def ready(cls, function: Callable[..., Any], result_like: PyTree) -> Self:
        """A function that takes a program's place. result_like: shapes and dtypes of its result."""
        made = cls()
        made.eager, made._described = True, lambda: result_like
        made._future.set_result(function)
        return made

    @property
    def result_like(self) -> PyTree:
        """Shapes and dtypes of the program's result. Waits only for a kept program whose file is
        damaged or gone.
        """
        if (found := self._described()) is None:
            found = (self.wait() if self._lowered is None else self._lowered).out_info
        # Without the placement, which JAX would write into every program that is lowered for these
        # shapes.
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type),
            found,
        )

    def wait(self) -> jax.stages.Compiled:
        """The compiled program; call it without the static arguments. Raises what the compilation
        raised.
        """
        return self._future.result()


@dataclass(frozen=True)
class _Job:
    """What is to be compiled. key: `program_key`, or None if the program is not to be kept."""

    pending: Pending
    name: str
    program: Any
    static: tuple[Hashable, ...]
    args: tuple[Any, ...]
    key: str | None


class Programs:
    """The programs of one run. Use it as a context manager: at its end no thread is left.

    store: where programs are kept; None: nowhere. facts: plain values that determine what the
        programs compute, part
    of the key of every kept one.
    """

    def __init__(self, store: Store | None = None, facts: Mapping[str, Any] | None = None) -> None:
        self._store, self._facts = store, dict(facts or {})
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="jaxtrade-compile")
        self._begun: dict[Hashable, Pending] = {}
        self._closing = False
        self._busy: list[str] = []  # names; several threads add and remove

    @property
    def busy(self) -> str:
        """What is being traced, compiled or read at this moment: names with commas between them, or
        "".
        """
        return ", ".join(self._busy)

    @contextmanager
    def _working(self, name: str) -> Iterator[None]:
        self._busy.append(name)
        try:
            yield
        finally:
            self._busy.remove(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        # XLA cannot be interrupted. What has not begun is dropped if the run ends by an error or a
        # signal. A command that Ctrl-C ends does not wait for what has begun either: its process
        # ends at once, and its threads with it.
        self._closing = True
        self._pool.shutdown(wait=not interrupt.received(), cancel_futures=kind is not None)

    def begin(
        self,
        name: str,
        program: Any,
        args: tuple[Any, ...],
        static: tuple[Hashable, ...] = (),
        keep: bool = True,
        later: bool = False,
    ) -> Pending:
        """Begin to compile a jitted function, or to read it, and return at once (after tracing and
        lowering).

        Args:
            name: of the program; with `facts` it determines what the program computes.
            program: jitted function of (*static, *args).
            args: arguments, concrete or abstract (`jax.ShapeDtypeStruct`).
            keep: False for a program that depends on more than name and facts say, or that calls
                the host.
            later: compile or read it once the programs that were begun before are ready, so as not
                to delay them.
        Raises what tracing raises. An error of XLA is raised by `Pending.wait`.
        """
        start, pending = time.perf_counter(), Pending()
        before = [each._future for each in self._begun.values()] if later else []
        text = key = None
        if keep and self._store is not None and _on_one_device(args):
            key = program_key(name, self._facts, args, self._store.source)
            text = self._store.text_of(key)
        job = _Job(pending, name, program, static, args, key)
        if text is not None:
            assert self._store is not None
            pending._described = functools.partial(self._store.result_like, text)
            return self._registered(job, self._submit(before, self._read, job, text))
        with self._working(name):
            lowered = pending._lowered = program.lower(*static, *args)
        pending.seconds = time.perf_counter() - start
        return self._registered(job, self._submit(before, self._compile, job, lowered))

    def _registered(self, job: _Job, future: Future[Any]) -> Pending:
        """What has begun can be asked for. A program that could not be traced never began."""
        job.pending._future = future
        self._begun[_signature(job.program, job.static, job.args)] = job.pending
        return job.pending

    def begun(
        self, program: Any, args: tuple[Any, ...], static: tuple[Hashable, ...] = ()
    ) -> Pending | None:
        """The program that `begin` was called for with such arguments, or None."""
        return self._begun.get(_signature(program, static, args))

    def also(self, task: Callable[[], object]) -> None:
        """Do something else in a thread, after the programs that were begun before."""
        self._pool.submit(task).add_done_callback(_tell_failure)

    def _read(self, job: _Job, text: str) -> jax.stages.Compiled:
        """Read a program that was traced and lowered by an earlier start; compile it if its file is
        damaged.
        """
        start = time.perf_counter()
        assert self._store is not None
        found = self._store.read(text, job.args)
        job.pending.seconds, job.pending.kept = time.perf_counter() - start, found is not None
        return (
            self._compile(job, job.program.lower(*job.static, *job.args))
            if found is None
            else found
        )

    def _compile(self, job: _Job, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """Compile a program, or read it if an earlier start has compiled the same text."""
        start, store, key = time.perf_counter(), self._store, job.key
        if store is None or key is None:
            compiled = lowered.compile()
        else:
            text = text_key(job.name, lowered, job.args)
            found = store.read(text, job.args) if store.holds(text) else None
            compiled, data = (
                (found, None) if found is not None else store.compiled(lowered, job.name)
            )
            job.pending.kept = found is not None
            if found is not None or data is not None:
                self._later(functools.partial(_keep, store, key, text, data))
        job.pending.seconds += time.perf_counter() - start
        return compiled

    def _submit(
        self, before: list[Future[Any]], task: Callable[..., Any], job: _Job, *given: Any
    ) -> Future[Any]:
        """Do a job's task in a thread once `before` are done. They came earlier, so they have a
        thread or an earlier place in the queue."""

        def run() -> Any:
            wait(before)
            with self._working(job.name):
                return task(job, *given)

        return self._pool.submit(run)

    def _later(self, task: Callable[[], object]) -> None:
        if not self._closing:
            self._pool.submit(task).add_done_callback(_tell_failure)


class RepeatedPrograms(Programs):
    """The programs of one run that is repeated on other data: each is compiled once, and serves
    every repetition.

    A program is known by its name and the shapes of its arguments, as a kept one is. So use it only
    for repetitions with the same configuration.
    """

    def __init__(self, store: Store | None = None, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, facts)
        self._known: dict[Hashable, Pending] = {}

    def begin(
        self,
        name: str,
        program: Any,
        args: tuple[Any, ...],
        static: tuple[Hashable, ...] = (),
        keep: bool = True,
        later: bool = False,
    ) -> Pending:
        """As `Programs.begin`; what was begun before under this name for such arguments is returned
        as it is.
        """
        signature = _signature(name, static, args)
        if signature not in self._known:
            self._known[signature] = super().begin(name, program, args, static, keep, later)
        return self._known[signature]


def _tell_failure(future: Future[Any]) -> None:
    """Nobody waits for this task, so its error is printed here."""
    if (
        not future.cancelled()
        and not interrupt.received()
        and (error := future.exception()) is not None
    ):
        traceback.print_exception(error)


def _keep(store: Store, key: str, text: str, data: bytes | None) -> None:
    """Keep a program, or only note its key if the store holds the program already (`data` is
    None).
    """
    if data is None or store.write(text, data):
        store.link(key, text)


def _signature(program: Any, static: tuple[Hashable, ...], args: tuple[Any, ...]) -> Hashable:
    tree, leaves = described(args)
    return (
        program,
        static,
        tree,
        tuple((tuple(shape), dtype, weak) for shape, dtype, weak in leaves),
    )


def _on_one_device(args: tuple[Any, ...]) -> bool:
    """Whether all concrete arrays are on the first device, a CPU: kept programs were tested there
    alone.
    """
    usual = {jax.local_devices()[0]}
    return (
        jax.default_backend() == "cpu"
        and jax.config.values["jax_default_device"] is None
        and all(  # pyright: ignore (untyped)
            leaf.devices() == usual for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)
        )
    )
