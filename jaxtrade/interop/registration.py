"""Registration of the adapters. Their libraries load only when an adapter is used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from jaxtrade.env.dynamics import MarketEnv
from jaxtrade.errors import ConfigError
from jaxtrade.types import PyTree

if TYPE_CHECKING:
    from jaxtrade.interop.sb3_env import SB3Trading


def register_envs() -> None:
    """Register "jaxtrade/Trading-v0" for `gymnasium.make`, `gymnasium.make_vec` and `gymnax.make`.

    Calling it again has no effect.
    """
    for module in ("gymnasium_env", "gymnax_env"):
        importlib.import_module(
            f"jaxtrade.interop.{module}"
        )  # the import registers the environment


def to_sb3(env: MarketEnv[Any], params: PyTree, num_envs: int) -> SB3Trading:
    """Return `num_envs` environments as one Stable-Baselines3 `VecEnv`.

    It has masks for sb3-contrib's MaskablePPO. Raises ConfigError if stable-baselines3 is
    not installed.
    """
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ConfigError('to_sb3 needs stable-baselines3: pip install "jaxtrade[sb3]"')
    from jaxtrade.interop.sb3_env import SB3Trading

    return SB3Trading(env, params, num_envs)
