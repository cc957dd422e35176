"""The agents of a sweep as arguments of one program: batched environment parameters, tunable
floats, and the rules under which each of them is evaluated.

Leaves that are equal for all agents are shared, above all the market: `vmap` gets an `in_axes` tree
that has 0 for the leaves of which each agent has its own, and None elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.allocate import TASK
from jaxtrade.config.learners import tunable_floats
from jaxtrade.config.load import Agent, agents_of, config_of
from jaxtrade.config.sweep import MOST_AGENTS
from jaxtrade.data.market import Market, MarketSet
from jaxtrade.data.members import member_configs
from jaxtrade.data.splits import Fold, sessions_of
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError
from jaxtrade.runs.agents import RULES, announcement, groups_of
from jaxtrade.training.population import Axes, Stack
from jaxtrade.types import PyTree, SessionSet

# The agents of a walk-forward as arguments of one program: each fold and seed is an agent.
#
# They share the market and all settings. Of their own they have the training sessions of their
# fold, as data, and a key by their seed, which is the same in every fold.


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


SHARED = (
    "market",
    "sessions",
    "advice",
    "forced_start",
    "symbol_weights",
    "monitor",
)  # never an agent's own
OF_CONTRACT = (
    "commission",
    "slippage",
    "min_stop",
    "be_ticks",
)  # of a contract, what a configuration may change


@dataclass(frozen=True)
class Swept:
    """What the agents of a sweep have of their own.

    agents: their settings. configs: of each agent alone. rules: the environment's parameters of
        each agent alone, which
    share the market. params: the parameters of all agents, [N, ...] where two of them differ. axes:
    `in_axes` of
    `params`; None if all leaves are shared. hparams: tunable floats by name, float32[N]. make: the parameters of one
    agent's configuration.
    """

    agents: tuple[Agent, ...]
    configs: tuple[RunConfig, ...]
    rules: tuple[PyTree, ...]
    params: PyTree
    axes: PyTree
    hparams: Mapping[str, np.ndarray]
    make: Callable[[RunConfig], PyTree]

    @cached_property
    def stack(self) -> Stack:
        """The agents along one axis."""
        return Stack((len(self.agents),), (Axes(params=self.axes),), self.agents)


def read_swept(
    config: RunConfig, make: Callable[[RunConfig], PyTree], like: PyTree = None
) -> Swept:
    """The agents of a sweep.

    Args:
        make: the environment's parameters of one agent's configuration.
        like: `axes` of another sweep, whose program these agents are to share: leaves that differ
            there get an axis of agents here too.
    Raises ConfigError if they need more than one program, or a setting is at fault.
    """
    groups = groups_of(config)
    if len(groups) > 1:
        raise ConfigError(
            f"sweep: {announcement(groups)}: train it with `jaxtrade train` or jaxtrade.run, which train "
            "one program after the other"
        )
    agents = agents_of(config)
    configs = tuple(config_of(config, agent) for agent in agents)
    made: dict[str, PyTree] = {}
    for alone in configs:
        if (key := _rules_key(alone)) not in made:
            made[key] = make(alone)
    rules = tuple(made[_rules_key(alone)] for alone in configs)
    params, axes = stacked(rules, like)
    floats = [tunable_floats(alone) for alone in configs]
    hparams = {name: np.array([each[name] for each in floats], np.float32) for name in floats[0]}
    return Swept(agents, configs, rules, params, axes, hparams, make)


def _rules_key(config: RunConfig) -> str:
    return json.dumps(
        config.model_dump(mode="json", include={*RULES, "reward", "allocate", "episode"})
    )


def stacked(each: Sequence[PyTree], like: PyTree = None) -> tuple[PyTree, PyTree]:
    """(trees of all agents as one, `in_axes` of it). Leaves that differ get a leading axis, the
    others stay.

    `in_axes` is None if no leaf differs. like: as in `read_swept`. Raises ValueError if the trees differ in structure,
    static fields, shapes or dtypes, so that one program cannot serve them.
    """
    structures = {jax.tree.structure(tree) for tree in each}
    if len(structures) > 1:
        raise ValueError("the agents' environment parameters differ in structure or static fields")
    own = jax.tree.map(lambda *leaves: _differ(leaves), *each)
    if like is not None:
        own = jax.tree.map(lambda mine, axis: mine or axis == 0, own, like)
    params = jax.tree.map(
        lambda mine, *leaves: jnp.stack(leaves) if mine else leaves[0], own, *each
    )
    return params, jax.tree.map(lambda mine: 0 if mine else None, own) if any(
        jax.tree.leaves(own)
    ) else None


def _differ(leaves: Sequence[Any]) -> bool:
    first, others = leaves[0], [leaf for leaf in leaves if leaf is not leaves[0]]
    if any((leaf.shape, leaf.dtype) != (first.shape, first.dtype) for leaf in others):
        raise ValueError("the agents' environment parameters differ in shapes or dtypes")
    return any(not np.array_equal(leaf, first) for leaf in others)


def own_config(config: RunConfig, swept: Swept | None, index: int, symbol: int | None) -> RunConfig:
    """The configuration by which agent `index` is evaluated. config: of the run on this symbol.

    symbol: the number of the symbol in a set; None for a single one.
    """
    if swept is None:
        return config
    return swept.configs[index] if symbol is None else member_configs(swept.configs[index])[symbol]


def own_params(
    params: PyTree,
    swept: Swept | None,
    index: int,
    market: Market | MarketSet,
    symbol: int | None,
    sessions: SessionSet,
) -> PyTree:
    """`params`, made for the evaluation of a symbol, under the rules of agent `index`: its costs,
    account, brackets and weights. Market, sessions and advice stay.

    market: of the whole run. symbol: as in `own_config`. sessions: any of the symbol.
    """
    if swept is None or swept.axes is None:
        return params
    rules = swept.rules[index]
    if symbol is not None:
        rules = make_params(
            market.members[symbol], sessions, member_configs(swept.configs[index])[symbol]
        )
    elif swept.configs[index].env.task == TASK:
        return rules.replace(**{name: getattr(params, name) for name in SHARED})
    contract = params.contract.replace(
        **{name: getattr(rules.contract, name) for name in OF_CONTRACT}
    )
    return rules.replace(contract=contract, **{name: getattr(params, name) for name in SHARED})
