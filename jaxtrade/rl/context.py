"""The static part of a learner: everything that stays the same during training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from jaxtrade.config import ActorConfig, NetworkConfig, RolloutConfig, RunConfig, SamplerConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.accelerators import CPU, NetworkForm, form_of, pack_parameters
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import FLOAT32, DotGeneral, dot_general_of
from jaxtrade.rl.advice import Fusion
from jaxtrade.types import Env, PyTree, Stage, Summary

ConfigT = TypeVar("ConfigT")
NetworkT = TypeVar("NetworkT")
UNIFORM = SamplerConfig()
FRESH = ActorConfig()  # the policy that learns acts


class MakeOptions(TypedDict, total=False):
    """What a learner is made with besides its configuration; each may be left out.

    `rl.ppo.make_ppo` says what each means.
    """

    summarise: Summary | None
    stage: Stage | None
    fusion: Fusion | None
    reduce: Reduce
    platform: str | None


@dataclass(frozen=True)
class Context(Generic[ConfigT, NetworkT]):
    """The static context, first argument of a learner's functions.

    config: the learner's own section.
    num_minibatches: per epoch, what `config` says or what its `auto` means
        here (`RunConfig.minibatches`).
    settings: configuration of the network.
    network: made from it.
    reduce: reduces metrics over environments that several devices share; the counts of `rollout`
        are then those of one device.
    form: of the program (`networks.accelerators`).
    summary, stage, fusion, sampler, actor: what wraps a learner, and no learner reads: extra
        metrics from the environment's `info` (`rl.rollout`), changes of the environment's
        parameters as the run goes on and shares of symbols (`rl.wrappers`), advice (`rl.acting`,
        `rl.wrappers`), and which policy acts (`rl.state`).
    """

    config: ConfigT
    num_minibatches: int
    rollout: RolloutConfig
    settings: NetworkConfig
    env: Env
    network: NetworkT
    total_updates: int
    summary: Summary | None = None
    stage: Stage | None = None
    fusion: Fusion | None = None
    reduce: Reduce = LOCAL
    form: NetworkForm = CPU
    sampler: SamplerConfig = UNIFORM
    actor: ActorConfig = FRESH

    @property
    def first_carry(self) -> Any:
        """The policy's memory before the first observation of an episode; None without a memory."""
        network: Any = self.network
        return network.first_carry()

    @property
    def first_env(self) -> Any:
        """Global number of this device's first environment."""
        return self.reduce.offset(self.rollout.num_envs)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of an update, over all devices."""
        return self.reduce.count(self.rollout.num_envs) * self.rollout.num_steps

    @property
    def sequence(self) -> int:
        """Consecutive steps of one environment that a minibatch keeps together.

        With a memory it is the whole rollout.
        """
        return 1 if self.first_carry is None else self.rollout.num_steps

    def pack(self, parameters: PyTree) -> PyTree:
        """Pack the parameters as training uses them (`networks.accelerators`)."""
        return pack_parameters(self.network, self.form, parameters)


# Of `types.Env`, what acting needs too: a policy that is read from its folder acts without a market.
OF_ACTING = ("num_actions", "observation_size", "observe", "action_mask")


def require_env(env: Any) -> None:
    """Raise ConfigError for an environment of another library."""
    if missing := [name for name in OF_ACTING if not hasattr(env, name)]:
        raise ConfigError(
            f"env=<{type(env).__name__}> has no {', '.join(missing)}: a learner needs an environment of "
            "pure JAX functions (jaxtrade.types.Env), because it is compiled with it. Take "
            "jt.make_env(config) for trading; `env, params = jt.from_gymnax(NAME)` for an environment "
            "of gymnax; or write a jaxtrade.types.Env of your own (six members). Gymnasium's step in Python: "
            "write a task ('An environment becomes a task' in docs/sb3.md)"
        )


def contexts_of(
    config: RunConfig,
    section: Any,
    env: Env,
    total_updates: int,
    network_of: Callable[[DotGeneral], Any],
    **around: Unpack[MakeOptions],
) -> tuple[Any, Any]:
    """Return the contexts of acting and of training.

    Acting computes float32 products, training those of the configured precision.

    Args:
        section: the learner's own.
        network_of: makes the network that computes by some products. Raises ConfigError as it does.
    """
    platform, fusion = around.get("platform"), around.get("fusion")
    products = dot_general_of(config.compute.precision, platform)
    exact = Context(
        section,
        config.minibatches,
        config.rollout,
        config.network,
        env,
        network_of(FLOAT32),
        total_updates,
        around.get("summarise"),
        around.get("stage"),
        fusion,
        around.get("reduce", LOCAL),
        form_of(platform),
        config.sampler,
        config.actor,
    )
    return exact, replace(
        exact,
        network=network_of(products),
        fusion=fusion and replace(fusion, dot_general=products),
    )


def check_sequences(ctx: Context[Any, Any], section: str) -> None:
    """Raise ConfigError if a minibatch of a network with memory cannot hold whole rollouts.

    It must hold whole rollouts of some environments.

    Args:
        section: the learner's name.
    """
    rollout, count = ctx.rollout, ctx.num_minibatches
    if ctx.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(
            f"network.kind={ctx.settings.kind} has a memory: rollout.num_envs/rollout.num_shards "
            f"({rollout.num_envs // rollout.shards}) must be a multiple of {section}.num_minibatches ({count})"
        )
