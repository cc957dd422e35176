"""Read configurations that earlier versions wrote: rename old keys to today's, convert values whose
unit changed, and write out a key that they lack and whose default is not what they did.

Pure functions of plain values. Only run folders and policy bundles are migrated. In a user's own
file, an old key is an error that gives the new name (`MOVED`), and an old value one that gives the
new value (`config.base.Atrs`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from jaxtrade.config.learners import SECTIONS
from jaxtrade.text import pairs

# Until 2026 the keys of the sections `network` and `rollout` were part of `ppo`.
MOVED = pairs(
    """
    ppo.network  network.kind
    ppo.hidden  network.hidden
    ppo.activation  network.activation
    ppo.rnn_width  network.rnn_width
    ppo.adapter  network.adapter
    ppo.normalise_observations  network.normalise_observations
    ppo.num_envs  rollout.num_envs
    ppo.num_steps  rollout.num_steps
    ppo.num_shards  rollout.num_shards
    """
)


# Until 2026 these were whole thousandths of an ATR. Today they are ATRs, which a run folder always
# holds as a float.
IN_THOUSANDTHS = ("stop_atr", "trail_atr")
_MONTH = re.compile(r"\d{4}-\d\d")


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Today's keys and values for the nested `values` of a run's `config.yaml`. Those of today are
    left unchanged.

    values: read by `read_values(path, exact=True)`, because an int and a float of the same value
        differ in their unit.
    """
    result = copy.deepcopy(dict(values))
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        if isinstance(result.get(section), dict) and key in result[section]:
            target, _, name = new.partition(".")
            result.setdefault(target, {})[name] = result[section].pop(key)
    brackets = result.get("brackets")
    if isinstance(brackets, dict):
        brackets |= {
            key: brackets[key] / 1000 for key in IN_THOUSANDTHS if type(brackets.get(key)) is int
        }
    data = result.get("data")
    if isinstance(data, dict):  # a month alone was read as its first day
        data |= {
            key: f"{data[key]}-01"
            for key in ("start", "end")
            if _MONTH.fullmatch(str(data.get(key)))
        }
    algorithm = result.get("algorithm", "ppo")
    for section in set(SECTIONS) - {algorithm} if algorithm in SECTIONS else ():
        result.pop(section, None)  # defaults that had no effect; those of today may be others
    if isinstance(
        result.get("ppo"), dict
    ):  # a run writes every key: one without this key did not scale its rewards
        result["ppo"].setdefault("normalise_rewards", False)
    result.setdefault("monitor", {}).setdefault(
        "on", False
    )  # a run folder without this section had no monitor
    if isinstance(result.get("advisor"), dict):
        # Trust was measured by the rule that is now called `answers`; `demand` was per chunk,
        # however long it was.
        result["advisor"].setdefault("evidence", "answers")
        result["advisor"].setdefault("demand_per", "chunk")
    return result


def migrated_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Rename old keys in the part `network` of a policy bundle's schema. Today's keys are left
    unchanged.
    """
    result = dict(values)
    if "network" in result:
        result["kind"] = result.pop("network")
    return result
