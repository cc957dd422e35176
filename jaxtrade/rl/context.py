"""The static part of a learner: everything that stays the same during training, and the form of its
program for a platform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import jax

from jaxtrade.config import ActorConfig, NetworkConfig, RolloutConfig, RunConfig, SamplerConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import FLOAT32, DotGeneral, dot_general_of
from jaxtrade.rl.listening import Fusion
from jaxtrade.types import Env, PyTree, Stage, Summary

# The form of a learner's program for a platform: the same mathematics, in the operations that are
# fast there.
#
# On a GPU or a TPU the time of an update goes into starting programs, so few and large operations
# are fast. On a CPU it goes into the operations themselves, so those that read memory in order are
# fast. The forms agree up to rounding.


class Form(NamedTuple):
    """pair: policy and value network are computed as a pair (`networks.heads`). columns:
    log-probability and entropy come from one array for each action
    (`distributions.log_prob_and_entropy`). vectors: gradient steps change the parameters and
    moments as vectors (`rl.packing`). gradient_rows: largest number of rows whose gradient is computed
    at once, where `ppo.gradient_rows` is auto. statistics_rows: number of observations that enter
    the statistics at once; on a CPU they stay in its cache. agents: of a population that are
    computed side by side; None: all.
    """

    pair: bool
    columns: bool
    vectors: bool
    gradient_rows: int
    statistics_rows: int
    agents: int | None


CPU = Form(
    pair=False, columns=False, vectors=False, gradient_rows=16384, statistics_rows=512, agents=8
)
DEVICE = Form(
    pair=True, columns=True, vectors=True, gradient_rows=65536, statistics_rows=16384, agents=None
)


def form_of(platform: str | None = None) -> Form:
    """The form for a platform of JAX ("cpu", "gpu", "cuda", "rocm", "tpu"). Default: that of this
    process.
    """
    return CPU if (platform or jax.default_backend()) == "cpu" else DEVICE


ConfigT = TypeVar("ConfigT")
NetworkT = TypeVar("NetworkT")
UNIFORM = SamplerConfig()
FRESH = ActorConfig()  # the policy that learns acts


@dataclass(frozen=True)
class Context(Generic[ConfigT, NetworkT]):
    """The static context, first argument of a learner's functions.

    config: the learner's own section. num_minibatches: per epoch, what `config` says or what its
        `auto` means here
    (`RunConfig.minibatches`). settings: configuration of the network. network: made from it.
    summary: extra metrics, computed from the environment's `info`. stage: changes the environment's
    parameters as the run goes on. fusion: combines the policy with advice. reduce: forms figures
    over environments that several devices share; the counts of
    `rollout` are then those of one device. form: see `form`. sampler: how the symbols of episodes are chosen
    (`rl.train_state`). actor: which policy acts (`rl.train_state`).
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
    form: Form = CPU
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
        """Consecutive steps of one environment that a minibatch keeps together: with a memory the
        whole rollout.
        """
        return 1 if self.first_carry is None else self.rollout.num_steps

    def packed(self, parameters: PyTree) -> PyTree:
        """The parameters as training uses them: by `network.pack` if the form is a pair and the
        network has it.
        """
        pack = getattr(self.network, "pack", None) if self.form.pair else None
        return parameters if pack is None else pack(parameters)

    def unpacked(self, parameters: PyTree, like: PyTree) -> PyTree:
        """The inverse of `packed`. like: parameters, or their shapes, that are not packed."""
        unpack = getattr(self.network, "unpack", None) if self.form.pair else None
        return parameters if unpack is None else unpack(parameters, like)


def contexts_of(
    config: RunConfig,
    section: Any,
    env: Env,
    total_updates: int,
    network_of: Callable[[DotGeneral], Any],
    summary: Summary | None,
    stage: Stage | None,
    fusion: Fusion | None,
    reduce: Reduce,
    platform: str | None,
) -> tuple[Any, Any]:
    """The contexts of acting, which computes float32 products, and of training, in the configured
    precision. section: the learner's own. network_of: makes the network that computes by some
    products. Raises ConfigError as it does.
    """
    products = dot_general_of(config.compute.precision, platform)
    exact = Context(
        section,
        config.minibatches,
        config.rollout,
        config.network,
        env,
        network_of(FLOAT32),
        total_updates,
        summary,
        stage,
        fusion,
        reduce,
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
    """Raises ConfigError if the network has a memory, and a minibatch cannot hold whole rollouts of
    some environments. section: the learner's name."""
    rollout, count = ctx.rollout, ctx.num_minibatches
    if ctx.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(
            f"network.kind={ctx.settings.kind} has a memory: rollout.num_envs/rollout.num_shards "
            f"({rollout.num_envs // rollout.shards}) must be a multiple of {section}.num_minibatches ({count})"
        )
