"""Reads the text of a compiled XLA module: its kernel launches, its loops, and the work of its matrix products.

A launch is one kernel, copy, sort or library call that the host (or a captured graph) starts on the device. The count
of a computation is the number of its operations that start one, and a loop counts its body as often as it runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Operations that start nothing: they name, group or reinterpret values. `while`, `call` and `conditional` start what
# the computations that they call start.
FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "opt-barrier", "add-dependency", "while", "call", "conditional", "copy-done", "all-reduce-done", "async-done",
    "async-update", "fusion-done", "domain",
})
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
         "u64": 8, "f64": 8}

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
_TILES = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class Operation:
    """One instruction. shape: its result as written. calls: computations that it calls, by role. trips: how often a
    loop runs, None where the compiler does not know. scope: `op_name` of its metadata, the named scopes of the source.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    calls: dict[str, str]
    trips: int | None
    scope: str
    line: str

    @property
    def launches(self) -> bool:
        """Whether the operation itself starts something on the device."""
        return self.opcode not in FREE


@dataclass(frozen=True)
class Loop:
    """A loop of a module. path: names of the loops around it, outermost first. trips: rounds of one run of the loop,
    None if unknown. runs: how often it starts, product of the trips around it. own: launches of one round, loops inside
    it included."""

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
    _counts: dict[tuple[str, int], int] = field(default_factory=dict)

    def launches(self, computation: str | None = None, unknown: int = 1) -> int:
        """Launches of one run. unknown: rounds that a loop of unknown length is counted with."""
        name = self.entry if computation is None else computation
        if (name, unknown) not in self._counts:
            self._counts[name, unknown] = sum(self._of(each, unknown) for each in self.computations[name])
        return self._counts[name, unknown]

    def _of(self, operation: Operation, unknown: int) -> int:
        match operation.opcode:
            case "while":
                trips = unknown if operation.trips is None else operation.trips
                return trips * self.launches(operation.calls["body"], unknown)
            case "conditional":  # the longest branch, and the predicate's way to the host
                return 1 + max(self.launches(name, unknown) for role, name in operation.calls.items()
                               if role not in ("body", "condition"))
            case "call" | "async-start":
                return sum(self.launches(name, unknown) for name in operation.calls.values())
        return int(operation.launches)

    def loops(self, unknown: int = 1) -> Iterator[Loop]:
        """Every loop that the entry reaches, outer ones before inner ones."""
        yield from self._loops(self.entry, (), 1, unknown)

    def _loops(self, name: str, path: tuple[str, ...], runs: int, unknown: int) -> Iterator[Loop]:
        for operation in self.computations[name]:
            if operation.opcode == "while":
                body = operation.calls["body"]
                yield Loop(operation.name, path, operation.scope, operation.trips, runs, self.launches(body, unknown))
                trips = unknown if operation.trips is None else operation.trips
                yield from self._loops(body, (*path, operation.name), runs * trips, unknown)
            elif operation.opcode in ("call", "conditional"):
                for called in operation.calls.values():
                    yield from self._loops(called, path, runs, unknown)

    def kinds(self, computation: str) -> dict[str, int]:
        """Opcode (of a fusion or a custom call with what it holds) -> how many of them one run starts, loops inside
        left out."""
        found: dict[str, int] = {}
        for operation in self.computations[computation]:
            if operation.launches:
                label = re.sub(r"[.\d]+$", "", operation.name)
                found[label] = found.get(label, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def body_of(self, loop: str) -> str:
        """Name of the computation that a loop runs."""
        return next(each.calls["body"] for operations in self.computations.values() for each in operations
                    if each.name == loop)

    def product_flops(self, unknown: int = 1) -> int:
        """Floating-point operations of all matrix products of one run, 2 M N K each, also inside fusions and library
        calls."""
        return self._flops(self.entry, unknown, {})

    def _flops(self, name: str, unknown: int, seen: dict[str, int]) -> int:
        if name not in seen:
            total = 0
            shapes = {each.name: each.shape for each in self.computations[name]}
            for each in self.computations[name]:
                times = (unknown if each.trips is None else each.trips) if each.opcode == "while" else 1
                total += dot_flops(each, shapes)
                total += times * sum(self._flops(called, unknown, seen) for role, called in each.calls.items()
                                     if role != "condition" and called in self.computations)
            seen[name] = total
        return seen[name]


def dot_flops(operation: Operation, shapes: dict[str, str]) -> int:
    """2 M N K of one product, 0 for any other operation. shapes: results of the operations beside it, by name."""
    dots = operation.opcode == "dot"
    if not dots and "__cublas$" not in operation.line:
        return 0
    contracted = re.search(r"lhs_contracting_dim\w*\"?[=:][{\[]([^}\]]*)[}\]]", operation.line)
    if contracted is None or operation.operands[0] not in shapes:
        return 0
    sizes = dimensions(shapes[operation.operands[0]])
    depth = math.prod(sizes[int(index.strip().strip('"'))] for index in contracted.group(1).split(",") if index.strip())
    return 2 * math.prod(dimensions(operation.shape)) * depth


def dimensions(shape: str) -> tuple[int, ...]:
    """Sizes of the first array of a shape such as `f32[4,5]{1,0}`."""
    found = _SHAPE.search(shape)
    return tuple(int(size) for size in found.group(2).split(",") if size) if found else ()


def shape_bytes(shape: str) -> int:
    """Bytes of all arrays of a shape, tuples included."""
    return sum(BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size)
               for kind, sizes in _SHAPE.findall(shape))


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
        elif current is not None and (operation := _operation(line)) is not None:
            module.computations[current].append(operation)
    return module


def _operation(line: str) -> Operation | None:
    stripped = line.strip().removeprefix("ROOT ")
    name, equals, rest = stripped.partition(" = ")
    if not equals:
        return None
    shape, rest = _split_shape(rest)
    opcode, _, tail = rest.partition("(")
    calls = {role.split("=")[0]: name for role, name in
             ((found.group(0), found.group(1)) for found in _CALLED.finditer(tail))}
    if branches := _BRANCHES.search(tail):
        calls |= {f"branch {i}": each.strip().lstrip("%") for i, each in enumerate(branches.group(1).split(","))}
    trips, scope = _TRIPS.search(tail), _SCOPE.search(tail)
    return Operation(name.lstrip("%"), opcode.strip(), shape, _operands(tail), calls,
                     int(trips.group(1)) if trips else None, scope.group(1) if scope else "", stripped)


def _split_shape(rest: str) -> tuple[str, str]:
    """(shape, what follows it): a tuple's shape is in brackets and holds blanks."""
    if not rest.startswith("("):
        shape, _, tail = rest.partition(" ")
        return shape, tail
    depth = 0
    for i, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return rest[:i + 1], rest[i + 2:]
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
