"""Reward presets: named tables of weights over the terms of `env.rewards`. Imports no JAX: names are checked early."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from jaxtrade.config import RewardConfig
from jaxtrade.errors import ConfigError

TERM_NAMES = (  # of the functions in `env.rewards`
    "equity_change", "net_return", "closed_profit", "win", "loss", "trail_win", "in_position", "flat", "floor_reached",
    "forced_flat", "breakeven_moved", "trail_enabled", "trail_enabled_in_profit", "profit_level", "return_level",
    "illegal", "illegal_management")

_PHASE1 = {"closed_profit": 0.01, "in_position": -0.01, "floor_reached": -10.0, "forced_flat": -10.0}
_PHASE2 = {"breakeven_moved": 0.1, "trail_enabled": 0.05, "win": 1.0, "loss": -0.5, "profit_level": 1e-4,
           "floor_reached": -0.1, "illegal": -1.0}
_PHASE2_FORK = {"trail_enabled_in_profit": 0.1, "win": 2.0, "trail_win": 0.5, "loss": -1.0, "return_level": 20.0,
                "floor_reached": -10.0, "illegal_management": -0.1}

REWARDS: dict[str, dict[str, float]] = {
    "equity_change": {"equity_change": 1.0},
    "seed_phase1": _PHASE1,
    "seed_phase1_fork": _PHASE1 | {"flat": 0.001},
    "seed_phase2": _PHASE2,
    "seed_phase2_fork": _PHASE2_FORK,
    "seed_phase3": _PHASE2,
    "seed_phase3_fork": _PHASE2_FORK,
    "jules_net": {"net_return": 1.0},
}


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    if name not in (known := list(names)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"{kind} '{name}' (known: {', '.join(known)}){hint}")


def resolve_reward(config: RewardConfig) -> dict[str, float]:
    """Term -> weight: the preset's, with the user's over them. Raises ConfigError for an unknown preset or term, and
    where every weight is 0.
    """
    _known("reward.preset: unknown preset", config.preset, REWARDS)
    for name in config.weights:
        _known("reward.weights: unknown term", name, TERM_NAMES)
    weights = REWARDS[config.preset] | config.weights
    if not any(weights.values()):
        raise ConfigError(f"reward.weights: every term of the reward has weight 0 ({', '.join(weights)}); there would "
                          "be nothing to learn from: give one a weight")
    return weights
