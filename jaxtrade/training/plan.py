"""The length of a run in updates and chunks."""

from __future__ import annotations

from typing import NamedTuple

from jaxtrade.config import TrainConfig
from jaxtrade.text import several


class Plan(NamedTuple):
    """Length of a run in updates and chunks. `message` describes the rounding, or is empty if there
    was none.
    """

    total_updates: int
    chunks: int
    steps_per_update: int
    message: str

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.total_updates * self.steps_per_update


def plan_run(config: TrainConfig, num_envs: int, num_steps: int) -> Plan:
    """Round `total_timesteps` up to whole chunks of updates. One update takes `num_envs` x
    `num_steps` steps.
    """
    steps_per_update = num_envs * num_steps
    chunks = config.chunks(steps_per_update)
    plan = Plan(chunks * config.chunk_updates, chunks, steps_per_update, "")
    if plan.total_steps == config.total_timesteps:
        return plan
    return plan._replace(
        message=(
            f"{config.total_timesteps:,} steps are rounded up to {plan.total_steps:,}: {several(chunks, 'chunk')} of "
            f"{several(config.chunk_updates, 'update')} of {num_envs} environments x {num_steps} steps"
        )
    )
