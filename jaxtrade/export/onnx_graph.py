"""`numpy_policy.forward` as an ONNX model: the names of NumPy that it uses, each a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from jaxtrade.export import numpy_policy
from jaxtrade.export.graph import Graph as Policy

OPSET, IR = 18, 10
TYPES = {"float32": TensorProto.FLOAT, "bool": TensorProto.BOOL, "int32": TensorProto.INT32}


class Value:
    """A value of the graph. Arithmetic adds nodes."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Value:
        return self.graph.node("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.node("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.node("Div", self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", self, other)

    def astype(self, dtype: str) -> Value:
        """Convert the values."""
        return self.graph.node("Cast", self, to=TYPES[dtype])


class Graph:
    """Nodes in order and their constants. Its methods are those of NumPy that `forward` calls."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def value(self, x: Any) -> Value:
        """Return a value of the graph as it is, and a number or an array as a constant."""
        if isinstance(x, Value):
            return x
        array = np.asarray(x, np.int64 if isinstance(x, list) else np.float32)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return Value(self, name)

    def nodes_of(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> list[Value]:
        """Add a node with `count` outputs."""
        names = [self.value(x).name for x in inputs]
        outputs = [f"value_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, names, outputs, **attributes))
        return [Value(self, name) for name in outputs]

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """Add a node with one output."""
        return self.nodes_of(kind, 1, *inputs, **attributes)[0]

    def tanh(self, x: Any) -> Value:
        return self.node("Tanh", x)

    def sqrt(self, x: Any) -> Value:
        return self.node("Sqrt", x)

    def maximum(self, x: Any, y: Any) -> Value:
        return self.node("Max", x, y)

    def clip(self, x: Any, low: float, high: float) -> Value:
        return self.node("Clip", x, low, high)

    def where(self, mask: Any, x: Any, y: Any) -> Value:
        return self.node("Where", mask, x, y)

    def concatenate(self, values: list[Any], axis: int) -> Value:
        return self.node("Concat", *values, axis=axis)

    def split(self, x: Any, parts: int, axis: int) -> list[Value]:
        return self.nodes_of("Split", parts, x, axis=axis, num_outputs=parts)

    def mean(self, x: Any, axis: int, keepdims: bool) -> Value:
        return self.node("ReduceMean", x, [axis], keepdims=int(keepdims))

    def max(self, x: Any, axis: int) -> Value:
        return self.node("ReduceMax", x, [axis], keepdims=0)

    def argmax(self, x: Any, axis: int) -> Value:
        return self.node("ArgMax", x, axis=axis, keepdims=0, select_last_index=0)


def model_of(policy: Policy, metadata: Mapping[str, str]) -> bytes:
    """Make the model: observation, mask (and carry) -> action, logits, value (and next_carry).

    Of each, the first axis is free and called `batch`.
    """
    graph = Graph()

    def info(name: str, dtype: str, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, TYPES[dtype], ["batch", *shape])

    memory = [policy.memory] if policy.memory else []
    inputs = [
        info("observation", "float32", policy.size),
        info("mask", "bool", policy.actions),
        *(info("carry", "float32", width) for width in memory),
    ]
    outputs = [
        info("action", "int32"),
        info("logits", "float32", policy.actions),
        info("value", "float32"),
        *(info("next_carry", "float32", width) for width in memory),
    ]
    weights = {name: graph.value(array) for name, array in policy.weights.items()}
    given = [*(Value(graph, each.name) for each in inputs), None][:3]
    found = numpy_policy.forward(graph, weights, policy.activation, *given)
    for output, value in zip(outputs, found, strict=False):
        graph.nodes.append(helper.make_node("Identity", [value.name], [output.name]))
    made = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(made, opset_imports=[opset], ir_version=IR, producer_name="jaxtrade")
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
