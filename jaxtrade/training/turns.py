"""A function of many agents, computed for a few of them at a time.

On a CPU, many agents side by side are slower than a few: their numbers leave its cache. Then groups
of agents take turns inside the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxtrade.types import PyTree

LARGEST = (
    32 * 2**20
)  # bytes of an agent's state, beyond which a second copy of all states would cost too much


def group_size(count: int, most: int) -> int:
    """The largest number of agents, at most `most`, into whose groups `count` agents divide."""
    return next(size for size in range(min(count, most), 0, -1) if count % size == 0)


def in_turns(
    function: Callable[..., Any], axes: tuple[Any, ...], most: int | None
) -> Callable[..., Any]:
    """`jax.vmap(function, axes)`, computed for at most `most` agents side by side; None: for all of
    them.

    axes: 0, None or a tree of both for each argument, as `in_axes` of `jax.vmap`; the first one is
        0. Agents whose
    state is large are computed together, because groups that take turns need a second copy of all
    states.
    """
    together = jax.vmap(function, axes)
    if most is None:
        return together

    def called(*args: Any) -> Any:
        leaves, treedef = jax.tree.flatten(args)
        flags = [flag for axis, arg in zip(axes, args, strict=True) for flag in mapped(axis, arg)]
        count = leaves[0].shape[0]
        size = group_size(count, most)
        if size == count or _bytes(args[0]) > LARGEST * count:
            return together(*args)

        def of_group(own: list[Any]) -> Any:
            taken = iter(own)
            return together(
                *jax.tree.unflatten(
                    treedef,
                    [
                        next(taken) if flag else leaf
                        for leaf, flag in zip(leaves, flags, strict=True)
                    ],
                )
            )

        groups = [
            leaf.reshape(count // size, size, *leaf.shape[1:])
            for leaf, flag in zip(leaves, flags, strict=True)
            if flag
        ]
        return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), jax.lax.map(of_group, groups))

    return called


def mapped(axis: Any, arg: PyTree) -> list[bool]:
    """For every leaf of an argument whether it has an axis of agents. axis: one for all of them, or
    a tree above them.
    """
    found: list[bool] = []
    jax.tree.map(
        lambda own, below: found.extend([own is not None] * len(jax.tree.leaves(below))),
        axis,
        arg,
        is_leaf=lambda x: x is None,
    )
    return found


def _bytes(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
