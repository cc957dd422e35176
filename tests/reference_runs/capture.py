"""Run one command line of `jaxtrade`, and note the digest of each large program that JAX compiles.

    python tests/reference_runs/capture.py OUT.json train quickstart --test

A program that takes over the memory of its arguments is a chunk of training. It is neither compiled
nor run: one that returns the state as it was takes its place, so a run takes seconds. All others are
compiled as they are. This file is run by its path and needs nothing of the package but its command,
so it works on any commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path

from jax._src import compiler
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

LARGE = 30_000  # characters of text: smaller programs are what the host computes beside a run
DONATES = re.compile(r"tf\.aliasing_output|jax\.buffer_donor")
NAMES = re.compile(r'@("(\\.|[^"\\])*"|[\w.$-]+)')
LABELS = re.compile(r'(, )?jax\.(result_info|arg_info) = "(\\.|[^"\\])*"')


def normalised(text):
    """A program's text without what renaming or moving its source changes: names of the module, of
    functions and of results. Locations are not printed in the first place.
    """
    numbers: dict[str, str] = {}
    text = LABELS.sub("", re.sub(r"^module @\S+", "module", text))
    return NAMES.sub(lambda name: "@" + numbers.setdefault(name[0], f"f{len(numbers)}"), text)


def digest(text):
    """Of a program's text: equal where the programs compute the same bits in the same way."""
    return hashlib.sha256(normalised(text).encode()).hexdigest()[:16]


def _filled(kind):
    if str(kind) == "!stablehlo.token":
        return stablehlo.AfterAllOp([]).result
    ranked = ir.RankedTensorType(kind)
    element = ranked.element_type
    floating = str(element).startswith(("f", "bf"))
    # True: among the metrics it says that an update was finite
    number = int(str(element) == "i1")
    value = ir.FloatAttr.get(element, 0.0) if floating else ir.IntegerAttr.get(element, number)
    return stablehlo.ConstantOp(ir.DenseElementsAttr.get_splat(ranked, value)).result


def _is_main(operation):
    named = operation.operation.name == "func.func"
    return named and ir.StringAttr(operation.attributes["sym_name"]).value == "main"


def passing_through(module):
    """A program of the same types that returns its arguments, each result the next one of its type
    that is left, and zeros or True where none is.
    """
    copy = ir.Module.parse(str(module), module.context)
    with copy.context, ir.Location.unknown():
        (main,) = (each for each in copy.body.operations if _is_main(each))
        block = main.regions[0].blocks[0]
        end = block.operations[len(block.operations) - 1]
        left = list(block.arguments)
        with ir.InsertionPoint(end):
            for place, kind in enumerate([each.type for each in end.operands]):
                same = next((each for each in left if each.type == kind), None)
                if same is not None:
                    left.remove(same)
                end.operation.operands[place] = _filled(kind) if same is None else same
        for operation in reversed(list(block.operations)[:-1]):
            if not any(True for result in operation.results for _ in result.uses):
                operation.operation.erase()
        for operation in list(copy.body.operations):
            if operation.operation.name == "func.func" and not _is_main(operation):
                operation.operation.erase()
    return copy


def main():
    out, words = Path(sys.argv[1]), sys.argv[2:]
    found: list[str] = []
    real = compiler.compile_or_get_cached

    def compile_or_pass(backend, computation, *rest, **more):
        text = str(computation)
        if len(text) >= LARGE:
            found.append(digest(text))
            if folder := os.environ.get("KEEP_TEXTS"):
                (Path(folder) / f"{found[-1]}.txt").write_text(normalised(text))
            if DONATES.search(text):
                computation = passing_through(computation)
        return real(backend, computation, *rest, **more)

    compiler.compile_or_get_cached = compile_or_pass
    from jaxtrade.cli import main as command

    try:
        return command(words)
    finally:
        out.write_text(json.dumps(sorted(found)), encoding="utf-8")  # threads compile too


if __name__ == "__main__":
    raise SystemExit(main())
