"""`numpy_policy.forward` as an ONNX model: each function of NumPy that it calls adds a node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import helper, numpy_helper

from jaxtrade.export import numpy_policy
from jaxtrade.text import pairs

OPSET, IR = 17, 10
FLOAT, INT32, BOOL = 1, 6, 9  # of `onnx.TensorProto`
# What `forward` calls -> the operator, with the attributes by which they agree.
OPERATORS = pairs(
    """
    add  Add {}
    subtract  Sub {}
    multiply  Mul {}
    divide  Div {}
    matmul  MatMul {}
    astype  Cast {"to": 6}
    tanh  Tanh {}
    sqrt  Sqrt {}
    maximum  Max {}
    clip  Clip {}
    where  Where {}
    concatenate  Concat {"axis": -1}
    split  Split {"axis": -1}
    mean  ReduceMean {"axes": [-1], "keepdims": 1}
    max  ReduceMax {"axes": [-1], "keepdims": 0}
    argmax  ArgMax {"axis": -1, "keepdims": 0}
    """
)


@dataclass(eq=False)
class Value(NDArrayOperatorsMixin):
    """A value of the graph. What NumPy does with it adds nodes and constants."""

    name: str
    nodes: list[Any]
    constants: list[Any]

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any) -> Any:
        return self.add(function.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return self.add(function.__name__, *inputs)

    def astype(self, dtype: str) -> Any:
        """Convert to int32, the only type that `forward` names."""
        return self.add("astype", self)

    def add(self, name: str, *inputs: Any) -> Any:
        """Add the node of a function of NumPy. Returns its value, or those of `split`."""
        kind, _, attributes = OPERATORS[name].partition(" ")
        several = kind == "Split"
        given = inputs[0] if kind == "Concat" else inputs[:1] if several else inputs
        outputs = [f"value_{len(self.nodes)}_{i}" for i in range(inputs[1] if several else 1)]
        names = [x.name if isinstance(x, Value) else self.constant(x) for x in given]
        self.nodes.append(helper.make_node(kind, names, outputs, **json.loads(attributes)))
        made = [replace(self, name=output) for output in outputs]
        return made if several else made[0]

    def constant(self, x: Any) -> str:
        """Add a number or an array as a constant, and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(x, np.float32), name))
        return name


def model_of(weights: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> bytes:
    """Make the model: observation, mask (and carry) -> action, logits, value (and next_carry).

    Of each, the first axis is free and called `batch`. weights: as in `forward`.
    """

    def info(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, kind, ["batch", *shape])

    slots, actions, memory = numpy_policy.widths_of(card)
    given = [info("observation", FLOAT, slots), info("mask", BOOL, actions)]
    outputs = [info("action", INT32), info("logits", FLOAT, actions), info("value", FLOAT)]
    if memory:
        given.append(info("carry", FLOAT, memory))
        outputs.append(info("next_carry", FLOAT, memory))
    nodes, constants = list[Any](), list[Any]()
    inputs = [Value(each.name, nodes, constants) for each in given]
    found = numpy_policy.forward(np, weights, card["network"]["activation"], *inputs)
    for output, value in zip(outputs, found, strict=False):
        nodes.append(helper.make_node("Identity", [value.name], [output.name]))
    made = helper.make_graph(nodes, "policy", given, outputs, constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(made, opset_imports=[opset], ir_version=IR, producer_name="jaxtrade")
    digests = {name: value for name, value in card.items() if name.endswith("sha256")}
    helper.set_model_props(model, {"card": json.dumps(card), **digests})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
