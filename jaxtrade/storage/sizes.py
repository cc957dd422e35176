"""Bytes of arrays and of compiled programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.types import PyTree


def tree_bytes(tree: PyTree) -> int:
    """Count the bytes of the arrays of a tree, abstract or not. Typed keys count with their data."""

    def of(leaf: Any) -> int:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        return leaf.size * leaf.dtype.itemsize

    return sum(of(leaf) for leaf in jax.tree.leaves(tree))


def program_bytes(program: Any) -> int | None:
    """Count the bytes that a compiled program works on: arguments, results and temporaries.

    Returns None if XLA does not report them, or for a function that is not compiled.
    """
    analyse = getattr(program, "memory_analysis", None)
    found = analyse() if analyse else None
    if not found:
        return None
    return (
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        + found.temp_size_in_bytes
        - found.alias_size_in_bytes
    )
