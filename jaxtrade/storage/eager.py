"""Programs that are not compiled (`compute.eager`).

Every operation runs by itself, in the order of the source code.

A debugger, `print` and an exception's line number then see values and not tracers. The numbers are
those of the compiled program up to rounding, because XLA fuses and reorders sums. It is very slow.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax

from jaxtrade.storage.compiling import Pending, Programs
from jaxtrade.types import PyTree


class EagerProgram:
    """A jitted function that runs without jit."""

    def __init__(self, program: Any, static: tuple[Hashable, ...]) -> None:
        self._program, self._static = program, static

    def __call__(self, *args: PyTree) -> PyTree:
        with jax.disable_jit():
            return self._program(*self._static, *args)


class EagerPrograms(Programs):
    """The programs of a run that compiles nothing.

    Shapes and types are checked when a program begins, as ever.
    """

    def begin(
        self,
        name: str,
        program: Any,
        args: tuple[Any, ...],
        static: tuple[Hashable, ...] = (),
        later: bool = False,
    ) -> Pending:
        """Begin as `Programs.begin`, but at once: nothing is compiled."""
        del name, later
        like = jax.eval_shape(lambda *given: program(*static, *given), *args)
        return Pending.ready(EagerProgram(program, static), like)
