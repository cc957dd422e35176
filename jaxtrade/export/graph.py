"""A loaded policy as plain arrays, and its file in each format."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
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
from jaxtrade.text import json_text

CARD = "card.json"
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


def write(folder: Path, weights: Mapping[str, Any], card: dict[str, Any]) -> Run:
    """Write a policy and its card, which gets the digest of the weights. Returns `read` of it."""
    path = folder / f"policy.{card['format']}"
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **weights)
    elif path.suffix == ".onnx":
        from jaxtrade.export.onnx_graph import model_of

        path.write_bytes(model_of(weights, card))
    else:
        (rows,) = symbolic_shape("batch")
        kinds = zip(numpy_policy.widths_of(card), (np.float32, np.bool_, np.float32), strict=True)
        given = [width and jax.ShapeDtypeStruct((rows, width), kind) for width, kind in kinds]
        activation = card["network"]["activation"]
        forward = jax.jit(partial(numpy_policy.forward, jnp, weights, activation))
        with jax.default_matmul_precision("highest"):  # float32 on every platform
            path.write_bytes(export(forward, platforms=PLATFORMS)(*given).serialize())
    card["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / CARD).write_text(json_text(card), encoding="utf-8")
    return read(path)


def read(path: Path) -> Run:
    """Read a policy's file as a user does, and return the function that runs it."""
    if path.suffix == ".stablehlo":
        return deserialize(bytearray(path.read_bytes())).call
    if path.suffix == ".npz":
        return call_host(numpy_policy.NumpyPolicy(path.parent).scores)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(*rows: Any) -> Any:
        found: Any = session.run(None, dict(zip(names, map(np.asarray, rows), strict=False)))
        return (*found, None)[:4]

    return call_host(run)


def call_host(run: Run) -> Run:
    """Return a function of NumPy arrays as one that compiled programs can call, too."""

    def call(seen: Any, mask: Any, carry: Any) -> Any:
        if isinstance(mask, np.ndarray):
            return run(seen, mask, carry)
        action, value = (
            jax.ShapeDtypeStruct(mask.shape[:1], kind) for kind in ("int32", "float32")
        )
        logits = jax.ShapeDtypeStruct(mask.shape, "float32")
        return jax.pure_callback(run, (action, logits, value, carry), seen, mask, carry)

    return call
