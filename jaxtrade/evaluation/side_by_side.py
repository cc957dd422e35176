"""The compiled program of an evaluation: agents and sessions as lanes of one scan over bars.

The scan is over decision bars. Each lane is bit-identical to what it is alone, and steps by the
`transition` of training.

A matrix product may add its terms in another order when it has another number of rows, and an agent
that is almost undecided may then choose otherwise. So a policy never sees how many others decide
beside it: its observations go through it in blocks of `WIDTH` rows, however many there are. An
evaluation of one agent fills its block with copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv, next_session
from jaxtrade.env.episode import end_reason
from jaxtrade.env.execution import select
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import Account, EndReason, EnvParams, EnvState, ObservationRef, Order
from jaxtrade.evaluation.baselines import Act, Agent, Forget
from jaxtrade.evaluation.record import Leaf, Record
from jaxtrade.types import Array, PyTree

RULE_ENDS = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


class AccountStart(NamedTuple):
    """An account at the start of a session, int32[].

    Mills from the start balance, its high-water mark, trade dates with a fill, and the number of
    accounts before it. On the host int64[n], of n sessions.
    """

    balance: Leaf
    high_water: Leaf
    days: Leaf
    number: Leaf


class Progress(struct.PyTreeNode):
    """Where an evaluation stands between two bars."""

    state: EnvState
    first: Array  # bool[]: an episode starts at this bar
    over: Array  # bool[]: the account has ended, and the rest of its session is stepped flat
    number: Array  # int32[]: number of accounts before this one


def begin(
    env: TradingEnv, params: EnvParams, slot: Array, start: AccountStart | None = None
) -> Progress:
    """Begin at the first decision bar of session `slot` of the set.

    start: of its account; default: a new one, the first.
    """
    state = env.reset_at(params, slot, params.market.sessions.first[params.sessions.ids[slot]])
    if start is None:
        return Progress(state, jnp.bool_(True), jnp.bool_(False), jnp.int32(0))
    account = state.account.replace(
        balance=start.balance,
        equity=start.balance,
        session_equity=start.balance,
        high_water=start.high_water,
        days=start.days,
    )
    return Progress(state.replace(account=account), jnp.bool_(True), jnp.bool_(False), start.number)


def at_last_bar(state: EnvState, params: EnvParams) -> Array:
    """Return whether the decision at `state` is the last one of its session (bool[])."""
    return state.row >= params.market.sessions.last[params.sessions.ids[state.slot]]


def carry_state(at: Progress) -> Any:
    """Return all of a progress on which later bars of the record depend.

    It leaves out how long the episode has lasted and its statistics, which an evaluation neither
    reads nor records, and the seed of starts, from which it never draws.
    """
    state = at.state
    return (
        state.row,
        state.slot,
        state.sessions_left,
        state.position,
        state.account,
        state.record,
        at.first,
        at.over,
        at.number,
    )


def order_is_legal(state: EnvState, order: Order, params: EnvParams) -> Array:
    """Return whether an order is legal (bool[]).

    It is if it stays within the contract cap, and opens (or flips) a position only where the
    calendar and the account permit it.
    """
    opens = (order.quantity != 0) & (jnp.sign(order.quantity) != jnp.sign(state.position.quantity))
    within = jnp.abs(order.quantity) <= params.account.max_contracts
    return (~opens | rules.may_open(state, params)) & within


def step_bar(
    env: TradingEnv,
    rewarded: bool,
    params: EnvParams,
    renew: Array,
    at: Progress,
    ref: ObservationRef,
    order: Order,
    action: Array,
) -> tuple[Progress, Record]:
    """Step one decision bar; after the last one of a session also jump to the next session.

    Args:
        ref: of `at.state`.
        order, action: what the agent decided there.
        renew: bool[], whether money is counted per session.
    """
    state = at.state
    moved, event = env.transition(state, order, params)
    reason = end_reason(moved, params)
    by_rule = functools.reduce(jnp.logical_or, [reason == each for each in RULE_ENDS])
    ended = jnp.where(by_rule, reason, EndReason.NONE).astype(jnp.int32)
    end = jnp.where(at.over, EndReason.NONE, ended).astype(jnp.int32)
    over = at.over | (end != EndReason.NONE)
    legal = (action < 0) | ref.mask[jnp.maximum(action, 0)]
    step = StepEvent(action, ~legal, event, env.actions)
    reward = total(weighted_terms(state, moved, step, params)) if rewarded else None
    record = Record(
        row=state.row,
        ref=ref,
        action=jnp.asarray(action, jnp.int32),
        legal=legal & order_is_legal(state, order, params),
        carried=state.position.quantity,
        quantity=moved.position.quantity,
        stop=moved.position.stop,
        event=event,
        equity=moved.account.equity,
        high_water=moved.account.high_water,
        account=at.number,
        active=~at.over,
        end=end,
        target=rules.target_reached(moved.position, moved.account, params.account) & ~at.over,
        reward=None if reward is None else jnp.where(at.over, 0.0, reward),
        target_level=moved.position.target,
    )
    # After an account's end the session goes on without entries, so that both passes visit every
    # decision bar.
    locked = moved.replace(account=moved.account.replace(locked=moved.account.locked | over))
    jumped = next_session(
        moved.replace(account=select(over | renew, Account.new(), moved.account)), params
    )
    session_over = at_last_bar(state, params)
    episode_over = over | (jumped.sessions_left < 0)
    jumped = jumped.replace(
        sessions_left=jnp.where(episode_over, params.episode_sessions - 1, jumped.sessions_left),
        record=select(episode_over, env.task.record.new(), jumped.record),
    )
    return Progress(
        state=select(session_over, jumped, locked),
        first=session_over & episode_over,
        over=over & ~session_over,
        number=at.number + (over & session_over).astype(jnp.int32),
    ), record


WIDTH = 4  # rows of a block: the fewest that a CPU multiplies as fast as one
PRODUCTS = ("dot_general", "conv_general_dilated")


class AgentGroup(NamedTuple):
    """Agents that decide by the same function.

    There are `count` of them, each in `lanes` places at once (static).

    fixed: for each leaf of the carry, whether `act` and `forget` pass it on unchanged. Such
        knowledge (the weights of a policy) is held once for each agent, and not carried from bar
        to bar.
    blocked: whether `act` multiplies matrices.
    """

    act: Act
    forget: Forget
    fixed: tuple[bool, ...]
    blocked: bool
    count: int
    lanes: int


Shapes = tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]  # structure and leaves of a tree; hashable


def shapes_of(tree: PyTree) -> Shapes:
    """Return the structure of a tree, and shape and type of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.result_type(leaf)) for leaf in leaves
    )


