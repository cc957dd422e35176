"""Keys of the Q-learners: those that all share, of DQN and of PQN."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Count, FromOne, Positive, Section, Share
from jaxtrade.config.learning import RolloutConfig
from jaxtrade.errors import ConfigError


class QLearningConfig(Section, frozen=True):
    """Keys of every Q-learner. Floats become leaves of the train state, so one vmap runs a
    sweep.
    """

    layer_norm: bool = False
    """normalise the outputs of each hidden layer over its units, before the activation"""
    dueling: bool = False
    """Q is a value plus the advantages of the actions minus their mean over all actions"""
    normalise_rewards: bool = True
    """divide rewards by the running standard deviation of the discounted return"""
    learning_rate: Positive = 1.0e-3
    """of Adam, at the first update; it changes linearly"""
    learning_rate_end: Positive = 1.0e-4
    """reached at the last update"""
    gamma: Share = 0.99
    """discount of rewards per step"""
    max_grad_norm: Positive = 10.0
    """gradients of a larger norm are scaled down to it"""
    epsilon: Share = 1.0
    """probability of a random legal action, at the first update; it falls linearly"""
    epsilon_end: Share = 0.05
    """that probability from epsilon_until on; a sampled evaluation uses it too"""
    epsilon_until: float = Field(default=0.5, gt=0, le=1)
    """share of the run after which epsilon_end is reached"""


# --- The section `dqn` of a configuration


MOST = 2**31  # rows and steps are counted in int32


class DQNConfig(QLearningConfig, frozen=True):
    """DQN with action masks and a replay on the device (Mnih et al. 2015). The loss is Huber's with
    delta 1.
    """

    buffer_size: Count = Field(default=200_000, ge=1, lt=MOST)
    """transitions of the replay of one agent; rounded down to whole rollouts"""
    batch_size: Count = Field(default=256, ge=1)
    """samples of a gradient step; a multiple of rollout.num_shards"""
    replay_ratio: Positive = 1.0
    """samples trained per environment step; gradient steps of an update = this * rollout.num_envs *
    rollout.num_steps / dqn.batch_size
    """
    learning_starts: Count = Field(default=10_000, ge=0, lt=MOST)
    """environment steps before the first gradient step"""
    n_steps: int = Field(default=3, ge=1, le=64)
    """rewards of a sample before Q bootstraps it; fewer where the episode ends"""
    double: bool = True
    """the online network chooses the action that the target network values (double DQN)"""
    dueling: bool = True
    """Q is a value plus the advantages of the actions minus their mean over all actions"""
    target_every: Count = Field(default=2_000, ge=1)
    """with tau=0: the target network becomes the online one whenever the environment steps cross a
    multiple of this
    """
    tau: Share = 0.0
    """above 0: each gradient step moves the target network by this share, and target_every is not
    used
    """
    replay: Literal["uniform", "prioritised"] = "uniform"
    """which transitions are drawn: all alike, or more often those of a large error"""
    priority_alpha: Share = 0.6
    """prioritised: power of the error; 0 draws all alike"""
    priority_beta: Share = 0.4
    """prioritised: power of the importance weights at the first update; it changes linearly"""
    priority_beta_end: Share = 1.0
    """that power at the last update"""

    def gradient_steps(self, rollout: RolloutConfig) -> int:
        """Gradient steps of an update. Raises ValueError if they are not whole; it names the
        nearest values that work."""
        steps = rollout.num_envs * rollout.num_steps
        exact = self.replay_ratio * steps / self.batch_size
        if round(exact) >= 1 and math.isclose(exact, round(exact), rel_tol=1e-9):
            return round(exact)
        near = [
            f"{count * self.batch_size / steps!r} ({count:,})"
            for count in (math.floor(exact), math.ceil(exact))
            if count >= 1
        ]
        raise ValueError(
            f"dqn.replay_ratio ({self.replay_ratio!r}) * rollout.num_envs * rollout.num_steps ({steps:,}) "
            f"/ dqn.batch_size ({self.batch_size:,}) is {exact:g} gradient steps in an update, and they "
            f"must be whole: set dqn.replay_ratio={' or '.join(near)}, or another batch size"
        )

    def rows(self, rollout: RolloutConfig) -> int:
        """Time rows of the replay: as many whole rollouts as `buffer_size` holds. Raises ValueError
        if those are too few for one rollout and a sample of `n_steps`."""
        per_rollout = rollout.num_envs * rollout.num_steps
        found = self.buffer_size // per_rollout * rollout.num_steps
        least = -(-(rollout.num_steps + self.n_steps - 1) // rollout.num_steps)
        if found < least * rollout.num_steps:
            raise ValueError(
                f"dqn.buffer_size ({self.buffer_size:,}) holds {found // rollout.num_steps} rollouts of "
                f"{per_rollout:,} transitions (rollout.num_envs * rollout.num_steps), and samples of "
                f"dqn.n_steps ({self.n_steps}) need {least}: set dqn.buffer_size={least * per_rollout} or "
                "more"
            )
        return found

    def check_priorities(self) -> None:
        """Raises ValueError if a key of prioritised draws is set and draws are uniform."""
        default = DQNConfig()
        changed = [
            name
            for name in ("priority_alpha", "priority_beta", "priority_beta_end")
            if getattr(self, name) != getattr(default, name)
        ]
        if changed and self.replay != "prioritised":
            raise ValueError(
                f"dqn.{', dqn.'.join(changed)}: no effect with dqn.replay=uniform, which draws all "
                "transitions alike: set dqn.replay=prioritised, or leave "
                f"{'it' if len(changed) == 1 else 'them'} out"
            )

    def check_length(self, steps: int) -> None:
        """Raises ConfigError if a run of `steps` environment steps ends before it learns
        anything.
        """
        if self.learning_starts > steps:
            raise ConfigError(
                f"dqn.learning_starts ({self.learning_starts:,}) is beyond the run's {steps:,} "
                "environment steps (train.total_timesteps, in whole chunks): it would never learn; set "
                f"dqn.learning_starts={steps // 10} (a tenth), or raise train.total_timesteps"
            )

    def check(self, rollout: RolloutConfig) -> None:
        """Raises ValueError unless the counts fit those of the rollout."""
        steps, gradient_steps = rollout.num_envs * rollout.num_steps, self.gradient_steps(rollout)
        self.rows(rollout)
        if self.batch_size % rollout.shards:
            near = max(round(self.batch_size / rollout.shards), 1) * rollout.shards
            raise ValueError(
                f"dqn.batch_size ({self.batch_size}) must be a multiple of rollout.num_shards "
                f"({rollout.shards}), whose groups give equal shares: set dqn.batch_size={near}"
            )
        if self.target_every * gradient_steps + steps >= MOST:
            raise ValueError(
                f"dqn.target_every ({self.target_every:,}) * the gradient steps of an update "
                f"({gradient_steps:,}) must stay below {MOST - steps:,}: lower dqn.target_every"
            )


# --- The section `pqn` of a configuration


class PQNConfig(QLearningConfig, frozen=True):
    """PQN: Q(lambda) without a replay and without a target network (Gallici et al. 2024)."""

    num_minibatches: Annotated[Count, Field(ge=1)] | Literal["auto"] = "auto"
    """per epoch; gru: each holds whole rollouts of some envs; auto: as many as leave 512 rows or
    more to each, at most 32
    """
    num_epochs: FromOne = 2
    """passes over a rollout in each update"""
    layer_norm: bool = True
    """normalise the outputs of each hidden layer over its units, before the activation; without it
    PQN may diverge
    """
    q_lambda: Share = 0.65
    """weight of longer returns in the targets"""
