"""Checkpoints and policy bundles: directories of arrays.

Reading one that is incomplete or damaged raises an error.

A directory is written under a temporary name, all its files and the directory are fsynced, and then
it is renamed.
`manifest.json` holds size and SHA-256 of every file, and a digest of itself that must match byte for byte. Arrays are
members of a NumPy `.npz` file, named by their path in the tree and read without pickle. Typed PRNG keys are stored as
their key data.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.errors import CheckpointError
from jaxtrade.storage.archives import read_arrays
from jaxtrade.storage.digests import fsync_directory
from jaxtrade.storage.host_arrays import is_key
from jaxtrade.types import PyTree

FORMAT = 1
MANIFEST = "manifest.json"
_NAME = re.compile(r"update-(\d{8,})")


class RestoredState(NamedTuple):
    """A restored state, the update at which it was saved, and its metadata.

    Also one line per damaged checkpoint that was skipped.
    """

    state: PyTree
    step: int
    metadata: dict[str, Any]
    problems: list[str]


class _DamagedError(CheckpointError):
    """The bytes on disk differ from those that were written."""


# --- arrays ----------------------------------------------------------------------------------------------------------


def _leaves(tree: PyTree) -> dict[str, Any]:
    """Map the path in the tree to its leaf, e.g. `params/policy_head/kernel`."""
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    for name, leaf in leaves.items():
        if not (hasattr(leaf, "dtype") and hasattr(leaf, "shape")):
            raise TypeError(f"'{name}' is a {type(leaf).__name__}; a checkpoint holds arrays only")
    return leaves


def _describe(leaf: Any) -> dict[str, Any]:
    return {"dtype": str(leaf.dtype), "shape": list(leaf.shape)}


def _pack(tree: PyTree) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of an npz file, and a description of each leaf.

    The descriptions map the path to {dtype, shape, key implementation}.
    """
    described: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _leaves(tree).items():
        described[name] = _describe(leaf)
        if is_key(leaf):
            described[name]["key"] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        array = np.asarray(jax.device_get(leaf))
        # NumPy's file format has no bfloat16 and similar dtypes, so their bits are stored as
        # unsigned integers.
        arrays[name] = array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue(), described


def _check_structure(found: Mapping[str, Any], like: Mapping[str, Any], where: Path) -> None:
    """Raise CheckpointError unless two structures are equal.

    Both map a path in the tree to {dtype, shape}.
    """
    for name, expected in like.items():
        if name not in found:
            raise CheckpointError(
                f"{where}: leaf '{name}' is missing; was it saved by another configuration?"
            )
        here = {part: found[name][part] for part in ("dtype", "shape")}
        if here != expected:
            raise CheckpointError(
                f"{where}: leaf '{name}' is {here['dtype']}{here['shape']}, expected {expected['dtype']}"
                f"{expected['shape']}; was it saved by another configuration?"
            )
    if extra := sorted(found.keys() - like.keys()):
        raise CheckpointError(
            f"{where}: leaf '{extra[0]}' is not part of the expected state ({len(extra)} such); "
            "was it saved by another configuration?"
        )


def _unpack(data: bytes, described: Mapping[str, Any], like: PyTree, where: Path) -> PyTree:
    leaves = _leaves(like)
    _check_structure(described, {name: _describe(leaf) for name, leaf in leaves.items()}, where)
    restored = []
    arrays = read_arrays(data)
    for name, leaf in leaves.items():
        array = arrays[name]
        if is_key(leaf):
            restored.append(jax.random.wrap_key_data(jnp.array(array), impl=described[name]["key"]))
            continue
        dtype = np.dtype(leaf.dtype)
        array = array.view(dtype) if dtype.kind == "V" else array
        restored.append(jnp.array(array))  # a copy: JAX cannot donate memory that NumPy shares
    return jax.tree.unflatten(jax.tree.structure(like), restored)


