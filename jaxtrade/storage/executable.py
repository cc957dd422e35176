"""A compiled program as bytes: what XLA makes of its code, and a JSON description of its arguments
and its result.

Nothing is pickled. The description names shapes, types and the classes of the result's nodes; a
class is looked up among those that are loaded, and must be one that JAX takes apart as a node. A
program is machine code all the same: who can write such a file can run code as the user who reads
it.

JAX has no public way to make a compiled program from bytes without pickle. This module therefore
uses its internals. What it does not know (several devices, sharded arrays, calls of the host) is
refused when a program is packed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax._src import config, core, layout, stages
from jax._src.interpreters import pxla
from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax.tree_util import default_registry
from jaxlib import lapack

from jaxtrade.types import PyTree

MAGIC = b"jaxtrade program 1\n"
LAPACK = "lapack_"  # functions of linear algebra on a CPU
PLACEMENT = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}  # XLA removes these calls
KEYS = {"key<fry>": "threefry2x32"}  # JAX's random keys: type -> name for `jax.random.key`
_CALL = re.compile(r"custom_call @([\w.$]+)")
_PACKAGES = ("jaxtrade", "optax", "flax")  # whose classes may be nodes of a result


def calls(text: str) -> set[str]:
    """Names of the compiled functions outside XLA that a lowered program calls. text: its
    StableHLO.
    """
    return set(_CALL.findall(text))


def beside_the_cache() -> AbstractContextManager[object]:
    """While it is open, what this thread compiles is not written to JAX's own cache. No public
    setting holds for one compilation."""
    return config.persistent_cache_min_compile_time_secs(math.inf)


def kept_arguments(lowered: jax.stages.Lowered) -> list[int]:
    """Numbers of the arguments that a lowered program has. JAX leaves out those that are not
    used.
    """
    return sorted(lowered._lowering.compile_args["kept_var_idx"])  # pyright: ignore


def packed(compiled: jax.stages.Compiled, called: set[str]) -> bytes:
    """A compiled program as bytes, before it has run. called: from `calls`.

    Raises ValueError if it calls the host, or a function that might not be there when it is read,
    or if its result has nodes that `unpacked` does not know; one of `kept.FAULTS` if XLA cannot
    serialise it.
    """
    made = compiled._executable._unloaded_executable  # pyright: ignore
    if (
        made.host_callbacks
        or made.ordered_effects
        or made.unordered_effects
        or made.keepalive
        or made.mut
    ):
        raise ValueError("it calls the host")
    if unknown := sorted(
        name for name in called if not name.startswith(LAPACK) and name not in PLACEMENT
    ):
        raise ValueError(f"it calls {', '.join(unknown)}")
    if compiled._params.const_args:  # pyright: ignore
        raise ValueError("it holds constant arrays")
    device = jax.local_devices()[0]
    usual = jax.sharding.SingleDeviceSharding(device)
    if any(
        not each.is_equivalent_to(usual, 0)
        for each in (*made.input_shardings, *made.output_shardings)
    ):
        raise ValueError(f"it does not run on {device} alone")
    described = {
        "name": made.name,
        "committed": made.committed,
        "kept": sorted(made.kept_var_idx),
        "lapack": any(name.startswith(LAPACK) for name in called),
        "no_kwargs": compiled._no_kwargs,  # pyright: ignore
        "inputs": _avals(made.input_avals),
        "outputs": _avals(made.output_avals),
        "input_layouts": _layouts(made.xla_in_layouts),
        "dispatch_layouts": _layouts(made.dispatch_in_layouts),
        "output_layouts": _layouts(made.xla_out_layouts),
        "result": _tree(compiled.out_tree),
    }
    text = json.dumps(described).encode()
    code = device.client.serialize_executable(made.xla_executable)
    body = zlib.compress(len(text).to_bytes(8, "little") + text + code, 1)
    return MAGIC + hashlib.sha256(body).digest() + body


def result_of(data: bytes) -> PyTree:
    """Shapes and dtypes of the result of the program in `data`, which is not loaded. Raises like
    `unpacked`.
    """
    found, _ = _opened(data)
    return jax.tree.unflatten(_tree_of(found["result"]), _avals_of(found["outputs"]))


def unpacked(data: bytes, args: PyTree) -> jax.stages.Compiled:
    """The program in `data`. args: its arguments; they give the structure that a call must have.

    Raises ValueError for damaged bytes or an unknown name, and one of `kept.FAULTS` if this version
    of JAX cannot load it.
    """
    found, machine_code = _opened(data)
    result = _tree_of(found["result"])
    if found["lapack"]:
        lapack.prepare_lapack_call(
            "geqrf_ffi", np.float32
        )  # loads LAPACK, as lowering does; without it a call crashes
    device = jax.local_devices()[0]
    devices, placed = xla_client.DeviceList((device,)), jax.sharding.SingleDeviceSharding(device)
    code = device.client.deserialize_executable(machine_code, executable_devices=devices)
    made = pxla.UnloadedMeshExecutable(
        xla_executable=code,
        device_list=devices,
        backend=device.client,
        input_avals=_avals_of(found["inputs"]),
        input_shardings=[placed] * len(found["inputs"]),
        output_avals=_avals_of(found["outputs"]),
        output_shardings=[placed] * len(found["outputs"]),
        committed=found["committed"],
        name=found["name"],
        unordered_effects=[],
        ordered_effects=[],
        keepalive=[],
        host_callbacks=[],
        kept_var_idx=set(found["kept"]),
        mut=None,
        xla_in_layouts=_layouts_of(found["input_layouts"]),
        dispatch_in_layouts=_layouts_of(found["dispatch_layouts"]),
        xla_out_layouts=_layouts_of(found["output_layouts"]),
        all_args_info=None,
        pgle_profiler=None,
    )
    info = jax.tree.map(lambda leaf: stages.ArgInfo(leaf, False), (tuple(args), {}))
    return jax.stages.Compiled(made.load(), [], info, result, no_kwargs=found["no_kwargs"])


def _opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(description, code) of the program in `data`. Raises ValueError for damaged bytes."""
    start = len(MAGIC) + 32
    if (
        not data.startswith(MAGIC)
        or hashlib.sha256(data[start:]).digest() != data[len(MAGIC) : start]
    ):
        raise ValueError("the checksum is wrong")
    content = zlib.decompress(data[start:])
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


