"""Reward presets: named tables of weights of the terms in `env.rewards`.

The module imports no JAX, so that names are checked before JAX loads.
"""

from __future__ import annotations

from jaxtrade.config import RewardConfig
from jaxtrade.errors import ConfigError
from jaxtrade.parts import OF_SEVERAL, REWARD_TERMS
from jaxtrade.text import did_you_mean

_PHASE1 = {
    "closed_profit": 0.01,
    "in_position": -0.01,
    "floor_reached": -10.0,
    "forced_flat": -10.0,
}
_PHASE2 = {
    "breakeven_moved": 0.1,
    "trail_enabled": 0.05,
    "win": 1.0,
    "loss": -0.5,
    "profit_level": 1e-4,
    "floor_reached": -0.1,
    "illegal": -1.0,
}
_PHASE2_FORK = {
    "trail_enabled_in_profit": 0.1,
    "win": 2.0,
    "trail_win": 0.5,
    "loss": -1.0,
    "return_level": 20.0,
    "floor_reached": -10.0,
    "illegal_management": -0.1,
}

REWARDS: dict[str, dict[str, float]] = {
    "equity_change": {"equity_change": 1.0},
    "seed_phase1": _PHASE1,
    "seed_phase1_fork": _PHASE1 | {"flat": 0.001},
    "seed_phase2": _PHASE2,
    "seed_phase2_fork": _PHASE2_FORK,
    "seed_phase3": _PHASE2,
    "seed_phase3_fork": _PHASE2_FORK,
    "jules_net": {"net_return": 1.0},
    "jules_realised": {"realised_return": 1.0},
    "jules_turnover": {"net_return": 1.0, "turnover": -1e-4},
    "jules_v2": {"net_return": 1.0, "turnover_squared": -1e-4, "return_squared": -1.0},
    "jules_drawdown": {"net_return": 1.0, "drawdown_squared": -0.1},
    "jules_downside": {"net_return": 1.0, "loss_squared": -1.0, "position_changed": -1e-5},
}


def of_one_symbol() -> tuple[str, ...]:
    """List the names of the terms that tasks of one symbol take, a user's own included."""
    return tuple(name for name in REWARD_TERMS.names if name not in OF_SEVERAL)


def one_symbol_weights(config: RewardConfig) -> dict[str, float]:
    """Apply `resolve_reward` for tasks of one symbol.

    Also raises ConfigError for a term that only `allocate` has.
    """
    weights = resolve_reward(config)
    if other := [name for name in weights if name in OF_SEVERAL]:
        raise ConfigError(
            f"reward: {', '.join(other)}: needs env.task=allocate; choose other terms or another "
            "reward.preset"
        )
    return weights


def resolve_reward(config: RewardConfig) -> dict[str, float]:
    """Return term -> weight: those of the preset, overridden by the user's.

    Raises ConfigError for an unknown preset or term, and if every weight is 0.
    """
    if config.preset not in REWARDS:
        raise ConfigError(
            f"reward.preset: unknown preset '{config.preset}' (known: {', '.join(REWARDS)})"
            f"{did_you_mean(config.preset, REWARDS)}"
        )
    for name in config.weights:
        try:
            REWARD_TERMS.check(name)
        except ConfigError as error:
            raise ConfigError(f"reward.weights: {error}") from None
    weights = REWARDS[config.preset] | config.weights
    if not any(weights.values()):
        raise ConfigError(
            f"reward.weights: every term of the reward has weight 0 ({', '.join(weights)}); there would "
            "be nothing to learn from: give one a weight"
        )
    return weights
