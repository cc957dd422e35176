"""Exports of a policy, which run without jaxtrade: NumPy, ONNX and StableHLO.

`numpy_policy.forward` is the only description of the graph. NumPy runs it, `jax.numpy` compiles it,
and the values of `onnx_graph` write it down as ONNX nodes.
"""

from importlib.util import find_spec

from jaxtrade.errors import ConfigError

NEEDS = {"npz": (), "onnx": ("onnx", "onnxruntime"), "stablehlo": ("flatbuffers",)}


def check_format(kind: str) -> None:
    """Raise ConfigError for an unknown format, or if a package that it needs is absent."""
    if kind not in NEEDS:
        raise ConfigError(f"format (--format) {kind}: expected {', '.join(NEEDS)}")
    if absent := [name for name in NEEDS[kind] if find_spec(name) is None]:
        raise ConfigError(
            f"format (--format) {kind}: needs {' and '.join(absent)}: pip install "
            '"jaxtrade[export]"; --format npz needs nothing'
        )
