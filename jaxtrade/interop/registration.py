"""Doors whose libraries load only when they are opened."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError

if TYPE_CHECKING:
    from jaxtrade.interop.sb3_env import SB3Trading


def register_envs() -> None:
    """Make "jaxtrade/Trading-v0" known to `gymnasium.make`, `gymnasium.make_vec` and `gymnax.make`. Harmless twice."""
    for door in ("gymnasium_env", "gymnax_env"):
        importlib.import_module(f"jaxtrade.interop.{door}")  # registers itself


def to_sb3(env: TradingEnv, params: EnvParams, num_envs: int) -> SB3Trading:
    """`num_envs` environments as one Stable-Baselines3 `VecEnv`, with masks for sb3-contrib's MaskablePPO.

    Raises ConfigError where stable-baselines3 is not installed.
    """
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ConfigError('to_sb3 needs stable-baselines3: pip install "jaxtrade[sb3]"')
    from jaxtrade.interop.sb3_env import SB3Trading

    return SB3Trading(env, params, num_envs)
