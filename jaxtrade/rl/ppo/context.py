"""The static part of a PPO learner: everything that stays the same during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtrade.config import NetworkConfig, PPOConfig, RolloutConfig, SamplerConfig
from jaxtrade.networks.heads import Network
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.ppo.form import CPU, Form
from jaxtrade.types import Env, Stage, Summary

UNIFORM = SamplerConfig()


@dataclass(frozen=True)
class PPO:
    """The static context, first argument of PPO's functions.

    num_minibatches: per epoch, what `config` says or what its `auto` means here (`RunConfig.minibatches`).
    settings: configuration of the network. network: see `make_network`. summary: extra metrics, computed from the
    environment's `info`. stage: changes the environment's parameters as the run goes on. fusion: combines the policy
    with advice. reduce: forms figures over environments that several devices share; the counts of `rollout` are then
    those of one device. form: see `form`. sampler: how the symbols of episodes are chosen (`rl.symbols`).
    """

    config: PPOConfig
    num_minibatches: int
    rollout: RolloutConfig
    settings: NetworkConfig
    env: Env
    network: Network
    total_updates: int
    summary: Summary | None = None
    stage: Stage | None = None
    fusion: Fusion | None = None
    reduce: Reduce = LOCAL
    form: Form = CPU
    sampler: SamplerConfig = UNIFORM

    @property
    def first_carry(self) -> Any:
        """The policy's memory before the first observation of an episode; None without a memory."""
        return self.network.first_carry()

    @property
    def first_env(self) -> Any:
        """Global number of this device's first environment."""
        return self.reduce.offset(self.rollout.num_envs)

    @property
    def gradient_rows(self) -> int:
        """Largest number of rows whose gradient is computed at once."""
        given = self.config.gradient_rows
        return self.form.gradient_rows if given == "auto" else given

    @property
    def sequence(self) -> int:
        """Consecutive steps of one environment that a minibatch keeps together: with a memory the whole rollout."""
        return 1 if self.first_carry is None else self.rollout.num_steps
