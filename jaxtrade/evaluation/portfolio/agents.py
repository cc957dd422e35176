"""Agents of `allocate`: a pure function from a state to wanted contracts, and the carry that it
passes on.

The baselines obey the caps on positions and the flat time, but not cooldown, gate and cap on
trades, which limit what a policy learns to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.env import rules
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.market import Portfolio
from jaxtrade.env.portfolio.state import PortfolioParams, PortfolioState
from jaxtrade.env.reference import ObservationRef
from jaxtrade.evaluation.agents import forget_episode, keep
from jaxtrade.evaluation.baselines import sma_signs
from jaxtrade.types import Algorithm, Array, PyTree

NAMES = ("flat", "random", "buy_hold", "sma_cross")


class Want(NamedTuple):
    """A decision. state: with the order counted. quantity: int32[S] contracts. illegal: bool[].
    action: int32[] id, or
    -1 for a baseline."""

    state: PortfolioState
    quantity: Array
    illegal: Array
    action: Array


# (carry, state, its reference, parameters, key) -> (carry, decision)
Act = Callable[
    [PyTree, PortfolioState, ObservationRef, PortfolioParams, Array], tuple[PyTree, Want]
]


class JointAgent(NamedTuple):
    """A named agent. carry is traced; act is static, and equal for agents that share a program."""

    name: str
    act: Act
    carry: PyTree
    about: str
    forget: Callable[[PyTree, Array], PyTree] = keep


@dataclass(frozen=True)
class PolicyAct:
    """`Algorithm.act`. Carry: (policy, its memory). An illegal action changes nothing and is
    counted.
    """

    env: PortfolioEnv
    algorithm_act: Any
    explore: bool

    def __call__(
        self,
        carry: PyTree,
        state: PortfolioState,
        ref: ObservationRef,
        params: PortfolioParams,
        key: Array,
    ) -> tuple[PyTree, Want]:
        policy, memory = carry
        memory, action, _ = self.algorithm_act(policy, memory, ref, params, key, self.explore)
        return (policy, memory), Want(*self.env.ordered(state, action, params), action)


class Knowledge(NamedTuple):
    """What the baselines know. which: int32[] index into NAMES. signs: int32[T, S] of the moving
    averages. units: int32[S] contracts of a full position."""

    which: Array
    signs: Array
    units: Array


@dataclass(frozen=True)
class Baseline:
    """All baselines as one program; `Knowledge.which` chooses."""

    env: PortfolioEnv

    def __call__(
        self,
        carry: Knowledge,
        state: PortfolioState,
        ref: ObservationRef,
        params: PortfolioParams,
        key: Array,
    ) -> tuple[Knowledge, Want]:
        rank = jax.random.randint(key, (), 0, jnp.sum(ref.mask))
        action = jnp.argmax(jnp.cumsum(ref.mask) > rank).astype(jnp.int32)
        drawn = Want(*self.env.ordered(state, action, params), action)
        alike: tuple[Any, Any] = (
            state,
            params,
        )  # `may_open` reads what states of one and of several symbols share
        ready, held = rules.may_open(*alike), state.legs.quantity
        sign = carry.signs[state.row]
        bought = jnp.where(ready & (held == 0).all(), carry.units, held)
        crossed = jnp.where(
            sign == 0,
            held,
            jnp.where(ready, sign * carry.units, jnp.where(sign * held < 0, 0, held)),
        )
        quantity = jnp.select(
            [carry.which == i for i in range(len(NAMES))],
            [jnp.zeros_like(held), drawn.quantity, bought, crossed],
        )
        random = carry.which == NAMES.index("random")
        counted = jax.tree.map(lambda a, b: jnp.where(random, a, b), drawn.state, state)
        return carry, Want(
            counted, quantity.astype(jnp.int32), jnp.bool_(False), jnp.where(random, action, -1)
        )


def position_of(env: PortfolioEnv, market: Portfolio, cap: int) -> np.ndarray:
    """int64[S] contracts: the largest equal number of units in every symbol that the caps allow.
    cap: contracts that the account may hold."""
    chosen, count = env.allocate, len(market.symbols)
    sizes = np.broadcast_to(np.array(chosen.size), (count,))
    most = (
        chosen.max_units
        if chosen.max_total is None
        else min(chosen.max_units, chosen.max_total // count)
    )
    return min(most, cap // int(sizes.sum())) * sizes


def joint_agents(
    env: PortfolioEnv,
    market: Portfolio,
    params: PortfolioParams,
    config: RunConfig,
    algorithm: Algorithm,
    policy: PyTree,
) -> list[JointAgent]:
    """The policy, greedy and sampled, then the baselines flat, random, buy-and-hold and moving
    averages per symbol.
    """
    fast, slow = config.evaluation.sma_fast, config.evaluation.sma_slow
    # Averages of each symbol's own closes, read at its row of the shared bar.
    rows = np.asarray(params.market.rows)
    signs = np.stack(
        [sma_signs(member.data, fast, slow)[rows[:, s]] for s, member in enumerate(market.members)],
        axis=1,
    )
    units = position_of(env, market, int(params.account.max_contracts))
    about = {
        "flat": "never trades",
        "random": "uniform over the legal actions",
        "buy_hold": "buys every symbol, equally many units, at each session's first decision bar; out at the flat "
        "bar",
        "sma_cross": f"each symbol long while its SMA {fast} > SMA {slow}, short while below",
    }
    carry = (policy, algorithm.carry)
    return [
        JointAgent(
            "greedy",
            PolicyAct(env, algorithm.act, False),
            carry,
            "best legal action of the policy",
            forget_episode,
        ),
        JointAgent(
            "sampled",
            PolicyAct(env, algorithm.act, True),
            carry,
            "drawn from the policy",
            forget_episode,
        ),
        *(
            JointAgent(
                name,
                Baseline(env),
                Knowledge(
                    jnp.int32(i), jnp.asarray(signs, jnp.int32), jnp.asarray(units, jnp.int32)
                ),
                about[name],
            )
            for i, name in enumerate(NAMES)
        ),
    ]
