"""Reads the text of a compiled XLA module: its launches, its loops, and the bytes that they move.

A launch is one kernel, copy, sort or library call that the host (or a captured graph) starts on the
device. The count of a computation is the number of its operations that start one, and a loop counts
its body as often as it runs.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# Operations that start nothing: they name, group or reinterpret values, or wait (`...-done`).
# `while`, `call` and `conditional` start what the computations that they call start.
FREE = frozenset(
    {
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "partition-id",
        "replica-id",
        "opt-barrier",
        "add-dependency",
        "while",
        "call",
        "conditional",
        "async-update",
        "domain",
    }
)
COLLECTIVES = frozenset(
    {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}
)
CALLING = ("while", "call", "conditional", "async-start")
BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "s16": 2,
    "u16": 2,
    "bf16": 2,
    "f16": 2,
    "s32": 4,
    "u32": 4,
    "f32": 4,
    "s64": 8,
    "u64": 8,
    "f64": 8,
}

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_NUMBER = re.compile(r"constant\((\d+)\)")


CUBLAS = (
    32 * 2**20
)  # bytes of scratch that cuBLAS gets on an H200, once in a program, however small its products are


def scratch(text: str) -> int:
    """Bytes among the temporaries of a module that are scratch of cuBLAS."""
    return CUBLAS if f"s8[{CUBLAS}]" in text else 0


@dataclass(frozen=True)
class Operation:
    """One instruction. shape: its result as written. calls: computations that it calls, by role.
    trips: how often a loop runs, None where the compiler does not say. scope: `op_name` of its
    metadata, the named scopes of the source.
    computation: that it belongs to. cycles: the compiler's estimate, 0 for none.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    calls: dict[str, str]
    trips: int | None
    scope: str
    line: str
    computation: str
    cycles: int

    @property
    def is_collective(self) -> bool:
        """Whether several devices compute the operation together. One that is split in two counts
        by its start.
        """
        return self.opcode.removesuffix("-start") in COLLECTIVES

    @property
    def launches(self) -> bool:
        """Whether the operation itself starts something on the device."""
        return self.opcode not in FREE and not self.opcode.endswith("-done")


@dataclass(frozen=True)
class Loop:
    """A loop of a module. path: names of the loops around it, outermost first. trips: rounds of one
    run of the loop, None if unknown. runs: how often it starts, product of the trips around it.
    own: launches of one round, loops inside it included."""

    name: str
    path: tuple[str, ...]
    scope: str
    trips: int | None
    runs: int
    own: int


