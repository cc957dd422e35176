"""PPO's tunable floats, and the policy of its state."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.config import PPOConfig
from jaxtrade.rl.opening import opening_at
from jaxtrade.rl.schedules import progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]; meanings as in `PPOConfig`. They are leaves, so a sweep
    is a vmap.
    """

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
    """The tunable floats of `config`. If `ent_coef_end` is None, the entropy bonus stays
    constant.
    """
    values = {name: getattr(config, name) for name in HParams.__dataclass_fields__}
    if values["ent_coef_end"] is None:
        values["ent_coef_end"] = config.ent_coef
    return HParams(**{name: jnp.float32(value) for name, value in values.items()})


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)
