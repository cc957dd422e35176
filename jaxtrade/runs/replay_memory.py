"""How much memory the replay of DQN takes, from the configuration alone. Imports neither JAX nor
NumPy.

A transition holds two references (before and after the step), the action, the reward and both ends,
packed into words of 32 bits, and two floats of a sum tree if the replay is prioritised. A test
compares this with the arrays themselves.
"""

from __future__ import annotations

from jaxtrade.config import RunConfig
from jaxtrade.config.allocate import TASK, AllocateConfig

COPIES = 2  # the state that trains, and the one to which a run can roll back
# Whole words of a reference: per position, trade record, per advice, and the account that
# `allocate` shows.
LEG_WORDS, RECORD_WORDS, ADVICE_WORDS, ACCOUNT_WORDS = 5, 6, 7, 5
WORD = 32


def transition_bytes(config: RunConfig) -> int:
    """Bytes of one transition. For the shipped tasks; a task of the user's own may store more or
    less.
    """
    symbols = max(len(config.data.markets), 1) if config.env.task == TASK else 1
    words, bits = (
        symbols * (1 + LEG_WORDS),
        8,
    )  # rows and positions; the mask of up to eight actions
    if config.env.task == TASK:
        bits = -(-action_count(config.allocate, symbols) // 8) * 8
        words += ACCOUNT_WORDS if config.allocate.preset == "full" else 0
    if config.env.task == "advised":
        words, bits = words + RECORD_WORDS, bits + 16
    if config.advisor.on:
        members = len(config.advisor.panel)
        words += ADVICE_WORDS * (1 + members)
    stored = (
        2 * words + 1 + -(-(2 * bits + 8 + 2) // WORD)
    )  # both references, reward, small numbers
    return 4 * stored + (8 if config.dqn.replay == "prioritised" else 0)


def action_count(allocate: AllocateConfig, symbols: int) -> int:
    """The number of actions of the task `allocate` with so many symbols."""
    return {"product": 3**symbols, "increment": 2 * symbols + 1, "table": 3}[allocate.actions]


def replay_bytes(config: RunConfig) -> int:
    """Bytes of the replays of all agents, in all copies; 0 for another learner than DQN, and as
    long as the number of environments is not known (`rollout.num_envs=auto` measures each size
    whole)."""
    if config.algorithm != "dqn" or config.rollout.auto:
        return 0
    rows = config.dqn.rows(config.rollout)
    return COPIES * config.agents * rows * config.rollout.num_envs * transition_bytes(config)


def largest_buffer(config: RunConfig, available: float) -> int:
    """The largest `dqn.buffer_size` whose replays fit into `available` bytes; 0 if none does."""
    per_rollout = config.rollout.num_envs * config.rollout.num_steps
    most = (
        int(available / (COPIES * config.agents * transition_bytes(config)))
        // per_rollout
        * per_rollout
    )
    try:
        config.dqn.model_copy(update={"buffer_size": max(most, 0)}).rows(config.rollout)
    except ValueError:
        return 0
    return most


def too_large(config: RunConfig, available: float) -> str:
    """The sentence that refuses a replay which does not fit into `available` bytes."""
    agents, size, largest = config.agents, config.dqn.buffer_size, largest_buffer(config, available)
    whose = f"each of {agents} agents has its own" if agents > 1 else "it is held"
    fewer = "the agents of the sweep" if config.lists_agents else "train.num_seeds"
    several = f" or {fewer}" if agents > 1 else ""
    fits = (
        f"The largest that fits is dqn.buffer_size={largest}"
        if largest
        else ("No replay fits: lower rollout.num_envs or rollout.num_steps" + several)
    )
    lower = f", or lower {fewer}" if largest and agents > 1 else ""
    return (
        f"dqn.buffer_size ({size:,}) at {transition_bytes(config)} bytes per transition; {whose}, in {COPIES} "
        f"copies (one to roll back to). {fits}{lower}"
    )
