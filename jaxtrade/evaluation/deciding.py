"""Let many agents decide in one program, each with the bits that it has alone.

A matrix product may add its terms in another order when it has another number of rows, and an agent
that is almost undecided may then choose otherwise. So a policy never sees how many others decide
beside it: its observations go through it in blocks of `WIDTH` rows, however many there are. An
evaluation of one agent fills its block with copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.evaluation.agents import Act, Agent, Forget
from jaxtrade.types import Array, PyTree

WIDTH = 4  # rows of a block: the fewest that a CPU multiplies as fast as one
PRODUCTS = ("dot_general", "conv_general_dilated")


class Group(NamedTuple):
    """Agents that decide by the same function: `count` of them, each in `lanes` places at once
    (static).

    fixed: for each leaf of the carry, whether `act` and `forget` pass it on unchanged. Such
        knowledge (the weights of a
    policy) is held once for each agent, and not carried from bar to bar. blocked: whether `act`
    multiplies matrices.
    """

    act: Act
    forget: Forget
    fixed: tuple[bool, ...]
    blocked: bool
    count: int
    lanes: int


def group_of(agents: Sequence[Agent], lanes: int, inputs: tuple[Any, ...]) -> Group:
    """The group of agents with one `act` and one `forget`. inputs: shapes of an act's state, ref,
    params and key.
    """
    first = agents[0]
    fixed, blocked = _traits(first.act, first.forget, shapes_of(first.carry), shapes_of(inputs))
    return Group(first.act, first.forget, fixed, blocked, len(agents), lanes)


Shapes = tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]  # structure and leaves of a tree; hashable


def shapes_of(tree: PyTree) -> Shapes:
    """The structure of a tree, and shape and type of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.result_type(leaf)) for leaf in leaves
    )


@functools.cache
def _traits(act: Act, forget: Forget, carry: Any, inputs: Any) -> tuple[tuple[bool, ...], bool]:
    """(fixed, blocked) of a group; the shapes are as from `shapes_of`."""

    def decide(carry: PyTree, first_bar: Array, *inputs: Any) -> Any:
        return act(forget(carry, first_bar), *inputs)

    traced = jax.make_jaxpr(decide)(
        jax.tree.unflatten(*carry),
        jax.ShapeDtypeStruct((), jnp.bool_),
        *jax.tree.unflatten(*inputs),
    ).jaxpr
    size = len(carry[1])
    fixed = tuple(
        out is into for out, into in zip(traced.outvars[:size], traced.invars[:size], strict=True)
    )
    return fixed, _multiplies(traced)


def _multiplies(traced: Any) -> bool:
    """Whether a jaxpr, or one inside of it, has a matrix product."""
    for equation in traced.eqns:
        if equation.primitive.name in PRODUCTS:
            return True
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and _multiplies(inner):
                return True
    return False


def parted(group: Group, carries: PyTree) -> tuple[list[Array], list[Array]]:
    """(knowledge, memory): the leaves of carries [count, ...] that stay, and those that change, for
    every lane.
    """
    leaves = jax.tree.leaves(carries)
    knowledge = [leaf for leaf, stays in zip(leaves, group.fixed, strict=True) if stays]
    memory = [
        jnp.repeat(leaf[:, None], group.lanes, axis=1)
        for leaf, stays in zip(leaves, group.fixed, strict=True)
        if not stays
    ]
    return knowledge, memory


def decide(
    group: Group,
    like: PyTree,
    knowledge: list[Array],
    memory: list[Array],
    given: Any,
    params_of: Callable[[Any], Any],
) -> tuple[list[Array], Any, Array]:
    """One decision of every agent of a group in each of its lanes.

    Args:
        like: a carry, for its structure. knowledge: [count, ...]. memory: [count, lanes, ...].
        given: (first, state, ref, own parameters, key), leaves [count, lanes, ...].
        params_of: the parameters of a lane from its own ones.
    Returns:
        (memory, order, action), leaves [count, lanes, ...].
    """
    tree = jax.tree.structure(like)

    def one(
        known: list[Array], remembered: list[Array], given: Any
    ) -> tuple[list[Array], Any, Array]:
        first, state, ref, own, key = given
        stays, changes = iter(known), iter(remembered)
        carry = jax.tree.unflatten(tree, [next(stays if each else changes) for each in group.fixed])
        carry, order, action = group.act(
            group.forget(carry, first), state, ref, params_of(own), key
        )
        kept = [
            leaf for leaf, each in zip(jax.tree.leaves(carry), group.fixed, strict=True) if not each
        ]
        return kept, order, jnp.asarray(action, jnp.int32)

    every = jax.vmap(jax.vmap(one, (None, 0, 0)))
    if not group.blocked:
        return every(knowledge, memory, given)
    blocks = -(-group.lanes // WIDTH)
    packed = jax.tree.map(lambda x: _blocks(x, blocks), (memory, given))
    if blocks == 1:
        found = every(
            knowledge, *jax.lax.optimization_barrier(jax.tree.map(lambda x: x[0], packed))
        )
        found = jax.tree.map(lambda x: x[None], jax.lax.optimization_barrier(found))
    else:
        found = jax.lax.map(lambda block: every(knowledge, *block), packed)
    return jax.tree.map(lambda x: _unblocked(x, group.lanes), found)


def _blocks(x: Array, blocks: int) -> Array:
    """[count, lanes, ...] -> [blocks, count, WIDTH, ...], filled up with copies of the last
    lane.
    """
    missing = blocks * WIDTH - x.shape[1]
    if missing:
        x = jnp.concatenate([x, jnp.repeat(x[:, -1:], missing, axis=1)], axis=1)
    return jnp.moveaxis(x.reshape(x.shape[0], blocks, WIDTH, *x.shape[2:]), 1, 0)


def _unblocked(x: Array, lanes: int) -> Array:
    """The inverse of `_blocks`."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])[:, :lanes]
