"""What PPO carries from update to update: if it is not here, it does not influence training."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.config import PPOConfig
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.opening import OpeningPlan, opening_at
from jaxtrade.rl.schedules import progress
from jaxtrade.rl.state import EpisodeTotals, Policy
from jaxtrade.types import Array, PyTree


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]: leaves, so that a sweep is one vmap. Meanings as in `PPOConfig`."""

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
    """The tunable floats of `config` as float32 leaves."""
    values = {name: getattr(config, name) for name in HParams.__dataclass_fields__}
    if values["ent_coef_end"] is None:
        values["ent_coef_end"] = config.ent_coef
    return HParams(**{name: jnp.float32(value) for name, value in values.items()})


def halved_rates(hparams: HParams, times: int) -> HParams:
    """`hparams` after `times` rollbacks: the learning rate and its end are halved by each (`Algorithm.retry`)."""
    return hparams.replace(learning_rate=hparams.learning_rate * 0.5**times,
                           learning_rate_end=hparams.learning_rate_end * 0.5**times)


class TrainState(struct.PyTreeNode):
    """A whole PPO run between two updates (a `LoopState`).

    ref, first: what each environment shows next and whether that starts an episode (bool[N]). carry: the policy's
    memory in each before `ref`, float32[N, H], not yet forgotten where `first`; None without one. key: typed, changed
    by a rollback alone; update `u` draws from `fold_in(key, u)`. update, total_updates: int32[]; environment steps are
    `update * num_envs * num_steps`, counted on the host because they overflow int32. rollbacks: int32[], how often the
    run went back to a checkpoint. opening: of a run that began with new actions, else None. advice: of a run with an
    advisor, which all agents of a population share, else None.
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


def policy_of(state: TrainState) -> Policy:
    """The policy that this state acts with (`Algorithm.policy`), without the trust of an advice fusion."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)
