"""Agents whose decisions are executed some bars later, to see what a result owes to being fast.

With a latency of k bars, what an agent decides at the close of bar t is executed as if it had been
decided at the close of bar t + k, so it fills in bar t + k + 1. The agent itself sees every bar in
time, with the position as it is then. It does not see which of its decisions are still on their
way, because it did not in training either.

What waits is the id of the action. It is decoded when it is executed, so the distances of its
bracket are those of that bar. An order of a baseline need not be an action of the task, so of a
baseline the order itself waits.

A decision is too late, and HOLD is executed in its place, if the position is no longer the one it
was made for (another quantity, or opened at another bar), or if it was legal when it was made and
no longer is: by the mask for an action, by calendar and account for an order. The queue is empty
where a session or an episode starts. What is still on its way when a session ends is never
executed.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.env import orders
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.leg import select
from jaxtrade.env.reference import ObservationRef
from jaxtrade.env.state import EnvParams, EnvState, Order
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.evaluation.agents import NO_ACTION, Act, Agent, Forget, PolicyAct
from jaxtrade.evaluation.stepping import order_is_legal
from jaxtrade.types import Array, PyTree

LONGEST = 3  # bars: the length of every queue, so that one program serves all latencies
TOO_LATE = NO_ACTION - 1  # `Record.action` where a decision came too late
NO_SESSION = -1


class Waiting(struct.PyTreeNode):
    """Decisions on their way, the newest first; leaves [LONGEST + 1].

    action: int32, its id. order: of a baseline, else None. legal: bool, when it was made. quantity,
        opened: int32, the
    position it was made for. session: int32, `EnvState.slot` when it was made; NO_SESSION where
    there is no decision.
    """

    action: Array
    order: Order | None
    legal: Array
    quantity: Array
    opened: Array
    session: Array


class Queue(struct.PyTreeNode):
    """The carry of a delayed agent: own: of the agent itself. waiting: its decisions. delay:
    int32[] bars.
    """

    own: PyTree
    waiting: Waiting
    delay: Array


def _no_decisions(with_orders: bool) -> Waiting:
    zero = jnp.zeros(LONGEST + 1, jnp.int32)
    order = Order(zero, zero, zero, zero, zero) if with_orders else None
    return Waiting(
        zero, order, zero.astype(bool), zero, zero, jnp.full(LONGEST + 1, NO_SESSION, jnp.int32)
    )


@dataclass(frozen=True)
class DelayedAct:
    """An `Act` whose decisions wait in a queue. Carry: a `Queue`. decodes: the action waits, not
    the order.
    """

    env: TradingEnv
    act: Act
    decodes: bool

    def __call__(
        self, carry: Queue, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[Queue, Order, Array]:
        own, order, action = self.act(carry.own, state, ref, params, key)
        action, kept = jnp.asarray(action, jnp.int32), None if self.decodes else order
        now = Waiting(
            action,
            kept,
            self._legal(action, kept, state, ref, params),
            state.position.quantity,
            state.position.opened,
            state.slot,
        )
        waiting = jax.tree.map(
            lambda new, old: jnp.concatenate([jnp.asarray(new, old.dtype)[None], old[:-1]]),
            now,
            carry.waiting,
        )
        due = jax.tree.map(lambda x: x[carry.delay], waiting)
        return Queue(own, waiting, carry.delay), *self._executed(due, state, ref, params)

    def _legal(
        self,
        action: Array,
        order: Order | None,
        state: EnvState,
        ref: ObservationRef,
        params: EnvParams,
    ) -> Array:
        return (
            ref.mask[jnp.maximum(action, 0)]
            if order is None
            else order_is_legal(state, order, params)
        )

    def _executed(
        self, due: Waiting, state: EnvState, ref: ObservationRef, params: EnvParams
    ) -> tuple[Order, Array]:
        """(order, action) of the decision that is due."""
        on_its_way = due.session == state.slot
        same = (due.quantity == state.position.quantity) & (due.opened == state.position.opened)
        legal = self._legal(due.action, due.order, state, ref, params)
        # What was illegal when it was made is not late: the evaluator treats it as it does without
        # a latency.
        in_time = on_its_way & same & (legal | ~due.legal)
        action = jnp.where(
            on_its_way, jnp.where(in_time | (due.action == HOLD), due.action, TOO_LATE), HOLD
        )
        if due.order is None:
            return self.env.decode(
                jnp.where(in_time & legal, due.action, HOLD), state, params
            ), action
        return select(in_time, due.order, orders.hold(state)), action


@dataclass(frozen=True)
class DelayedForget:
    """Empties the queue where an episode starts, and resets the agent's own memory."""

    forget: Forget

    def __call__(self, carry: Queue, first: Array) -> Queue:
        session = jnp.where(first, NO_SESSION, carry.waiting.session)
        return carry.replace(
            own=self.forget(carry.own, first), waiting=carry.waiting.replace(session=session)
        )


def delayed(agent: Agent, env: TradingEnv, bars: int) -> Agent:
    """The agent with its decisions executed `bars` later. Agents with one `act` share one program,
    for any latency.

    Raises ValueError unless 0 <= bars <= LONGEST.
    """
    if not 0 <= bars <= LONGEST:
        raise ValueError(f"latency of {bars} bars: expected 0 .. {LONGEST}")
    decodes = isinstance(agent.act, PolicyAct)
    return agent._replace(
        act=DelayedAct(env, agent.act, decodes),
        forget=DelayedForget(agent.forget),
        carry=Queue(agent.carry, _no_decisions(not decodes), jnp.int32(bars)),
    )
