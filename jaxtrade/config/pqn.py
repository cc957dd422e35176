"""The section `pqn` of a configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Count
from jaxtrade.config.q_learning import QLearningConfig


class PQNConfig(QLearningConfig, frozen=True):
    """PQN: Q(lambda) without a replay and without a target network (Gallici et al. 2024)."""

    num_minibatches: Annotated[Count, Field(ge=1)] | Literal["auto"] = Field(
        default="auto",
        description="per epoch; gru: each holds whole rollouts of some envs; auto: as many as leave "
        "512 rows or more to each, at most 32",
    )
    num_epochs: int = Field(default=2, ge=1, description="passes over a rollout in each update")
    layer_norm: bool = Field(
        default=True,
        description="normalise the outputs of each hidden layer over its units, "
        "before the activation; without it PQN may diverge",
    )
    q_lambda: float = Field(
        default=0.65, ge=0, le=1, description="weight of longer returns in the targets"
    )
