"""Tables of the parts that a configuration chooses by name.

Imports neither JAX nor the parts: names are checked early.

A new built-in part is its own module and one row here. A user's part is registered from outside
(`registry.Registry`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jaxtrade.registry import Registry

# The types of the parts live above this module: `env.tasks.base.Task`, `rl.algorithms.LearnerKind`,
# `networks.heads.Network` and `networks.heads.ActionValues` (what makes one),
# `data.features.columns.Feature`, `advisor.host.registry.AdvisorKind`, `evaluation.results_table.Section`,
# `env.rewards.Term`, `env.sampler.Sampler`.
TASKS: Registry[Any] = Registry(
    "task",
    {
        "entry": "jaxtrade.env.tasks.base:ENTRY",
        "manage": "jaxtrade.env.tasks.base:MANAGE",
        "advised": "jaxtrade.env.tasks.base:ADVISED",
        "allocate": "jaxtrade.env.tasks.base:ALLOCATE",
    },
    "env.task",
)

# Features of the decision bar itself that a task shows. Data reads this table, so that it need not
# import tasks.
CONTEXTS: Registry[tuple[str, ...]] = Registry(
    "context",
    {
        "advised": "jaxtrade.data.features.schema:CONTEXT_FEATURES",
        "allocate": "jaxtrade.data.features.schema:DUAL_FEATURES",
    },
)

SAMPLERS: Registry[Any] = Registry(
    "sampler",
    {
        name: f"jaxtrade.env.sampler:{name}"
        for name in ("uniform", "balanced", "round_robin", "prioritised")
    },
    "sampler.kind",
)
LEARNERS: Registry[Any] = Registry(
    "learner",
    {
        "ppo": "jaxtrade.rl.ppo:LEARNER",
        "dqn": "jaxtrade.rl.dqn:LEARNER",
        "pqn": "jaxtrade.rl.pqn:LEARNER",
    },
    "algorithm",
)
NETWORKS: Registry[Any] = Registry(
    "network",
    {
        "mlp": "jaxtrade.networks.heads:make_actor_critic",
        "gru": "jaxtrade.networks.heads:make_actor_critic",
    },
    "network.kind",
)
# Networks of the Q-learners, by the same names.
Q_NETWORKS: Registry[Any] = Registry(
    "Q-network",
    {
        "mlp": "jaxtrade.networks.heads:make_q_network",
        "gru": "jaxtrade.networks.heads:make_q_network",
    },
    "network.kind",
)
# Users' own alone: the built-in features are declared in `data.features.schema`, the built-in
# advisors in `advisor.host.registry`, the built-in sections in `evaluation.results_table`.
FEATURES: Registry[Any] = Registry("feature", {}, "env.features")
ADVISORS: Registry[Any] = Registry("advisor", {}, "advisor.kind", "advisor.panel.kind")
REPORT_SECTIONS: Registry[Any] = Registry("report section", {})
# Terms that read fills of several symbols: of env.task=allocate alone.
OF_SEVERAL = (
    "realised_return",
    "cost_share",
    "turnover",
    "turnover_squared",
    "return_squared",
    "loss_squared",
    "drawdown",
    "drawdown_squared",
    "trades_ordered",
    "position_changed",
)
REWARD_TERMS: Registry[Any] = Registry(
    "reward term",
    {
        name: f"jaxtrade.env.rewards:{name}"
        for name in (
            "equity_change",
            "net_return",
            "closed_profit",
            "win",
            "loss",
            "trail_win",
            "in_position",
            "flat",
            "floor_reached",
            "forced_flat",
            "breakeven_moved",
            "trail_enabled",
            "trail_enabled_in_profit",
            "profit_level",
            "return_level",
            "illegal",
            "illegal_management",
        )
    }
    | {name: f"jaxtrade.env.portfolio.params:{name}" for name in OF_SEVERAL},
    "reward.weights",
)


def find_homes(values: Mapping[str, Any]) -> dict[str, str]:
    """Find the parts of users that a configuration names -> the module of each.

    values: nested plain values. Those of a sweep count too.
    """
    tables = [each for each in globals().values() if isinstance(each, Registry)]
    text = "\n".join(_lines(values))

    def is_named(key: str, name: str) -> bool:
        return bool(re.search(rf"(^|\.){re.escape(f'{key}.{name}')}($|[.:])", text, re.MULTILINE))

    return {
        f"{table.kind} '{name}'": home
        for table in tables
        for name, home in table.homes.items()
        if name in table and any(is_named(key, name) for key in table.keys)
    }


def _lines(value: Any, path: str = "") -> Iterator[str]:
    """Yield `section.key.value` of each plain value; items of a list have the path of the list."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _lines(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _lines(inner, path)
    else:
        yield f"{path}.{value}"
