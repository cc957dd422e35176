"""Where learners are constructed: every `Algorithm` of a configuration is built here.

A learner of your own is a `Learner` registered under a name, which `algorithm:` then accepts:

    LEARNERS.register("mine", Learner(make=make_mine, first_policy=mine_policy))
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jaxtrade.config import RunConfig
from jaxtrade.parts import LEARNERS
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.state import Policy
from jaxtrade.types import Algorithm, Array, Env, Stage, Summary

__all__ = ["LEARNERS", "Learner", "Make", "first_policy", "make_algorithm"]


class Make(Protocol):
    """Builds an `Algorithm` whose updates take `rollout.num_envs` x `rollout.num_steps` environment steps; arguments as
    `make_algorithm`. Raises ConfigError for one that the learner cannot use."""

    def __call__(self, config: RunConfig, env: Env, total_updates: int, *, summarise: Summary | None = None,
                 precision: str | None = None, stage: Stage | None = None,
                 fusion: Fusion | None = None) -> Algorithm: ...


class FirstPolicy(Protocol):
    """The policy before any learning, for its structure: what a saved policy is read into."""

    def __call__(self, config: RunConfig, num_actions: int, observation_size: int, key: Array,
                 fusion: Fusion | None = None) -> Policy: ...


class Learner(NamedTuple):
    """A part of `LEARNERS`."""

    make: Make
    first_policy: FirstPolicy


def make_algorithm(config: RunConfig, env: Env, total_updates: int, *, summarise: Summary | None = None,
                   precision: str | None = None, stage: Stage | None = None, fusion: Fusion | None = None) -> Algorithm:
    """The learner `config.algorithm` on `env`, for a run of `total_updates` updates.

    Args:
        summarise: extra metrics, from what an environment reports in `info`.
        precision: precision of matrix products, e.g. "highest".
        stage: what the environment's parameters become as the run goes on.
        fusion: how advice meets the policy.
    Raises:
        ConfigError: no such learner, or one that cannot do what is asked.
    """
    learner: Learner = LEARNERS[config.algorithm]
    return learner.make(config, env, total_updates, summarise=summarise, precision=precision, stage=stage,
                        fusion=fusion)


def first_policy(config: RunConfig, num_actions: int, observation_size: int, key: Array,
                 fusion: Fusion | None = None) -> Policy:
    """The policy that a run of `config` begins with, but for its first observations. Raises ConfigError."""
    learner: Learner = LEARNERS[config.algorithm]
    return learner.first_policy(config, num_actions, observation_size, key, fusion)
