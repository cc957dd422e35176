"""The static context of PPO."""

from __future__ import annotations

from jaxtrade.config import PPOConfig
from jaxtrade.networks.heads import Network
from jaxtrade.rl.context import Context

PPO = Context[PPOConfig, Network]


def gradient_rows(ppo: PPO) -> int:
    """Largest number of rows whose gradient is computed at once."""
    given = ppo.config.gradient_rows
    return ppo.form.gradient_rows if given == "auto" else given
