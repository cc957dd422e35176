"""What the evaluator can drive: a pure function that turns a state into an Order, and what it carries along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.observation import ObservationRef
from jaxtrade.env.state import EnvParams, EnvState, Order
from jaxtrade.networks.memory import forget
from jaxtrade.types import Algorithm, Array, PyTree

NO_ACTION = -1  # an order that the action table has no name for (a baseline's flip of sides)


class Act(Protocol):
    """One decision. Pure and hashable: it is a static argument of the compiled evaluation."""

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[PyTree, Order, Array]:
        """-> (carry, order, action).

        carry: whatever the agent remembers or knows, of constant shapes. ref: the observation reference of `state`,
        the only thing a policy may look at. key: one typed key per market bar, the same in both passes.
        action: int32[] id of the chosen action, or NO_ACTION.
        """
        ...


class Forget(Protocol):
    """What an agent does where an episode begins. Pure and hashable, as `Act`."""

    def __call__(self, carry: PyTree, first: Array) -> PyTree:
        """The carry to act with, at every bar; `first` is bool[], an episode as in training begins at this bar."""
        ...


def keep(carry: PyTree, first: Array) -> PyTree:
    """Nothing is forgotten: the carry is knowledge, not memory."""
    del first
    return carry


class Agent(NamedTuple):
    """A named agent. `carry` is its first carry: traced, so new weights of one network do not compile again."""

    name: str
    act: Act
    carry: PyTree
    about: str  # one line for reports: what it does
    forget: Forget = keep


@dataclass(frozen=True)
class PolicyAct:
    """`Algorithm.act`, then the task's decoder. Carry: (policy, its memory).

    The masked distribution inside `act` is the only sampler; an illegal action is executed as HOLD and counted, as in
    `TradingEnv.step`.
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


@dataclass(frozen=True)
class OneOf:
    """Several agents as branches of one program. Carry: (int32[] which, the carries of all of them)."""

    acts: tuple[Act, ...]

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[PyTree, Order, Array]:
        which, carries = carry

        def branch(i: int) -> Any:
            def run(carries: tuple[PyTree, ...]) -> tuple[PyTree, Order, Array]:
                mine, order, action = self.acts[i](carries[i], state, ref, params, key)
                return (*carries[:i], mine, *carries[i + 1:]), order, jnp.int32(action)

            return run

        carries, order, action = jax.lax.switch(which, [branch(i) for i in range(len(self.acts))], carries)
        return (which, carries), order, action


def compiled_together(agents: Sequence[Agent]) -> list[Agent]:
    """The same agents, sharing one compiled evaluation: compiling `transition` once saves seconds per agent.

    For integer rules, whose results cannot depend on how a program was compiled; a policy's floats might. Raises
    ValueError for an agent that forgets.
    """
    if forgetful := [agent.name for agent in agents if agent.forget is not keep]:
        raise ValueError(f"agents that forget cannot share a program: {', '.join(forgetful)}")
    act = OneOf(tuple(agent.act for agent in agents))
    carries = tuple(agent.carry for agent in agents)
    return [agent._replace(act=act, carry=(jnp.int32(i), carries)) for i, agent in enumerate(agents)]


def forget_episode(carry: PyTree, first: Array) -> PyTree:
    """The policy stays, its memory does not."""
    policy, memory = carry
    return policy, forget(memory, first)


def greedy(algorithm: Algorithm, policy: PyTree, env: TradingEnv) -> Agent:
    """The policy's most probable legal action at every bar."""
    return Agent("greedy", PolicyAct(env, algorithm.act, False), (policy, algorithm.carry),
                 "most probable legal action", forget_episode)


def sampled(algorithm: Algorithm, policy: PyTree, env: TradingEnv) -> Agent:
    """An action drawn from the policy's masked distribution at every bar."""
    return Agent("sampled", PolicyAct(env, algorithm.act, True), (policy, algorithm.carry),
                 "drawn from the policy", forget_episode)