@functools.cache
def _traits(act: Act, forget: Forget, carry: Any, inputs: Any) -> tuple[tuple[bool, ...], bool]:
    """Return (fixed, blocked) of a group; the shapes are as from `shapes_of`."""

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
    text = str(traced)  # names every primitive, also those of inner programs
    return fixed, any(name in text for name in PRODUCTS)


def partition_carries(group: AgentGroup, carries: PyTree) -> tuple[list[Array], list[Array]]:
    """Partition carries [count, ...] into knowledge, which stays, and memory, which changes.

    Knowledge and memory are those of every lane.
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
    group: AgentGroup,
    like: PyTree,
    knowledge: list[Array],
    memory: list[Array],
    given: Any,
    params_of: Callable[[Any], Any],
) -> tuple[list[Array], Any, Array]:
    """Make one decision of every agent of a group in each of its lanes.

    Args:
        like: a carry, for its structure.
        knowledge: [count, ...].
        memory: [count, lanes, ...].
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
    return jax.tree.map(lambda x: _unblock(x, group.lanes), found)


def _blocks(x: Array, blocks: int) -> Array:
    """Reshape [count, lanes, ...] to [blocks, count, WIDTH, ...].

    It is filled up with copies of the last lane.
    """
    missing = blocks * WIDTH - x.shape[1]
    if missing:
        x = jnp.concatenate([x, jnp.repeat(x[:, -1:], missing, axis=1)], axis=1)
    return jnp.moveaxis(x.reshape(x.shape[0], blocks, WIDTH, *x.shape[2:]), 1, 0)


