"""The static half of a PPO learner: everything that does not change while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtrade.config import NetworkConfig, PPOConfig, RolloutConfig
from jaxtrade.networks.heads import Network
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.types import Env, Stage, Summary


@dataclass(frozen=True)
class PPO:
    """First argument of PPO's functions.

    settings: of the network. network: see `make_network`. summary: extra metrics, from what the environment reports in
    `info`. stage: changes the environment's parameters as the run goes on. fusion: how advice meets the policy. reduce:
    how figures over environments are formed where several devices share them; the counts of `rollout` are then those of
    one device.
    """

    config: PPOConfig
    rollout: RolloutConfig
    settings: NetworkConfig
    env: Env
    network: Network
    total_updates: int
    summary: Summary | None = None
    stage: Stage | None = None
    fusion: Fusion | None = None
    reduce: Reduce = LOCAL

    @property
    def first_carry(self) -> Any:
        """The memory of one policy before an episode's first observation; None without one."""
        return self.network.first_carry()

    @property
    def first_env(self) -> Any:
        """Global number of the first environment here."""
        return self.reduce.offset(self.rollout.num_envs)

    @property
    def sequence(self) -> int:
        """Consecutive steps of one env that stay together in a minibatch: 1, or with a memory all of a rollout's."""
        return 1 if self.first_carry is None else self.rollout.num_steps