@dataclass
class Module:
    """A compiled module: computation -> operations, and the name of the entry."""

    computations: dict[str, list[Operation]] = field(default_factory=dict)
    entry: str = ""
    _counts: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def launches(self, computation: str | None = None, unknown: int = 1) -> int:
        """Launches of one run. unknown: rounds that a loop of unknown length is counted with."""
        return int(
            self._total(
                "launches", lambda each: int(each.launches), computation or self.entry, unknown
            )
        )

    def bytes(self, unknown: int = 1) -> int:
        """Bytes that the launches of one run read and write (`moved_bytes`)."""
        return int(self._total("bytes", self._moved, self.entry, unknown))

    def cycles(self, unknown: int = 1) -> int:
        """The compiler's own estimate of the cycles of one run; 0 where it makes none."""
        return int(self._total("cycles", lambda each: each.cycles, self.entry, unknown))

    def collectives(self, computation: str | None = None, unknown: int = 1) -> int:
        """Operations of several devices together, of one run; of a computation, or of the entry."""
        return int(
            self._total(
                "collectives",
                lambda each: int(each.is_collective),
                computation or self.entry,
                unknown,
            )
        )

    def collective_bytes(self, computation: str | None = None, unknown: int = 1) -> int:
        """Bytes of the results of these operations."""
        return int(
            self._total(
                "collective bytes",
                lambda each: shape_bytes(each.shape) * each.is_collective,
                computation or self.entry,
                unknown,
            )
        )

    def _moved(self, operation: Operation) -> int:
        return (
            moved_bytes(operation, self.shapes[operation.computation]) if operation.launches else 0
        )

    @functools.cached_property
    def shapes(self) -> dict[str, dict[str, str]]:
        """Computation -> name of an operation -> shape of its result."""
        return {
            name: {each.name: each.shape for each in operations}
            for name, operations in self.computations.items()
        }

    def _total(self, what: str, of: Callable[[Operation], float], name: str, unknown: int) -> float:
        if (what, name, unknown) not in self._counts:
            self._counts[what, name, unknown] = sum(
                self._of(what, of, each, unknown) for each in self.computations[name]
            )
        return self._counts[what, name, unknown]

    def _of(
        self, what: str, of: Callable[[Operation], float], operation: Operation, unknown: int
    ) -> float:
        called = (
            [
                self._total(what, of, name, unknown)
                for role, name in operation.calls.items()
                if role != "condition"
            ]
            if operation.opcode in CALLING
            else []
        )
        match operation.opcode:
            case "while":
                return self.trips(operation, unknown) * called[0]
            case "conditional":  # the longest branch, and the predicate's way to the host
                return 1 + max(called)
            case "call" | "async-start":
                return sum(called)
        return of(operation)

    def trips(self, loop: Operation, unknown: int = 1) -> int:
        """Rounds of a loop: as the compiler says, or else the constant below which its counter must
        stay.
        """
        return self._trips(loop) or unknown

    def _trips(self, loop: Operation) -> int | None:
        if loop.trips is not None:
            return loop.trips
        condition = {each.name: each for each in self.computations[loop.calls["condition"]]}
        limits = [
            _NUMBER.search(condition[name].line)
            for each in condition.values()
            if each.opcode == "compare" and "direction=LT" in each.line
            for name in each.operands
            if name in condition and condition[name].opcode == "constant"
        ]
        return int(limits[0].group(1)) if len(limits) == 1 and limits[0] else None

    def loops(self, unknown: int = 1) -> Iterator[Loop]:
        """Every loop that the entry reaches, outer ones before inner ones."""
        yield from self._loops(self.entry, (), 1, unknown)

    def _loops(self, name: str, path: tuple[str, ...], runs: int, unknown: int) -> Iterator[Loop]:
        for operation in self.computations[name]:
            if operation.opcode == "while":
                body = operation.calls["body"]
                yield Loop(
                    operation.name,
                    path,
                    operation.scope,
                    self._trips(operation),
                    runs,
                    self.launches(body, unknown),
                )
                yield from self._loops(
                    body, (*path, operation.name), runs * self.trips(operation, unknown), unknown
                )
            elif operation.opcode in ("call", "conditional"):
                for called in operation.calls.values():
                    yield from self._loops(called, path, runs, unknown)

    def kinds(self, computation: str) -> dict[str, int]:
        """Opcode (of a fusion or a custom call with what it holds) -> how many of them one run
        starts, loops inside left out."""
        found: dict[str, int] = {}
        for operation in self.computations[computation]:
            if operation.launches:
                label = re.sub(r"[.\d]+$", "", operation.name)
                found[label] = found.get(label, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def body_of(self, loop: str) -> str:
        """Name of the computation that a loop runs."""
        return next(
            each.calls["body"]
            for operations in self.computations.values()
            for each in operations
            if each.name == loop
        )


def moved_bytes(operation: Operation, shapes: dict[str, str]) -> int:
    """Bytes that one launch reads and writes: its result and its operands. shapes: results beside
    it, by name.

    Of an operand that is only looked into (a gather or a slice), as many bytes count as the result
    has. Of a result that is updated in place, as many count as the update has.
    """
    result = shape_bytes(operation.shape)
    operands = [shape_bytes(shapes.get(name, "")) for name in operation.operands]
    kind = operation.name
    if "dynamic-update-slice" in kind or "dynamic_update_slice" in kind:
        return 2 * sum(size for size in operands if size < result)
    if "slice" in kind or "gather" in kind:
        operands = [min(size, result) for size in operands]
    return result + sum(operands)


def shape_bytes(shape: str) -> int:
    """Bytes of all arrays of a shape, tuples included."""
    return sum(
        BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size)
        for kind, sizes in _SHAPE.findall(shape)
    )


def parse(text: str) -> Module:
    """The module whose optimised HLO is `text` (`compiled.as_text()`)."""
    module, current = Module(), None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = head.group(2)
            module.computations[current] = []
            if head.group(1):
                module.entry = current
        elif current is not None and line.startswith("}"):
            current = None
        elif current is not None and (operation := _operation(line, current)) is not None:
            module.computations[current].append(operation)
    return module


def _operation(line: str, computation: str) -> Operation | None:
    stripped = line.strip().removeprefix("ROOT ")
    name, equals, rest = stripped.partition(" = ")
    if not equals:
        return None
    shape, rest = _split_shape(rest)
    opcode, _, tail = rest.partition("(")
    calls = {
        role.split("=")[0]: name
        for role, name in ((found.group(0), found.group(1)) for found in _CALLED.finditer(tail))
    }
    if branches := _BRANCHES.search(tail):
        calls |= {
            f"branch {i}": each.strip().lstrip("%")
            for i, each in enumerate(branches.group(1).split(","))
        }
    trips, scope, cycles = _TRIPS.search(tail), _SCOPE.search(tail), _CYCLES.search(tail)
    return Operation(
        name.lstrip("%"),
        opcode.strip(),
        shape,
        _operands(tail),
        calls,
        int(trips.group(1)) if trips else None,
        scope.group(1) if scope else "",
        stripped,
        computation,
        int(cycles.group(1)) if cycles else 0,
    )


def _split_shape(rest: str) -> tuple[str, str]:
    """(shape, what follows it): a tuple's shape is in brackets and holds blanks."""
    if not rest.startswith("("):
        shape, _, tail = rest.partition(" ")
        return shape, tail
    depth = 0
    for i, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return rest[: i + 1], rest[i + 2 :]
    return rest, ""


def _operands(tail: str) -> tuple[str, ...]:
    """Names of the operands: all that `%` marks before the bracket that closes them."""
    depth, end = 1, len(tail)
    for i, letter in enumerate(tail):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            end = i
            break
    return tuple(re.findall(r"%([\w.\-]+)", tail[:end]))
