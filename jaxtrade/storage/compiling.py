"""Programs that are compiled beside other work: XLA compiles in threads, without Python's lock.

A program is traced and lowered where `Programs.begin` is called, because tracing holds Python's
lock and follows the settings of its thread. XLA then compiles it in a thread, or JAX reads it from
its cache (`storage.programs`).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import jax

from jaxtrade import interrupt
from jaxtrade.text import FORECAST
from jaxtrade.types import PyTree

# Seconds of XLA on a CPU for each second of tracing and lowering: 3.6 to 4.5 with PPO, PQN, DQN and
# `allocate`, on idle cores and on busy ones.
XLA_SECONDS = 4.0

THREADS = 2  # XLA uses further threads of its own for large programs


class Pending:
    """A program that is being compiled.

    result_like: shapes and dtypes of its result.
    eager: whether it is a function that is not compiled at all.
    """

    def __init__(self, result_like: PyTree, eager: bool = False) -> None:
        # Without the placement, which JAX would write into every program that is lowered for these
        # shapes.
        self.result_like: PyTree = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type),
            result_like,
        )
        self.eager = eager
        self.seconds = 0.0  # spent on this program, in whatever thread
        self.lowering = 0.0  # of them on tracing and lowering
        self._told = eager  # how long it compiles
        self._future: Future[Any] = Future()

    @classmethod
    def ready(cls, function: Callable[..., Any], result_like: PyTree) -> Self:
        """Wrap a function that takes a program's place."""
        made = cls(result_like, eager=True)
        made._future.set_result(function)
        return made

    def forecast(self) -> str:
        """Return how long the rest takes on this machine, as a line.

        "" where it was told before, or nothing is compiled.
        """
        if self._told:
            return ""
        self._told = True
        if (device := jax.default_backend()) != "cpu":
            return f"{FORECAST}a time that is not known beforehand on a {device}"
        left = max(1.0, XLA_SECONDS * self.lowering)
        about = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
        return (
            f"{FORECAST}about {about} here, or a moment if JAX's cache has the program from an "
            "earlier run"
        )

    def wait(self) -> jax.stages.Compiled:
        """Wait for the compiled program and return it.

        Call it without the static arguments. Raises what the compilation raised.
        """
        return self._future.result()


class Programs:
    """The programs of one run. Use it as a context manager: at its end no thread is left."""

    def __init__(self, eager: bool = False) -> None:
        """eager: compile nothing (`compute.eager`).

        Every operation then runs by itself, in the order of the source code: a debugger, `print` and
        an exception's line number see values and not tracers. The numbers are those of the compiled
        program up to rounding, because XLA fuses and reorders sums. It is very slow.
        """
        self._eager = eager
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="jaxtrade-compile")
        self._begun: dict[Hashable, Pending] = {}
        self._busy: list[str] = []  # names; several threads add and remove

    @property
    def busy(self) -> str:
        """What is being traced or compiled now: names with commas between them, or ""."""
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
        self._pool.shutdown(wait=not interrupt.was_received(), cancel_futures=bool(kind))

    def begin(
        self,
        name: str,
        program: Any,
        args: tuple[Any, ...],
        static: tuple[Hashable, ...] = (),
        later: bool = False,
    ) -> Pending:
        """Begin to compile a jitted function, and return at once (after tracing and lowering).

        Args:
            name: of the program, for whoever waits.
            program: jitted function of (*static, *args).
            args: arguments, concrete or abstract (`jax.ShapeDtypeStruct`).
            later: compile it once the programs begun before are ready, so as not to delay them.
        Raises what tracing raises. `Pending.wait` raises an error of XLA.
        """
        if self._eager:
            own = partial(program, *static)
            return Pending.ready(jax.disable_jit()(own), jax.eval_shape(own, *args))
        # They came earlier, so they have a thread or an earlier place in the queue.
        before = [each._future for each in self._begun.values()] if later else []
        start = time.perf_counter()
        with self._working(name):
            lowered = program.lower(*static, *args)
        pending = Pending(lowered.out_info)
        pending.seconds = pending.lowering = time.perf_counter() - start

        def compile_program() -> jax.stages.Compiled:
            wait(before)
            start = time.perf_counter()
            with self._working(name):
                made = lowered.compile()
            pending.seconds += time.perf_counter() - start
            return made

        pending._future = self._pool.submit(compile_program)
        self._begun[program, static, describe_arguments(args)] = pending
        return pending

    def find(
        self, program: Any, args: tuple[Any, ...], static: tuple[Hashable, ...] = ()
    ) -> Pending | None:
        """Return the program that `begin` was called for with such arguments, or None."""
        return self._begun.get((program, static, describe_arguments(args)))

    def run_after(self, task: Callable[[], object]) -> None:
        """Run another task in a thread, after the programs that were begun before."""
        self._pool.submit(task).add_done_callback(_log_failure)


class RepeatedPrograms(Programs):
    """The programs of one run that is repeated with other values.

    Each is compiled once, and serves every repetition.

    A program is known by its name and the shapes of its arguments. So use it only for repetitions
    whose configurations differ in nothing but arguments of the programs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Hashable, Pending] = {}

    def begin(
        self,
        name: str,
        program: Any,
        args: tuple[Any, ...],
        static: tuple[Hashable, ...] = (),
        later: bool = False,
    ) -> Pending:
        """Begin as `Programs.begin`, or return what was begun before.

        A program counts as begun before if its name and such arguments are the same.
        """
        signature = name, static, describe_arguments(args)
        if signature not in self._known:
            self._known[signature] = super().begin(name, program, args, static, later)
        return self._known[signature]


def describe_arguments(args: Any) -> tuple[Any, ...]:
    """Describe the structure, shapes and types of arguments, as plain values.

    Arrays may be abstract (`jax.ShapeDtypeStruct`).
    """
    leaves, tree = jax.tree.flatten(args)
    return str(tree), tuple(
        (tuple(leaf.shape), str(leaf.dtype), bool(getattr(leaf, "weak_type", False)))
        for leaf in leaves
    )


def _log_failure(future: Future[Any]) -> None:
    """Print the error of a task that nobody waits for."""
    if not future.cancelled() and not interrupt.was_received() and (error := future.exception()):
        traceback.print_exception(error)
