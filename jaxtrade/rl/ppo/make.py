"""PPO as an `Algorithm`."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.ppo import reports
from jaxtrade.rl.ppo.act import act
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.network import first_parameters, make_network
from jaxtrade.rl.ppo.state import TrainState, halved_rates, make_hparams, policy_of
from jaxtrade.rl.ppo.update import update
from jaxtrade.rl.rollout import reset_all
from jaxtrade.rl.schedules import optimiser
from jaxtrade.rl.state import EpisodeTotals, strong_types
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. Raises TypeError for a key that is not typed."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError("init needs a typed key: jax.random.key(seed), not jax.random.PRNGKey(seed)")
    if ppo.stage is not None:
        params, _ = ppo.stage(params, jnp.float32(0))
    env, num_envs = ppo.env, ppo.rollout.num_envs
    key_network, key_reset, key_run = jax.random.split(key, 3)
    env_state, ref = reset_all(env, key_reset, params, num_envs, ppo.first_env)
    parameters = first_parameters(ppo.settings, env.num_actions, env.observation_size, key_network, ppo.fusion)
    stats = init_stats(env.observation_size)
    if ppo.settings.normalise_observations:
        # Otherwise the first rollout would see raw values, all clipped to the same number where they are prices.
        stats = merge(stats, jax.vmap(env.observe, (0, None))(ref, params), reduce=ppo.reduce)
    return strong_types(TrainState(
        params=parameters, opt_state=optimiser(1.0).init(parameters), normaliser=stats, env_state=env_state,
        ref=ref, first=jnp.ones(num_envs, bool),
        carry=jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), ppo.first_carry),
        episodes=EpisodeTotals(jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)), key=key_run,
        update=jnp.int32(0), total_updates=jnp.int32(ppo.total_updates), hparams=make_hparams(ppo.config),
        rollbacks=jnp.int32(0),
    ))


def make_ppo(config: RunConfig, env: Env, total_updates: int, *, summarise: Summary | None = None,
             precision: str | None = None, stage: Stage | None = None, fusion: Fusion | None = None,
             reduce: Reduce = LOCAL) -> Algorithm:
    """PPO on `env` for a run of `total_updates` updates, the length that the schedules span.

    Args:
        config: its sections `ppo`, `network` and `rollout` are read: static counts, and start values of the floats.
        summarise: extra metrics, from what an environment reports in `info`.
        precision: precision of matrix products, e.g. "highest" (float32 also where the platform's default is less).
        stage: what `params` become as the run goes on. Everything in an update sees them so, and its figures are
            metrics; `act` does not apply it.
        fusion: how advice meets the policy; `params.advice` then holds the advice.
        reduce: how figures over environments are formed where several devices share them (`networks.reductions`); the
            counts of `config.rollout` are then those of one device.
    Returns:
        `Algorithm`, whose state is a `TrainState`. `inputs` of its update is None, or with a fusion the
        `rl.listening.state.AdviceState` whose table and trust hold in this update (then metric `visits` is
        float32[T bars], see `fusion.visits`). act returns `ActExtras` for one environment (vmap it over many);
        `explore` is a Python bool: True samples, False takes the most probable legal action and reads no key. All of
        them work under vmap over states, with `params` shared.
    Raises:
        ConfigError: the network remembers, and a minibatch cannot hold whole rollouts of some environments.
    """
    network, rollout, count = make_network(config.network, env.num_actions, precision), config.rollout, \
        config.ppo.num_minibatches
    ppo = PPO(config.ppo, rollout, config.network, env, network, total_updates, summarise, stage, fusion, reduce)
    if ppo.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(f"network.kind={config.network.kind} has a memory: rollout.num_envs/rollout.num_shards "
                          f"({rollout.num_envs // rollout.shards}) must be a multiple of ppo.num_minibatches ({count})")
    return Algorithm(
        init=partial(init, ppo), update=partial(update, ppo), act=partial(act, ppo), policy=policy_of, env=env,
        steps_per_update=rollout.num_envs * rollout.num_steps, carry=ppo.first_carry, health=reports.HEALTH,
        warnings=reports.WARNINGS, progress=reports.PROGRESS, remedies=reports.REMEDIES,
        step_sizes=("learning_rate", "learning_rate_end"), exploration=("ent_coef", "ent_coef_end"),
        retry=halved_rates, retry_note="half the learning rate",
    )
