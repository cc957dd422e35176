"""Attribution by ablation: the policy is evaluated again without a group, which stays at its mean
at every bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reference import ObservationRef
from jaxtrade.env.state import EnvParams, EnvState, Order
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.evaluation.agents import Agent
from jaxtrade.evaluation.attribution.groups import SlotGroup, group_mask
from jaxtrade.evaluation.backtest import DecisionBars, Lane, run_lanes
from jaxtrade.evaluation.loaded import Given
from jaxtrade.networks.memory import forget
from jaxtrade.types import Algorithm, Array, PyTree

TOGETHER = 8  # evaluations per program; a record of years takes tens of MB for each


def given(ref: Any, observation: Array) -> Given:
    """The decision of a reference on another observation. Both may have leading axes."""
    return Given(observation, ref.mask, ref.legs, ref.aux)


@dataclass(frozen=True)
class AblatedAct:
    """A greedy `Act` on an observation with fixed slots. Carry: (policy, its memory, bool[D] slots,
    float32[D] values).

    algorithm_act: `Algorithm.act` on `Given` references.
    """

    env: TradingEnv
    algorithm_act: Any

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> tuple[PyTree, Order, Array]:
        del key
        policy, memory, fixed, values = carry
        seen = given(ref, jnp.where(fixed, values, self.env.observe(ref, params)))
        memory, action, _ = self.algorithm_act(policy, memory, seen, None, None, False)
        order = self.env.decode(jnp.where(ref.mask[action], action, HOLD), state, params)
        return (policy, memory, fixed, values), order, action


def _forget(carry: PyTree, first: Array) -> PyTree:
    policy, memory, *rest = carry
    return policy, forget(memory, first), *rest


def ablated_profits(
    env: TradingEnv,
    algorithm: Algorithm,
    policy: PyTree,
    params: EnvParams,
    decisions: DecisionBars,
    groups: Sequence[SlotGroup],
    values: np.ndarray,
) -> np.ndarray:
    """float64[1 + groups] dollars: net profit of the strategy pass, with every slot and then
    without each group.

    algorithm: acts on `Given` references. values: float32[D], what the slots of a missing group
        hold.
    """
    size = len(values)
    fixed = np.stack([np.zeros(size, bool), *(group_mask(group, size) for group in groups)])
    kept = jnp.asarray(values, jnp.float32)

    def lane(row: np.ndarray) -> Lane:
        carry = (policy, algorithm.carry, jnp.asarray(row), kept)
        agent = Agent(
            "ablated",
            AblatedAct(env, algorithm.act),
            carry,
            "greedy, without a group of slots",
            _forget,
        )
        return Lane(agent, params, decisions, jax.random.key(0))

    profits = []
    for first in range(0, len(fixed), TOGETHER):
        block = fixed[first : first + TOGETHER]
        padded = np.concatenate(
            [block, np.zeros((TOGETHER - len(block), size), bool)]
        )  # one shape, one program
        records = run_lanes(env, [lane(row) for row in padded], "strategy")
        profits += [int(record.equity[-1]) / 1000 for record in records[: len(block)]]
    return np.asarray(profits)
