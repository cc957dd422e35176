"""PPO as an `Algorithm`."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import init_stats, merge
from jaxtrade.networks.precision import dot_general_of
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.ppo import reports
from jaxtrade.rl.ppo.act import act
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.form import form_of
from jaxtrade.rl.ppo.network import first_parameters, in_precision, make_network
from jaxtrade.rl.ppo.state import TrainState, halved_rates, make_hparams, policy_of
from jaxtrade.rl.ppo.update import update
from jaxtrade.rl.reward_scale import init_scale
from jaxtrade.rl.rollout import reset_all
from jaxtrade.rl.schedules import optimiser
from jaxtrade.rl.state import EpisodeTotals, strong_types
from jaxtrade.rl.symbols import first_errors
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. Raises TypeError if the key is not a typed key."""
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
        # Without these first statistics the first rollout would normalise by mean 0 and variance 1. Prices would then
        # all be clipped to the same number.
        stats = merge(stats, jax.vmap(env.observe, (0, None))(ref, params), reduce=ppo.reduce)
    return strong_types(TrainState(
        params=parameters, opt_state=optimiser().init(parameters), normaliser=stats, env_state=env_state,
        ref=ref, first=jnp.ones(num_envs, bool),
        carry=jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), ppo.first_carry),
        episodes=EpisodeTotals(jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)), key=key_run,
        update=jnp.int32(0), total_updates=jnp.int32(ppo.total_updates), hparams=make_hparams(ppo.config),
        rollbacks=jnp.int32(0), rewards=init_scale(num_envs) if ppo.config.normalise_rewards else None,
        errors=first_errors(ppo.sampler, params),
    ))


def make_ppo(config: RunConfig, env: Env, total_updates: int, *, summarise: Summary | None = None,
             stage: Stage | None = None, fusion: Fusion | None = None, reduce: Reduce = LOCAL,
             platform: str | None = None) -> Algorithm:
    """Build PPO on `env` for a run of `total_updates` updates. The schedules span this length.

    Args:
        config: the sections `ppo`, `network`, `rollout`, `compute` and `sampler` are read. They hold static counts and
            the initial values of the tunable floats.
        summarise: extra metrics, computed from the environment's `info`.
        stage: changes `params` as the run goes on. The whole update uses the changed parameters, and the stage's
            figures become metrics. `act` does not apply the stage.
        fusion: combines the policy with advice. `params.advice` then holds the advice.
        reduce: forms figures over environments that several devices share (`networks.reductions`). The counts of
            `config.rollout` are then those of one device.
        platform: where the program will run, such as "cpu" or "gpu" (`form.form_of`). Default: that of this process.
    Returns:
        `Algorithm` whose state is a `TrainState`. All of its functions work under vmap over states with shared
        `params`. Without a fusion, `inputs` of its update is None. With a fusion it is the `AdviceState`
        (`rl.listening.state`) of this update, and the metric `visits` is float32[T bars] (see `fusion.visits`). `act`
        handles one environment and returns `ActExtras`; use vmap for many. Its `explore` is a Python bool: True samples
        an action, False takes the most probable legal action and needs no key. `act` computes float32 products,
        whatever precision the update has.
    Raises:
        ConfigError: the network has a memory, but a minibatch cannot hold whole rollouts of some environments.
    """
    rollout, count, precision = config.rollout, config.minibatches, config.compute.precision
    exact = PPO(config.ppo, count, rollout, config.network, env, make_network(config.network, env.num_actions),
                total_updates, summarise, stage, fusion, reduce, form_of(platform), config.sampler)
    ppo = in_precision(exact, dot_general_of(precision, platform))
    if ppo.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(f"network.kind={config.network.kind} has a memory: rollout.num_envs/rollout.num_shards "
                          f"({rollout.num_envs // rollout.shards}) must be a multiple of ppo.num_minibatches ({count})")
    return Algorithm(
        init=partial(init, ppo), update=partial(update, ppo), act=partial(act, exact), policy=policy_of, env=env,
        steps_per_update=rollout.num_envs * rollout.num_steps, carry=ppo.first_carry, health=reports.health(precision),
        warnings=reports.WARNINGS, progress=reports.PROGRESS, remedies=reports.REMEDIES,
        step_sizes=("learning_rate", "learning_rate_end"), exploration=("ent_coef", "ent_coef_end"),
        retry=halved_rates, retry_note="half the learning rate",
    )
