"""The compiled program of an evaluation: agents and sessions as lanes of one scan over decision
bars.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.leg import select
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.deciding import Group, Shapes, decide, group_of, parted, shapes_of
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.stepping import Progress, Start, at_last_bar, begin, joint, settle_bar
from jaxtrade.types import Array, PyTree


class Shape(NamedTuple):
    """What is compiled (static).

    groups: of the agents, in order. length: bars that are stepped. rewarded: whether rewards are
        recorded. params: the
    structure of `EnvParams`. own: for each leaf of it, whether the agents have it of their own.
    """

    env: TradingEnv
    groups: tuple[Group, ...]
    length: int
    rewarded: bool
    params: Any
    own: tuple[bool, ...]


class Inputs(NamedTuple):
    """What is not: the arguments of the program.

    carries: for each group, [count, ...]. shared: the leaves of the parameters that all agents
        share. own: those that
    they have of their own, [agents, ...]. keys: [agents]. renew: bool[agents]. slots: for each
    group int32[count, lanes], the session of the set at which a lane begins. starts: for each group
    the accounts with which its lanes begin, leaves [count, lanes]; None for new ones.
    """

    carries: tuple[PyTree, ...]
    shared: list[Any]
    own: list[Any]
    keys: Array
    renew: Any
    slots: tuple[Any, ...]
    starts: tuple[Start, ...] | None = None


class Edges(NamedTuple):
    """What joins the sessions of a group, trees as of `stepping.joint` with leaves [count, lanes,
    ...].

    opening: before the first bar of a lane. closing: after the last bar of its first session.
    """

    opening: Any
    closing: Any


def inputs_of(
    env: TradingEnv,
    groups: Sequence[Sequence[Agent]],
    params: Sequence[EnvParams],
    keys: Sequence[Array],
    renew: Sequence[bool],
    slots: Sequence[np.ndarray],
    length: int,
    rewarded: bool,
    starts: Sequence[Start] | None = None,
) -> tuple[Shape, Inputs]:
    """The program of agents and its arguments.

    Args:
        groups: agents with one `act` and `forget` each. params, keys, renew: of every agent, group
            by group. Leaves of the parameters that are one object, or small and equal, are shared;
            the market has to be.
        slots: for each group int[count, lanes]. starts: as in `Inputs`.
    Raises ValueError if agents have different markets.
    """
    leaves, tree = [jax.tree.leaves(each) for each in params], jax.tree.structure(params[0])
    own = tuple(
        not all(_same(column[0], other) for other in column[1:])
        for column in zip(*leaves, strict=True)
    )
    markets = {id(leaf) for leaf in jax.tree.leaves(params[0].market)}
    if any(id(leaf) in markets for leaf, differs in zip(leaves[0], own, strict=True) if differs):
        raise ValueError("the agents of one program need one market")
    shared = [leaf for leaf, differs in zip(leaves[0], own, strict=True) if not differs]
    stacked = [
        np.stack([np.asarray(each[i]) for each in leaves])
        for i, differs in enumerate(own)
        if differs
    ]
    like = _act_inputs(
        env, shapes_of(params[0]), jax.ShapeDtypeStruct(keys[0].shape, keys[0].dtype)
    )
    made = tuple(
        group_of(agents, each.shape[1], like) for agents, each in zip(groups, slots, strict=True)
    )
    carries = tuple(_stacked([agent.carry for agent in agents]) for agents in groups)
    return Shape(env, made, length, rewarded, tree, own), Inputs(
        carries,
        shared,
        stacked,
        jnp.stack(list(keys)),
        np.array(renew),
        tuple(np.asarray(s, np.int32) for s in slots),
        None if starts is None else tuple(starts),
    )


@functools.cache
def _act_inputs(env: TradingEnv, params: Shapes, key: jax.ShapeDtypeStruct) -> tuple[Any, ...]:
    """Shapes of an act's state, ref, params and key. Cached, because the trace takes longer than a
    small evaluation.
    """

    def inputs(params: EnvParams, key: Array) -> tuple[Any, ...]:
        state = begin(env, params, jnp.int32(0)).state
        return state, env.ref(state, params), params, key

    return jax.eval_shape(inputs, jax.tree.unflatten(*params), key)


SMALL = 10_000  # entries of a leaf that are compared


def _same(one: Any, other: Any) -> bool:
    return one is other or (
        np.size(one) <= SMALL and np.shape(one) == np.shape(other) and np.array_equal(one, other)
    )


def _stacked(carries: Sequence[PyTree]) -> PyTree:
    """Carries [count, ...]. Abstract ones stay abstract."""

    def stack(*leaves: Any) -> Any:
        if isinstance(leaves[0], jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct((len(leaves), *leaves[0].shape), leaves[0].dtype)
        return leaves[0][None] if len(leaves) == 1 else jnp.stack(leaves)

    return jax.tree.map(stack, *carries)


@functools.partial(jax.jit, static_argnums=0)
def step_all(shape: Shape, inputs: Inputs) -> tuple[list[Record], list[Edges] | None]:
    """Step every lane `shape.length` decision bars.

    For each group a record with leaves [length, count, lanes, ...], and, if `starts` were given,
    its edges.
    """
    env, groups = shape.env, shape.groups
    counts = [(group.count, group.lanes) for group in groups]

    def params_of(own: list[Array]) -> EnvParams:
        common, mine = iter(inputs.shared), iter(own)
        return jax.tree.unflatten(
            shape.params, [next(mine if each else common) for each in shape.own]
        )

    def of_lanes(x: Array) -> Array:
        """[agents, ...] -> [all lanes, ...]."""
        return jnp.repeat(
            x, np.repeat([lanes for _, lanes in counts], [count for count, _ in counts]), axis=0
        )

    own, keys, renew = (
        [of_lanes(x) for x in inputs.own],
        of_lanes(inputs.keys),
        of_lanes(inputs.renew),
    )
    slots = jnp.concatenate([each.reshape(-1) for each in inputs.slots])
    known = [parted(group, carries) for group, carries in zip(groups, inputs.carries, strict=True)]
    edges = np.cumsum([0, *(count * lanes for count, lanes in counts)])

    def split(tree: PyTree) -> list[PyTree]:
        """Leaves [all lanes, ...] -> for each group [count, lanes, ...]."""
        return [
            jax.tree.map(lambda x, a=a, b=b, n=n: x[a:b].reshape(*n, *x.shape[1:]), tree)
            for (a, b), n in zip(pairwise(edges), counts, strict=True)
        ]

    def joined(parts: list[PyTree]) -> PyTree:
        return jax.tree.map(
            lambda *x: jnp.concatenate([each.reshape(-1, *each.shape[2:]) for each in x]), *parts
        )

    def step(loop: tuple[Progress, list[list[Array]], Any], _: None) -> Any:
        at, memories, closing = loop
        ref = jax.vmap(lambda state, own: env.ref(state, params_of(own)))(at.state, own)
        drawn = jax.vmap(jax.random.fold_in)(keys, at.state.row)
        found = [
            decide(group, carries, knowledge, memory, given, params_of)
            for group, carries, (knowledge, _), memory, given in zip(
                groups,
                inputs.carries,
                known,
                memories,
                split((at.first, at.state, ref, own, drawn)),
                strict=True,
            )
        ]
        order, action = joined([(order, action) for _, order, action in found])
        after, record = jax.vmap(
            lambda own, *rest: settle_bar(env, shape.rewarded, params_of(own), *rest)
        )(own, renew, at, ref, order, action)
        if closing is not None:
            done, kept = closing
            last = jax.vmap(lambda own, state: at_last_bar(state, params_of(own)))(own, at.state)
            kept = jax.vmap(select)(last & ~done, joint(after), kept)
            closing = (done | last, kept)
        return (after, [memory for memory, _, _ in found], closing), record

    starts = None if inputs.starts is None else joined(list(inputs.starts))
    start = jax.vmap(lambda slot, own, start: begin(env, params_of(own), slot, start))(
        slots, own, starts
    )
    closing = None if starts is None else (jnp.zeros(len(slots), bool), joint(start))
    (*_, closing), records = jax.lax.scan(
        step, (start, [memory for _, memory in known], closing), None, length=shape.length
    )
    found = [
        jax.tree.map(lambda x, a=a, b=b, n=n: x[:, a:b].reshape(len(x), *n, *x.shape[2:]), records)
        for (a, b), n in zip(pairwise(edges), counts, strict=True)
    ]
    if closing is None:
        return found, None
    return found, [
        Edges(*each) for each in zip(split(joint(start)), split(closing[1]), strict=True)
    ]
