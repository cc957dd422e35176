"""Configurations of runs that earlier versions made: old keys become today's. Pure functions of plain values.

A user's own file with an old key is refused with the new name (`MOVED`). A run's folder is read as it was written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

# Until 2026 the sections `network` and `rollout` were part of `ppo`.
MOVED = {
    "ppo.network": "network.kind",
    "ppo.hidden": "network.hidden",
    "ppo.activation": "network.activation",
    "ppo.rnn_width": "network.rnn_width",
    "ppo.adapter": "network.adapter",
    "ppo.normalise_observations": "network.normalise_observations",
    "ppo.num_envs": "rollout.num_envs",
    "ppo.num_steps": "rollout.num_steps",
    "ppo.num_shards": "rollout.num_shards",
}


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested `values` of a run's `config.yaml`, of this or an earlier version, with today's keys."""
    result = copy.deepcopy(dict(values))
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        if isinstance(result.get(section), dict) and key in result[section]:
            target, _, name = new.partition(".")
            result.setdefault(target, {})[name] = result[section].pop(key)
    return result


def migrated_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """The part `network` of a policy bundle's schema, of this or an earlier version, with today's keys."""
    result = dict(values)
    if "network" in result:
        result["kind"] = result.pop("network")
    return result
