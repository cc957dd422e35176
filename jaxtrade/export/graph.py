"""A loaded policy as plain arrays, and its file in each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax.export import deserialize, export, symbolic_shape

from jaxtrade.config.learners import SECTIONS
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.export import numpy_policy
from jaxtrade.networks.normalize import scaler_of
from jaxtrade.rl.advice import GATE

KINDS = ("mlp", "gru")  # networks that `numpy_policy.forward` knows
PLATFORMS = ("cpu", "cuda", "tpu")
Run = Callable[..., Any]  # (observation, mask, carry or None) -> (action, logits, value, carry)


def require_known(loaded: LoadedPolicy) -> None:
    """Raise ConfigError for a policy that no export can carry."""
    schema = loaded.schema
    if schema.get("opening"):
        raise ConfigError(
            f"{loaded.path}: its new actions are not fully open yet, so its choices would still change; "
            "train on until they are (jaxtrade train --resume RUN), then export"
        )
    for key, found, known in (
        ("algorithm", schema.get("algorithm", "ppo"), SECTIONS),
        ("network.kind", schema["network"]["kind"], KINDS),
    ):
        if found not in known:
            raise ConfigError(
                f"{loaded.path}: {key}={found} is a part of your own, which an export cannot carry "
                f"(it knows {', '.join(known)}); act with jaxtrade.load_policy"
            )


def weights_of(loaded: LoadedPolicy) -> dict[str, Any]:
    """Return the arrays of a policy by name, as in `numpy_policy.forward`."""
    flat = flatten_dict(loaded.policy.parameters, sep=".")
    if loaded.schema["network"]["normalise_observations"]:
        scaler = scaler_of(loaded.policy.normaliser)  # pyright: ignore[reportArgumentType]
        flat |= {"normaliser.mean": scaler.mean, "normaliser.scale": scaler.scale}
    return {name: np.asarray(x) for name, x in flat.items() if not str(name).startswith(GATE)}


def write(path: Path, weights: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Write a policy in the format that its file ends with."""
    activation = card["network"]["activation"]
    widths = {"observation": len(card["observation"]), "mask": len(card["actions"])}
    widths |= {"carry": card["memory"]} if card["memory"] else {}
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **weights)
    elif path.suffix == ".onnx":
        from jaxtrade.export.onnx_graph import model_of

        about = {name: value for name, value in card.items() if name.endswith("sha256")}
        metadata = {"card": json.dumps(card), **about}
        path.write_bytes(model_of(weights, activation, widths, metadata))
    else:
        (rows,) = symbolic_shape("batch")
        kinds = {"observation": np.float32, "mask": np.bool_, "carry": np.float32}
        given = [
            jax.ShapeDtypeStruct((rows, widths[name]), kind) if name in widths else None
            for name, kind in kinds.items()
        ]
        forward = jax.jit(lambda *rows: numpy_policy.forward(jnp, weights, activation, *rows))
        with jax.default_matmul_precision("highest"):  # float32 on every platform
            path.write_bytes(export(forward, platforms=PLATFORMS)(*given).serialize())


def read(path: Path) -> Run:
    """Read a policy's file as a user does, and return the function that runs it."""
    if path.suffix == ".npz":
        return numpy_policy.NumpyPolicy(path.parent).scores
    if path.suffix == ".stablehlo":
        return deserialize(bytearray(path.read_bytes())).call
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def on_onnx(*rows: Any) -> Any:
        found: Any = session.run(None, dict(zip(names, map(np.asarray, rows), strict=False)))
        return (*found, None)[:4]

    return on_onnx
