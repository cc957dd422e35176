"""The training state of PPO. Everything that influences training from update to update is here."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.config import PPOConfig
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.opening import OpeningPlan, opening_at
from jaxtrade.rl.reward_scale import RewardScale
from jaxtrade.rl.schedules import progress
from jaxtrade.rl.state import EpisodeTotals, Policy
from jaxtrade.types import Array, PyTree


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]; meanings as in `PPOConfig`. They are leaves, so a sweep is a vmap."""

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    gae_lambda: Array
    clip_eps: Array
    vf_clip_eps: Array
    ent_coef: Array
    ent_coef_end: Array
    vf_coef: Array
    max_grad_norm: Array
    target_kl: Array
    adapter_freeze: Array


def make_hparams(config: PPOConfig) -> HParams:
    """The tunable floats of `config`. If `ent_coef_end` is None, the entropy bonus stays constant."""
    values = {name: getattr(config, name) for name in HParams.__dataclass_fields__}
    if values["ent_coef_end"] is None:
        values["ent_coef_end"] = config.ent_coef
    return HParams(**{name: jnp.float32(value) for name, value in values.items()})


def halved_rates(hparams: HParams, times: int) -> HParams:
    """`Algorithm.retry`: each of the `times` rollbacks halves the start and the end of the learning rate."""
    return hparams.replace(learning_rate=hparams.learning_rate * 0.5**times,
                           learning_rate_end=hparams.learning_rate_end * 0.5**times)


class TrainState(struct.PyTreeNode):
    """The whole state of a PPO run between two updates (a `LoopState`).

    ref: next reference of each environment. first: bool[N], True if `ref` starts an episode.
    carry: float32[N, H], memory of the policy before `ref`. It is not yet reset where `first`. None without a memory.
    key: typed key that only a rollback changes. Update `u` draws from `fold_in(key, u)`.
    update, total_updates: int32[]. Environment steps are `update * num_envs * num_steps`. The host counts them, because
        they would overflow int32.
    rollbacks: int32[], number of times that the run went back to a checkpoint.
    opening: schedule of actions that a transfer added, else None.
    advice: state of the advisor, shared by all agents of a population; None without an advisor.
    rewards: what rewards are divided by; None without `normalise_rewards`.
    errors: float32[M], mean |advantage| of each symbol (`rl.symbols`); None unless the sampler reads weights.
    """

    params: PyTree
    opt_state: PyTree
    normaliser: RunningStats
    env_state: PyTree
    ref: PyTree
    first: Array
    carry: PyTree
    episodes: EpisodeTotals
    key: Array
    update: Array
    total_updates: Array
    hparams: HParams
    rollbacks: Array
    opening: OpeningPlan | None = None
    advice: AdviceState | None = None
    rewards: RewardScale | None = None
    errors: Array | None = None


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)
