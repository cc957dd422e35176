"""How the arrays of a learner's state divide between devices, and the configuration of one part.

The environments of an agent form groups (`rollout.num_shards`). A part holds whole groups, so no
device needs rows of another one: minibatches and samples of a replay take an equal share of every
group.
"""

from __future__ import annotations

import enum
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import PyTree


class Kind(enum.IntEnum):
    """How an array divides. WHOLE: every part has all of it. LANES: its first axis is environments,
    or groups of them.
    RING: its first axis is L rows of time with N environments each, [L N, ...]."""

    WHOLE = 0
    LANES = 1
    RING = 2


def all_of(tree: PyTree, kind: Kind) -> PyTree:
    """`kind` for every array of a tree."""
    return jax.tree.map(lambda _: kind, tree)


def kinds_of(state: TrainState) -> TrainState:
    """The `Kind` of every array of a training state of one agent. state: arrays, or their shapes.

    `own` must have a method `kinds` if a part of it divides.
    """
    lanes = ("env_state", "ref", "first", "carry", "episodes")
    found = all_of(state, Kind.WHOLE).replace(
        **{name: all_of(getattr(state, name), Kind.LANES) for name in lanes}
    )
    if state.rewards is not None:
        found = found.replace(rewards=found.rewards.replace(running=Kind.LANES))
    own = getattr(state.own, "kinds", None)
    return found if own is None else found.replace(own=own())


def part_of(config: RunConfig, parts: int) -> RunConfig:
    """The configuration of one of `parts` equal parts: its share of the environments, groups and
    samples.

    Raises ConfigError if the groups cannot be shared evenly.
    """
    if parts == 1:
        return config
    rollout, learner = config.rollout, config.learner
    if rollout.shards % parts:
        raise ConfigError(
            f"parallel.devices: {parts} devices share the environments of an agent, and they form {rollout.shards} "
            f"groups (rollout.num_shards, at most rollout.num_envs): use a number of devices that divides "
            f"{rollout.shards}, or set rollout.num_shards to a multiple of {parts} that divides rollout.num_envs "
            f"({rollout.num_envs})"
        )
    own = rollout.model_copy(
        update={"num_envs": rollout.num_envs // parts, "num_shards": rollout.shards // parts}
    )
    changes: dict[str, Any] = {}
    if hasattr(learner, "num_minibatches"):
        changes["num_minibatches"] = config.minibatches  # `auto` counts all environments
    for name in ("batch_size", "buffer_size"):
        if hasattr(learner, name):
            changes[name] = getattr(learner, name) // parts
    section = {} if learner is None else {config.algorithm: learner.model_copy(update=changes)}
    return config.model_copy(update={"rollout": own, **section})
