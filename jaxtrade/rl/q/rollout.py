"""The rollout of a Q-learner: epsilon-greedy acting in all environments."""

from __future__ import annotations

from typing import NamedTuple

from jaxtrade.rl.collecting import Tally, roll_out
from jaxtrade.rl.q.act import act_by_chance, of_action
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree, Transition


class StepExtras(NamedTuple):
    """`Transition.extras` of a Q-learner, float32[T, N] each: q of the action that was taken,
    value: the largest Q of a legal action. overridden: as of `ActExtras`."""

    q: Array
    value: Array
    overridden: Array | None


def explore_rollout(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Tally]:
    """One rollout, as `collecting.roll_out`. policy: from `acting.ready`."""

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ctx, policy, carry, ref, params, chance)
        return (
            carry,
            action,
            StepExtras(of_action(extras.logits, action), extras.value, extras.overridden),
        )

    return roll_out(ctx, explore, state, params, key)