# --- directories -----------------------------------------------------------------------------------------------------


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _render(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest: `body` and a digest of its canonical form."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
    return json.dumps(
        {**body, "digest": digest}, sort_keys=True, indent=1, allow_nan=False
    ).encode()


def _publish(target: Path, files: Mapping[str, bytes], body: Mapping[str, Any]) -> None:
    """Write a directory atomically.

    After a crash at any point, `target` is the old directory, the new one or absent.
    """
    listed = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    versions = {"python": platform.python_version(), "jax": jax.__version__}
    versions["numpy"] = np.__version__
    manifest = _render({**body, "format": FORMAT, "files": listed, "versions": versions})
    parent = target.parent
    if not parent.exists():
        parent.mkdir(parents=True)
        fsync_directory(parent.parent)
    for left in parent.glob(f".{target.name}.*"):  # temporary folders of a writer that was killed
        shutil.rmtree(left)
    temporary, replaced = parent / f".{target.name}.new", parent / f".{target.name}.old"
    try:
        temporary.mkdir()
        for name, data in {**files, MANIFEST: manifest}.items():
            _write(temporary / name, data)
        fsync_directory(temporary)
        if target.exists():
            target.rename(replaced)
        temporary.rename(target)
        fsync_directory(parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if replaced.exists() and not target.exists():
            replaced.rename(target)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read a directory and check every byte.

    Returns (manifest, contents by file name). Raises _DamagedError.
    """
    path = directory / MANIFEST
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _DamagedError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        manifest = json.loads(raw)
        body = {key: value for key, value in manifest.items() if key != "digest"}
        intact = _render(body) == raw
    except (ValueError, AttributeError):  # not JSON, not UTF-8, not an object
        intact = False
        manifest = {}
    if not intact:
        raise _DamagedError(f"{path}: damaged (its contents do not match its own digest)")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: format {manifest.get('format')}, this version reads {FORMAT}"
        )
    files = {}
    for name, expected in manifest["files"].items():
        try:
            data = (directory / name).read_bytes()
        except OSError as error:
            raise _DamagedError(f"{directory / name}: cannot be read ({error.strerror})") from None
        if len(data) != expected["size"]:
            raise _DamagedError(
                f"{directory / name}: {len(data)} bytes, {expected['size']} were written (cut short?)"
            )
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise _DamagedError(
                f"{directory / name}: damaged (SHA-256 differs from the manifest's)"
            )
        files[name] = data
    return manifest, files


# --- checkpoints of a run --------------------------------------------------------------------------------------------


def list_checkpoints(directory: Path | str) -> list[tuple[int, Path]]:
    """List (update, path) of every checkpoint under `directory`, oldest first.

    Includes damaged checkpoints.
    """
    directory = Path(directory)
    if not directory.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match)


def save(
    directory: Path | str, step: int, state: PyTree, metadata: Mapping[str, Any], keep: int = 3
) -> Path:
    """Write `directory/update-<step>`, keep the `keep` newest checkpoints, and return the new path.

    Checkpoints of later updates belong to a history that could not be resumed. They are renamed
    to `*.stale`.

    Args:
        state: any pytree of arrays; typed PRNG keys are allowed.
        metadata: JSON values (config digest, data fingerprint, ...).

    Raises:
        OSError: disk full, or no permission. No partial checkpoint is left, and older checkpoints
            are unchanged.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    target = Path(directory) / f"update-{step:08d}"
    data, described = _pack(state)
    _publish(
        target,
        {"state.npz": data},
        {"kind": "checkpoint", "update": step, "metadata": dict(metadata), "leaves": described},
    )
    present = list_checkpoints(directory)
    for number, path in present:
        if number > step:
            set_aside(path)
    for _, path in [entry for entry in present if entry[0] <= step][:-keep]:
        shutil.rmtree(path)
    return target


def set_aside(path: Path) -> None:
    """Rename a checkpoint to `*.stale`, replacing an older stale one.

    `list_checkpoints` then skips it.
    """
    stale = path.with_name(f"{path.name}.stale")
    shutil.rmtree(stale, ignore_errors=True)
    path.rename(stale)


def restore(path: Path | str, like: PyTree, fields: Collection[str] = ()) -> RestoredState:
    """Load one checkpoint directory into the structure of `like`.

    Args:
        like: arrays or `jax.eval_shape` structs.
        fields: the top-level fields to load; default: all.

    Raises:
        CheckpointError: the checkpoint is damaged or has another format, or a leaf is missing,
            unexpected, or has another dtype or shape.
    """
    path = Path(path)
    manifest, files = _read(path)
    if manifest["kind"] != "checkpoint" or path.name != f"update-{manifest['update']:08d}":
        raise _DamagedError(
            f"{path}: its manifest says {manifest['kind']} {manifest.get('update')}, its name another"
        )
    leaves = {
        name: leaf
        for name, leaf in manifest["leaves"].items()
        if not fields or name.partition("/")[0] in fields
    }
    state = _unpack(files["state.npz"], leaves, like, path / "state.npz")
    return RestoredState(state, manifest["update"], manifest["metadata"], [])


def restore_part(directory: Path | str, like: Mapping[str, PyTree]) -> RestoredState:
    """Load some fields of the newest good checkpoint, as a mapping with the names of `like`.

    Args:
        like: name of a field of the saved state -> its structure (arrays or
            `jax.eval_shape` structs).

    Raises:
        CheckpointError: as `restore_latest`.
    """
    return _newest(directory, lambda path: restore(path, dict(like), like.keys()))


def restore_latest(directory: Path | str, like: PyTree) -> RestoredState:
    """Load the newest good checkpoint under `directory`.

    `problems` names the newer ones that are damaged.

    Raises:
        CheckpointError: there is no checkpoint, all are damaged, or the newest good one does not
            have the structure of `like`.
    """
    return _newest(directory, lambda path: restore(path, like))


def _newest(directory: Path | str, load: Callable[[Path], RestoredState]) -> RestoredState:
    """Apply `load` to the newest checkpoint that is not damaged."""
    candidates = list_checkpoints(directory)
    if not candidates:
        raise CheckpointError(f"{directory}: no checkpoint found")
    problems: list[str] = []
    for _, path in reversed(candidates):
        try:
            return load(path)._replace(problems=problems)
        except _DamagedError as error:
            problems.append(str(error))
    raise CheckpointError(f"{directory}: no checkpoint is readable:\n" + "\n".join(problems))


# --- policy bundles --------------------------------------------------------------------------------------------------


def save_policy(directory: Path | str, policy: PyTree, schema: Mapping[str, Any]) -> Path:
    """Write a policy and its JSON schema as one directory with checksums.

    policy: parameters, normaliser, ...
    """
    directory = Path(directory)
    data, described = _pack(policy)
    text = json.dumps(schema, sort_keys=True, indent=1, allow_nan=False).encode()
    _publish(
        directory,
        {"policy.npz": data, "schema.json": text},
        {"kind": "policy", "leaves": described},
    )
    return directory


def _read_policy(directory: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    manifest, files = _read(directory)
    if manifest["kind"] != "policy":
        raise CheckpointError(f"{directory}: holds a {manifest['kind']}, not a policy")
    return manifest, files


def read_schema(directory: Path | str) -> dict[str, Any]:
    """Read and check the schema of a policy bundle. Raises CheckpointError."""
    return json.loads(_read_policy(Path(directory))[1]["schema.json"])


def load_policy(directory: Path | str, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Load (policy, schema) from a bundle.

    The policy has the structure of `like`. Raises CheckpointError.
    """
    directory = Path(directory)
    manifest, files = _read_policy(directory)
    policy = _unpack(files["policy.npz"], manifest["leaves"], like, directory / "policy.npz")
    return policy, json.loads(files["schema.json"])
