"""The only place that builds a `Learner` from a configuration.

To add your own learner, register a `LearnerKind` under a name. The configuration key `algorithm:`
then accepts this name:

    LEARNERS.register("my_learner", LearnerKind(make=make_my_learner, first_policy=my_policy))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL
from jaxtrade.parts import LEARNERS
from jaxtrade.rl.advice import Fusion
from jaxtrade.rl.context import MakeOptions
from jaxtrade.rl.evolve import with_drawn_settings
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, Env, Learner


class OutputLayer(NamedTuple):
    """The layer of a network whose outputs are one number for each action; a transfer can widen it.

    name: its name in the parameters.
    value: name of the layer of V if the layer `name` gives advantages that are centred over all
        actions (a dueling Q-network may lack it).
    held: new actions of a transfer start with the weights of the first action (HOLD), so that the
        greedy policy stays the same; False: with weight zero, and `rl.state` opens them.
    """

    name: str
    value: str = ""
    held: bool = False


class LearnerKind(NamedTuple):
    """An entry of the registry `LEARNERS`.

    make: (config, env, total_updates, **around) as `make_algorithm` -> a `Learner`, of which one
        update takes `rollout.num_envs` x `rollout.num_steps` environment steps. It raises
        ConfigError for an argument that the learner cannot use.
    first_policy: (config, num_actions, observation_size, key, fusion) -> an untrained `Policy`. Its
        structure is the template into which a saved policy is loaded.
    head: None if no run can continue with what the learner has learned. With a head, its state
        must be a `train_state.TrainState`.
    begun(state) -> the first state of a run whose parameters came from another run, with what
        depends on them (a target network) renewed.
    divides: whether `make` takes `reduce` (`networks.reductions.Reduce`), so that several devices
        can share the environments of an agent.
    """

    make: Callable[..., Learner]
    first_policy: Callable[..., Policy]
    head: OutputLayer | None = None
    begun: Callable[[Any], Any] = lambda state: state
    divides: bool = False


def make_algorithm(
    config: RunConfig,
    env: Env,
    total_updates: int,
    **around: Unpack[MakeOptions],
) -> Learner:
    """Build the learner `config.algorithm` on `env`, for a run of `total_updates` updates.

    With `evolve.keys`, its first state has settings that are drawn by its key.

    Args:
        around: `summarise`, `stage`, `fusion`, `reduce`, `platform`, as of `make_ppo`.

    Raises:
        ConfigError: no learner has this name, or the learner does not support an argument.
    """
    learner: LearnerKind = LEARNERS[config.algorithm]
    if around.get("reduce", LOCAL).whole:  # a learner that cannot divide takes no `reduce`
        around.pop("reduce", None)
    elif not learner.divides:
        raise ConfigError(
            f"parallel.devices: the learner {config.algorithm} cannot divide the environments of an "
            "agent between devices; use at most one device for each agent, and parallel.reduce=psum"
        )
    always: MakeOptions = {"summarise": None, "stage": None, "fusion": None}
    made = learner.make(config, env, total_updates, **always | around)
    return with_drawn_settings(made, config)


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """Build the untrained policy of a run of `config`, with empty observation statistics.

    Raises ConfigError.
    """
    learner: LearnerKind = LEARNERS[config.algorithm]
    return learner.first_policy(config, num_actions, observation_size, key, fusion)