def _unblock(x: Array, lanes: int) -> Array:
    """Invert `_blocks`."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])[:, :lanes]


class BatchShape(NamedTuple):
    """What is compiled (static).

    groups: of the agents, in order.
    length: bars that are stepped.
    rewarded: whether rewards are recorded.
    params: the structure of `EnvParams`.
    own: for each leaf of it, whether the agents have it of their own.
    """

    env: TradingEnv
    groups: tuple[AgentGroup, ...]
    length: int
    rewarded: bool
    params: Any
    own: tuple[bool, ...]


class Inputs(NamedTuple):
    """What is not: the arguments of the program.

    carries: for each group, [count, ...].
    shared: the leaves of the parameters that all agents share.
    own: those that they have of their own, [agents, ...].
    keys: [agents].
    renew: bool[agents].
    slots: for each group int32[count, lanes], the session of the set at which a lane begins.
    starts: for each group the accounts with which its lanes begin, leaves [count, lanes]; None for
        new ones.
    """

    carries: tuple[PyTree, ...]
    shared: list[Any]
    own: list[Any]
    keys: Array
    renew: Any
    slots: tuple[Any, ...]
    starts: tuple[AccountStart, ...] | None = None


class Edges(NamedTuple):
    """What joins the sessions of a group.

    Trees as of `carry_state` with leaves [count, lanes, ...].

    opening: before the first bar of a lane.
    closing: after the last bar of its first session.
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
    starts: Sequence[AccountStart] | None,
) -> tuple[BatchShape, Inputs]:
    """Return the program of agents and its arguments.

    Args:
        groups: agents with one `act` and `forget` each.
        params, keys, renew: of every agent, group by group. Leaves of the parameters that are one
            object, or small and equal, are shared; the market has to be.
        slots: for each group int[count, lanes].
        starts: as in `Inputs`.
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
    made = []
    for agents, each in zip(groups, slots, strict=True):
        first = agents[0]
        traits = _traits(first.act, first.forget, shapes_of(first.carry), shapes_of(like))
        made.append(AgentGroup(first.act, first.forget, *traits, len(agents), each.shape[1]))
    carries = tuple(_stack_carries([agent.carry for agent in agents]) for agents in groups)
    return BatchShape(env, tuple(made), length, rewarded, tree, own), Inputs(
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
    """Return shapes of an act's state, ref, params and key.

    Cached, because the trace takes longer than a small evaluation.
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


def _stack_carries(carries: Sequence[PyTree]) -> PyTree:
    """Stack carries to [count, ...]. Abstract ones stay abstract."""

    def stack(*leaves: Any) -> Any:
        if isinstance(leaves[0], jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct((len(leaves), *leaves[0].shape), leaves[0].dtype)
        return leaves[0][None] if len(leaves) == 1 else jnp.stack(leaves)

    return jax.tree.map(stack, *carries)


def _concatenate(parts: list[PyTree]) -> PyTree:
    """Concatenate the leaves [count, lanes, ...] of all groups to leaves [all lanes, ...]."""
    return jax.tree.map(
        lambda *x: jnp.concatenate([each.reshape(-1, *each.shape[2:]) for each in x]), *parts
    )


@functools.partial(jax.jit, static_argnums=0)
def step_all(shape: BatchShape, inputs: Inputs) -> tuple[list[Record], list[Edges] | None]:
    """Step every lane `shape.length` decision bars.

    Returns for each group a record with leaves [length, count, lanes, ...], and, if `starts` were
    given, its edges.
    """
    env, groups = shape.env, shape.groups
    counts = [(group.count, group.lanes) for group in groups]

    def params_of(own: list[Array]) -> EnvParams:
        common, mine = iter(inputs.shared), iter(own)
        return jax.tree.unflatten(
            shape.params, [next(mine if each else common) for each in shape.own]
        )

    def of_lanes(x: Array) -> Array:
        """Repeat [agents, ...] to [all lanes, ...]."""
        return jnp.repeat(
            x, np.repeat([lanes for _, lanes in counts], [count for count, _ in counts]), axis=0
        )

    own, keys, renew = (
        [of_lanes(x) for x in inputs.own],
        of_lanes(inputs.keys),
        of_lanes(inputs.renew),
    )
    slots = jnp.concatenate([each.reshape(-1) for each in inputs.slots])
    known = [
        partition_carries(group, carries)
        for group, carries in zip(groups, inputs.carries, strict=True)
    ]
    edges = np.cumsum([0, *(count * lanes for count, lanes in counts)])

    def split(tree: PyTree) -> list[PyTree]:
        """Split leaves [all lanes, ...] into [count, lanes, ...] for each group."""
        return [
            jax.tree.map(lambda x, a=a, b=b, n=n: x[a:b].reshape(*n, *x.shape[1:]), tree)
            for (a, b), n in zip(pairwise(edges), counts, strict=True)
        ]

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
        order, action = _concatenate([(order, action) for _, order, action in found])
        after, record = jax.vmap(
            lambda own, *rest: step_bar(env, shape.rewarded, params_of(own), *rest)
        )(own, renew, at, ref, order, action)
        if closing is not None:
            done, kept = closing
            last = jax.vmap(lambda own, state: at_last_bar(state, params_of(own)))(own, at.state)
            kept = jax.vmap(select)(last & ~done, carry_state(after), kept)
            closing = (done | last, kept)
        return (after, [memory for memory, _, _ in found], closing), record

    starts = None if inputs.starts is None else _concatenate(list(inputs.starts))
    start = jax.vmap(lambda slot, own, start: begin(env, params_of(own), slot, start))(
        slots, own, starts
    )
    closing = None if starts is None else (jnp.zeros(len(slots), bool), carry_state(start))
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
        Edges(*each) for each in zip(split(carry_state(start)), split(closing[1]), strict=True)
    ]
