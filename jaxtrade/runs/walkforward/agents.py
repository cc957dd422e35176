"""The agents of a walk-forward as arguments of one program: each fold and seed is an agent.

They share the market and all settings. Of their own they have the training sessions of their fold,
as data, and a key by their seed, which is the same in every fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtrade.config import RunConfig
from jaxtrade.config.agents import Agent
from jaxtrade.config.sweep import MOST_AGENTS
from jaxtrade.data.market import Market
from jaxtrade.data.splits import sessions_of
from jaxtrade.data.walks import Fold
from jaxtrade.errors import ConfigError
from jaxtrade.runs.swept import Swept, stacked
from jaxtrade.types import PyTree


def walk_agents(folds: int, seeds: int, first: int) -> tuple[Agent, ...]:
    """The agents: all seeds of the first fold, then of the second, ... `setting` is the fold.
    first: the run's seed.
    """
    return tuple(
        Agent(fold * seeds + i, first + i, fold, {"fold": fold})
        for fold in range(folds)
        for i in range(seeds)
    )


def walked(
    config: RunConfig, market: Market, folds: Sequence[Fold], make: Callable[[RunConfig], PyTree]
) -> Swept | None:
    """The agents of the folds; None without folds.

    make: the environment's parameters of a configuration; its sessions are replaced. Raises
        ConfigError for more agents
    than a run may have.
    """
    if not folds:
        return None
    seeds = config.walk.seeds
    if len(folds) * seeds > MOST_AGENTS:
        raise ConfigError(
            f"walk.seeds={seeds} (--seeds): {len(folds)} folds x {seeds} seeds are more than "
            f"{MOST_AGENTS:,} agents: lower it, raise walk.test (--test), or give fewer sessions "
            "(data.start)"
        )
    agents, params = walk_agents(len(folds), seeds, config.seed), make(config)
    rules = [params.replace(sessions=sessions_of(market, fold.train)) for fold in folds]
    each = tuple(rules[agent.setting] for agent in agents)
    configs = tuple(config.model_copy(update={"seed": agent.seed}) for agent in agents)
    return Swept(agents, configs, each, *stacked(each), {}, make)
