"""Keys that all Q-learners share."""

from __future__ import annotations

from pydantic import Field

from jaxtrade.config.base import Section


class QLearningConfig(Section, frozen=True):
    """Keys of every Q-learner. Floats become leaves of the train state, so one vmap runs a
    sweep.
    """

    layer_norm: bool = Field(
        default=False,
        description="normalise the outputs of each hidden layer over its units, "
        "before the activation",
    )
    dueling: bool = Field(
        default=False,
        description="Q is a value plus the advantages of the actions minus their mean "
        "over all actions",
    )
    normalise_rewards: bool = Field(
        default=True,
        description="divide rewards by the running standard deviation of the discounted return",
    )
    learning_rate: float = Field(
        default=1.0e-3, gt=0, description="of Adam, at the first update; it changes linearly"
    )
    learning_rate_end: float = Field(default=1.0e-4, gt=0, description="reached at the last update")
    gamma: float = Field(default=0.99, ge=0, le=1, description="discount of rewards per step")
    max_grad_norm: float = Field(
        default=10.0, gt=0, description="gradients of a larger norm are scaled down to it"
    )
    epsilon: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="probability of a random legal action, at the first update; it falls linearly",
    )
    epsilon_end: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="that probability from epsilon_until on; a sampled evaluation uses it too",
    )
    epsilon_until: float = Field(
        default=0.5, gt=0, le=1, description="share of the run after which epsilon_end is reached"
    )
