"""The only place that builds an `Algorithm` from a configuration, and the health checks that
learners share.

To add your own learner, register a `Learner` under a name. The configuration key `algorithm:` then
accepts this name:

    LEARNERS.register("my_learner", Learner(make=make_my_learner, first_policy=my_policy))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.running import Precision
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.parts import LEARNERS
from jaxtrade.rl.evolve import with_drawn_settings
from jaxtrade.rl.listening import Fusion
from jaxtrade.rl.state import Policy
from jaxtrade.types import Algorithm, Array, Env, HealthCheck, Row, Stage, Summary

# What the learners' health checks and warnings share: bounds of a figure over a run, and a rate
# that is too small.

LEAST_RATE = 1e-8  # smaller steps vanish in the rounding of float32 weights
MOST_LOSS = 1e5  # of values, in squared rewards: with rewards of about 1 it is at most about 100


def lowest(name: str, label: str) -> HealthCheck:
    """The lowest value of a metric in the run must be positive."""
    return HealthCheck(
        name,
        label,
        lambda rows: float(np.min([row[name] for row in rows])),
        lambda value: value > 0,
    )


def highest(
    metric: str, label: str, low: float, high: float, name: str | None = None
) -> HealthCheck:
    """The highest value of a metric in the run must be above `low` and at most `high`. name: of the
    check.

    Updates that were not finite are the loop's to judge; in others an undefined value fails.
    """

    def measure(rows: Sequence[Row]) -> float:
        return float(np.max([row[metric] for row in rows if row.get("finite", True)] or [math.nan]))

    def worst(values: Sequence[float]) -> float:
        values = list(values)
        return max(values) if max(values) > high else min(values)

    return HealthCheck(name or metric, label, measure, lambda value: low < value <= high, worst)


# Largest difference between acting and learning before the first gradient step: of a probability
# ratio from 1, about ten times what another order of sums made of trained policies with logits 15 to
# 35 apart (1.0e-5, 2.7e-3, 1.2e-2); of Q values, relative to 1 + |Q|.
ROUNDING: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


def rounding(name: str, label: str, precision: Precision) -> HealthCheck:
    """Acting and learning compute the same up to the rounding of matrix products of a precision.
    name: of the metric that says how far they are apart."""
    return HealthCheck(
        name,
        label,
        lambda rows: max(row[name] for row in rows),
        lambda value: value <= ROUNDING[precision],
        max,
    )


def small_rate(section: str) -> Callable[[Sequence[Row]], str]:
    """The warning about a learning rate that is too small to change any weight. section: of the
    learner, "ppo".
    """

    def look(rows: Sequence[Row]) -> str:
        rate, update = rows[-1]["learning_rate"], rows[-1].get("update")
        if rate >= LEAST_RATE:
            return ""
        at = "" if update is None else f" at update {update}"
        return (
            f"the learning rate is {rate:.1e}{at}: nothing is learnt from here on, because its schedule ends too "
            f"low or something set it to 0; raise {section}.learning_rate and {section}.learning_rate_end"
        )

    return look


__all__ = ["LEARNERS", "Head", "Learner", "Make", "first_policy", "make_algorithm"]


class Make(Protocol):
    """Builds an `Algorithm`. One update takes `rollout.num_envs` x `rollout.num_steps` environment
    steps.

    Arguments as `make_algorithm`. Raises ConfigError for an argument that the learner cannot use.
    """

    def __call__(
        self,
        config: RunConfig,
        env: Env,
        total_updates: int,
        *,
        summarise: Summary | None = None,
        stage: Stage | None = None,
        fusion: Fusion | None = None,
    ) -> Algorithm: ...


class FirstPolicy(Protocol):
    """Builds an untrained policy. Its structure is the template into which a saved policy is
    loaded.
    """

    def __call__(
        self,
        config: RunConfig,
        num_actions: int,
        observation_size: int,
        key: Array,
        fusion: Fusion | None = None,
    ) -> Policy: ...


class Head(NamedTuple):
    """The layer of a network whose outputs are one number for each action, so that a transfer can
    widen it.

    name: its name in the parameters. value: name of the layer of V if the layer `name` gives
        advantages that are
    centred over all actions (a dueling Q-network may lack it). held: new actions of a transfer
    start with the weights of the first action (HOLD), so that the greedy policy stays the same;
    False: with weight zero, and `rl.state` opens them.
    """

    name: str
    value: str = ""
    held: bool = False


class Learner(NamedTuple):
    """An entry of the registry `LEARNERS`.

    head: None if no run can go on with what the learner has learned. With a head, its state must be
        a
    `train_state.TrainState`. begun(state) -> the first state of a run whose parameters came from another run, with what
    depends on them (a target network) renewed. divides: whether `make` takes `reduce` (`networks.reductions.Reduce`),
    so that several devices can share the environments of an agent.
    """

    make: Make
    first_policy: FirstPolicy
    head: Head | None = None
    begun: Callable[[Any], Any] = lambda state: state
    divides: bool = False


def make_algorithm(
    config: RunConfig,
    env: Env,
    total_updates: int,
    *,
    summarise: Summary | None = None,
    stage: Stage | None = None,
    fusion: Fusion | None = None,
    reduce: Reduce = LOCAL,
) -> Algorithm:
    """Build the learner `config.algorithm` on `env`, for a run of `total_updates` updates. With
    `evolve.keys` its first state has settings that are drawn by its key.

    Args:
        summarise: extra metrics, computed from the environment's `info`.
        stage: changes the environment's parameters as the run goes on.
        fusion: combines the policy with advice.
        reduce: forms figures over the parts of a run on several devices; `config` is then that of
            one part.
    Raises:
        ConfigError: no learner has this name, or the learner does not support an argument.
    """
    learner: Learner = LEARNERS[config.algorithm]
    options: dict[str, Any] = {} if reduce.whole else {"reduce": reduce}
    if options and not learner.divides:
        raise ConfigError(
            f"parallel.devices: the learner {config.algorithm} cannot divide the environments of an "
            "agent between devices; use at most one device for each agent, and parallel.reduce=psum"
        )
    make: Any = learner.make
    made = make(
        config, env, total_updates, summarise=summarise, stage=stage, fusion=fusion, **options
    )
    return with_drawn_settings(made, config)


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """The untrained policy of a run of `config`. Its observation statistics are still empty. Raises
    ConfigError.
    """
    learner: Learner = LEARNERS[config.algorithm]
    return learner.first_policy(config, num_actions, observation_size, key, fusion)