# --- arrays -----------------------------------------------------------------------------------------------------------


def _avals(avals: Sequence[Any]) -> list[Any]:
    extended = {
        str(aval.dtype) for aval in avals if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended)
    }
    if unknown := extended - {*KEYS}:
        raise ValueError(f"it has arrays of {', '.join(sorted(unknown))}")
    return [[list(aval.shape), str(aval.dtype), aval.weak_type] for aval in avals]


def _avals_of(described: list[Any]) -> list[core.ShapedArray]:
    return [
        core.ShapedArray(tuple(shape), _dtype_of(dtype), weak_type=weak)
        for shape, dtype, weak in described
    ]


def _dtype_of(name: str) -> Any:
    return jax.random.key(0, impl=KEYS[name]).dtype if name in KEYS else jax.numpy.dtype(name)


def _layouts(layouts: Sequence[Any]) -> list[Any]:
    return [
        None
        if each is None
        else [each.major_to_minor, each.tiling, each.sub_byte_element_size_in_bits]
        for each in layouts
    ]


def _layouts_of(described: list[Any]) -> list[Any]:
    return [
        None
        if each is None
        else layout.Layout(tuple(each[0]), tuple(tuple(tile) for tile in each[1]), each[2])
        for each in described
    ]


# --- the structure of the result --------------------------------------------------------------------------------------

_BUILT_IN: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict, "NoneType": type(None)}


def _tree(tree: Any) -> list[Any]:
    """The structure of a result as JSON. Raises ValueError for nodes that `_tree_of` does not
    know.
    """
    node = tree.node_data()
    if node is None:  # a leaf
        return []
    kind, static = node
    name = kind.__name__ if kind in _BUILT_IN.values() else f"{kind.__module__}:{kind.__qualname__}"
    if _node(name) is not kind or json.loads(json.dumps(static)) != (
        list(static) if isinstance(static, tuple) else static
    ):
        raise ValueError(f"its result has nodes of {name}")
    return [name, type(static).__name__, static, [_tree(child) for child in tree.children()]]


def _tree_of(described: list[Any]) -> Any:
    """The structure that `_tree` has described. Raises ValueError for a class that is no node."""
    if not described:
        return jax.tree.structure(0)
    name, kind, static, children = described
    data = tuple(static) if kind == "tuple" else static
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        default_registry, (_node(name), data), [_tree_of(child) for child in children]
    )


def _node(name: str) -> type:
    """The class of a node: built in, a named tuple, or a frozen dataclass of flax. It must be
    loaded.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    module, _, attribute = name.partition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    if (
        module.partition(".")[0] not in _PACKAGES
        or not isinstance(found, type)
        or not _taken_apart(found)
    ):
        raise ValueError(f"{name} is no node of a result")
    return found


def _taken_apart(kind: type) -> bool:
    """Whether JAX takes instances of a class apart: those of a named tuple, or of a dataclass that
    flax registered.
    """
    return (issubclass(kind, tuple) and hasattr(kind, "_fields")) or hasattr(
        kind, "_flax_dataclass"
    )
