"""What DQN carries from update to update besides the state that all learners share."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config.dqn import DQNConfig
from jaxtrade.rl.parts import Kind, all_of
from jaxtrade.rl.prioritised import Priorities, no_priorities
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.q.state import QHParams
from jaxtrade.rl.replay import Replay, Ring, empty_replay, ring_of
from jaxtrade.types import Array, PyTree


class HParams(QHParams, struct.PyTreeNode):
    """The tunable floats of DQN; meanings as in `DQNConfig`. They are leaves, so a sweep is a
    vmap.
    """

    tau: Array
    priority_alpha: Array
    priority_beta: Array
    priority_beta_end: Array


class Own(struct.PyTreeNode):
    """`TrainState.own` of DQN.

    target: parameters of the target network. replay: the newest transitions. priorities: of the
        replay's starts; None
    for a uniform replay. since: int32[], environment steps since the last multiple of
    `target_every`, times the gradient steps of an update.

    inherited: the fields that an agent takes over when it goes on from another one (`rl.evolve`).
    """

    inherited: ClassVar[tuple[str, ...]] = ("target",)

    target: PyTree
    replay: Replay
    priorities: Priorities | None
    since: Array

    def kinds(self) -> Own:
        """How these arrays divide between devices (`rl.parts`)."""
        whole = all_of(self, Kind.WHOLE)
        priorities = (
            None
            if self.priorities is None
            else whole.priorities.replace(trees=all_of(self.priorities.trees, Kind.LANES))
        )
        return whole.replace(
            replay=whole.replay.replace(rows=all_of(self.replay.rows, Kind.RING)),
            priorities=priorities,
        )


def ring(ctx: Q, refs: PyTree) -> Ring:
    """The static part of the replay. refs: references [N, ...], or their shapes."""
    config: DQNConfig = ctx.config
    return ring_of(
        refs,
        ctx.env.num_actions,
        config.rows(ctx.rollout),
        ctx.rollout.num_envs,
        ctx.rollout.num_steps,
        ctx.rollout.shards,
        config.n_steps,
    )


def first_own(ctx: Q, parameters: PyTree, refs: PyTree) -> Own:
    """The state before the first update. The target network has memory of its own, because a run
    donates its state.
    """
    of = ring(ctx, refs)
    return Own(
        jax.tree.map(jnp.copy, parameters),
        empty_replay(of, refs),
        no_priorities(of) if ctx.config.replay == "prioritised" else None,
        jnp.int32(0),
    )
