"""PPO as an `Algorithm`."""

from __future__ import annotations

from functools import partial

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.precision import dot_general_of
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.form import form_of
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.ppo import reports
from jaxtrade.rl.ppo.act import act
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.network import first_parameters, make_network
from jaxtrade.rl.ppo.state import make_hparams, policy_of
from jaxtrade.rl.ppo.update import update
from jaxtrade.rl.train_state import TrainState, first_state, halved_rates
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. Raises TypeError if the key is not a typed key."""

    def parameters(key: Array) -> PyTree:
        return first_parameters(
            ppo.settings, ppo.env.num_actions, ppo.env.observation_size, key, ppo.fusion
        )

    return first_state(ppo, key, params, parameters, make_hparams(ppo.config))


def make_ppo(
    config: RunConfig,
    env: Env,
    total_updates: int,
    *,
    summarise: Summary | None = None,
    stage: Stage | None = None,
    fusion: Fusion | None = None,
    reduce: Reduce = LOCAL,
    platform: str | None = None,
) -> Algorithm:
    """Build PPO on `env` for a run of `total_updates` updates. The schedules span this length.

    Args:
        config: the sections `ppo`, `network`, `rollout`, `compute`, `sampler` and `actor` are read.
            They hold static counts and the initial values of the tunable floats.
        summarise: extra metrics, computed from the environment's `info`.
        stage: changes `params` as the run goes on. The whole update uses the changed parameters,
            and the stage's figures become metrics. `act` does not apply the stage.
        fusion: combines the policy with advice. `params.advice` then holds the advice.
        reduce: forms figures over environments that several devices share (`networks.reductions`). The counts of
            `config.rollout` are then those of one device.
        platform: where the program will run, such as "cpu" or "gpu" (`form.form_of`). Default: that
            of this process.
    Returns:
        `Algorithm` whose state is a `TrainState`. All of its functions work under vmap over states with shared
        `params`. Without a fusion, `inputs` of its update is None. With a fusion it is the `AdviceState`
        (`rl.listening.state`) of this update, and the metric `visits` is float32[T bars] (see `fusion.visits`). `act`
        handles one environment and returns `ActExtras`; use vmap for many. Its `explore` is a Python bool: True samples
        an action, False takes the most probable legal action and needs no key. `act` computes float32 products,
        whatever precision the update has.
    Raises:
        ConfigError: the network has a memory, but a minibatch cannot hold whole rollouts of some
            environments.
    """
    rollout, count, precision = config.rollout, config.minibatches, config.compute.precision
    exact = PPO(
        config.ppo,
        count,
        rollout,
        config.network,
        env,
        make_network(config.network, env.num_actions),
        total_updates,
        summarise,
        stage,
        fusion,
        reduce,
        form_of(platform),
        config.sampler,
        config.actor,
    )
    products = dot_general_of(precision, platform)
    ppo = exact.with_products(make_network(config.network, env.num_actions, products), products)
    if ppo.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(
            f"network.kind={config.network.kind} has a memory: rollout.num_envs/rollout.num_shards "
            f"({rollout.num_envs // rollout.shards}) must be a multiple of ppo.num_minibatches ({count})"
        )
    return Algorithm(
        init=partial(init, ppo),
        update=partial(update, ppo),
        act=partial(act, exact),
        policy=policy_of,
        env=env,
        steps_per_update=rollout.num_envs * rollout.num_steps,
        carry=ppo.first_carry,
        health=reports.health(precision),
        warnings=reports.WARNINGS,
        progress=reports.PROGRESS,
        remedies=reports.REMEDIES,
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=("ent_coef", "ent_coef_end"),
        retry=halved_rates,
        retry_note="half the learning rate",
        together=ppo.form.agents,
    )
