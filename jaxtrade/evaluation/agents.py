"""Agents for the evaluator: a pure function from a state to an Order, and the carry that it passes
on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reference import ObservationRef
from jaxtrade.env.state import EnvParams, EnvState, Order
from jaxtrade.networks.memory import forget
from jaxtrade.types import Algorithm, Array, PyTree

NO_ACTION = -1  # an order that matches no action of the task (a baseline that flips its side)


class Act(Protocol):
    """One decision. Pure and hashable: it is a static argument of the compiled evaluation."""

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[PyTree, Order, Array]:
        """-> (carry, order, action).

        carry: memory or knowledge of the agent, with constant shapes. ref: observation reference of
            `state`. A policy
        may read nothing else, so that it sees exactly what it saw in training. key: typed key, one
        per market bar, the same in both passes. action: int32[] id of the chosen action, or
        NO_ACTION.
        """
        ...


class Forget(Protocol):
    """Resets the memory of an agent at the start of an episode. Pure and hashable, as `Act`."""

    def __call__(self, carry: PyTree, first: Array) -> PyTree:
        """Return the carry for this bar; called at every bar. first: bool[], True if an episode
        starts at this bar.
        """
        ...


def keep(carry: PyTree, first: Array) -> PyTree:
    """Return the carry unchanged. For agents whose carry is fixed knowledge, not memory."""
    del first
    return carry


class Agent(NamedTuple):
    """A named agent. `carry` is its initial carry. It is traced, so new weights do not compile a
    new program.
    """

    name: str
    act: Act
    carry: PyTree
    about: str  # one-line description for reports
    forget: Forget = keep


@dataclass(frozen=True)
class PolicyAct:
    """`Algorithm.act`, then the decoder of the task. Carry: (policy, its memory).

    `act` samples from the same masked distribution as in training. An illegal action is executed as HOLD and counted,
    as in `TradingEnv.step`.
    """

    env: TradingEnv
    algorithm_act: Any
    explore: bool

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[PyTree, Order, Array]:
        policy, memory = carry
        memory, action, _ = self.algorithm_act(policy, memory, ref, params, key, self.explore)
        order = self.env.decode(jnp.where(ref.mask[action], action, 0), state, params)
        return (policy, memory), order, action


def forget_episode(carry: PyTree, first: Array) -> PyTree:
    """Reset the memory where `first`, and keep the policy. Carry: (policy, its memory)."""
    policy, memory = carry
    return policy, forget(memory, first)


def _epsilon(policy: PyTree) -> Any:
    """What a Q-policy explores with; None for other policies, those of a user's own learner among
    them.
    """
    return getattr(policy, "epsilon", None)


def greedy(algorithm: Algorithm, policy: PyTree, env: TradingEnv) -> Agent:
    """An agent that takes the policy's best legal action at every bar: the most probable one, or
    that of largest Q.
    """
    about = (
        "most probable legal action"
        if _epsilon(policy) is None
        else "legal action with the largest Q"
    )
    return Agent(
        "greedy",
        PolicyAct(env, algorithm.act, False),
        (policy, algorithm.carry),
        about,
        forget_episode,
    )


def sampled(algorithm: Algorithm, policy: PyTree, env: TradingEnv) -> Agent:
    """An agent that draws an action from the policy's masked distribution at every bar; of a
    Q-policy the epsilon-greedy one."""
    about = (
        "drawn from the policy"
        if _epsilon(policy) is None
        else "epsilon-greedy, with the policy's own epsilon"
    )
    return Agent(
        "sampled",
        PolicyAct(env, algorithm.act, True),
        (policy, algorithm.carry),
        about,
        forget_episode,
    )
