"""A loaded policy as plain arrays, and its file in each format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax import export as jax_export

from jaxtrade.config.learners import SECTIONS
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.export import numpy_policy
from jaxtrade.networks.normalize import scaler_of
from jaxtrade.rl.advice import GATE

KINDS = ("mlp", "gru")  # networks that `numpy_policy.forward` knows
PLATFORMS = ("cpu", "cuda", "tpu")
FILES = {"npz": "policy.npz", "onnx": "policy.onnx", "stablehlo": "policy.stablehlo"}
Run = Callable[..., Any]  # (observation, mask, carry) -> (action, logits, value, next carry)


class Graph(NamedTuple):
    """All of a policy that an export holds.

    weights: as in `numpy_policy.forward`.
    memory: width of the carry; 0 without one.
    size, actions: their number.
    """

    weights: dict[str, np.ndarray]
    activation: str
    memory: int
    size: int
    actions: int


def graph_of(loaded: LoadedPolicy) -> Graph:
    """Take the arrays out of a policy. Raises ConfigError for one that no export can carry."""
    schema, network = loaded.schema, loaded.schema["network"]
    learner = schema.get("algorithm", "ppo")
    if schema.get("opening"):
        raise ConfigError(
            f"{loaded.path}: its new actions are not fully open yet, so its choices would still change; "
            "train on until they are (jaxtrade train --resume RUN), then export"
        )
    for key, found, known in (
        ("algorithm", learner, SECTIONS),
        ("network.kind", network.get("kind", "mlp"), KINDS),
    ):
        if found not in known:
            raise ConfigError(
                f"{loaded.path}: {key}={found} is a part of your own, which an export cannot carry "
                f"(it knows {', '.join(known)}); act with jaxtrade.load_policy"
            )
    flat = flatten_dict(loaded.policy.parameters, sep=".")
    weights = {name: leaf for name, leaf in flat.items() if not name.startswith(f"{GATE}.")}
    if network.get("normalise_observations", True):
        scaler = scaler_of(loaded.policy.normaliser)
        weights |= {"normaliser.mean": scaler.mean, "normaliser.scale": scaler.scale}
    return Graph(
        {str(name): np.asarray(leaf, np.float32) for name, leaf in weights.items()},
        network.get("activation", "tanh"),
        network["rnn_width"] if network.get("kind") == "gru" else 0,
        schema["observation"]["size"],
        len(schema["actions"]["names"]),
    )


def write(kind: str, folder: Path, graph: Graph, card: dict[str, Any]) -> None:
    """Write the policy's file, and of `npz` what runs it."""
    path = folder / FILES[kind]
    if kind == "npz":
        with path.open("wb") as file:
            np.savez(file, **graph.weights)  # pyright: ignore[reportArgumentType]
        source = Path(numpy_policy.__file__)
        (folder / source.name).write_bytes(source.read_bytes())
    elif kind == "onnx":
        from jaxtrade.export.onnx_graph import model_of

        metadata = {name: card[name] for name in ("observation_sha256", "actions_sha256")}
        path.write_bytes(model_of(graph, metadata | {"card": json.dumps(card)}))
    else:
        path.write_bytes(stablehlo(graph))


def stablehlo(graph: Graph) -> bytes:
    """Compile the graph for all platforms and any number of rows, with float32 products."""

    def forward(observation: Any, mask: Any, carry: Any) -> Any:
        return numpy_policy.forward(jnp, graph.weights, graph.activation, observation, mask, carry)

    (rows,) = jax_export.symbolic_shape("batch")
    shapes = [
        jax.ShapeDtypeStruct((rows, graph.size), jnp.float32),
        jax.ShapeDtypeStruct((rows, graph.actions), jnp.bool_),
        jax.ShapeDtypeStruct((rows, graph.memory), jnp.float32) if graph.memory else None,
    ]
    with jax.default_matmul_precision("highest"):
        return bytes(jax_export.export(jax.jit(forward), platforms=PLATFORMS)(*shapes).serialize())


def read(kind: str, folder: Path) -> Run:
    """Read the policy's file as a user does, and return the function that runs it."""
    path = folder / FILES[kind]
    if kind == "npz":
        policy = numpy_policy.Policy(folder)
        return lambda observation, mask, carry: policy.scores(carry, observation, mask)
    if kind == "stablehlo":
        return jax_export.deserialize(bytearray(path.read_bytes())).call
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(observation: Any, mask: Any, carry: Any) -> Any:
        given = {"observation": observation, "mask": mask}
        found: Any = session.run(None, given if carry is None else given | {"carry": carry})
        return (*found, None)[:4]

    return run
