"""The environment and its parameters from a configuration, for all adapters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtrade.config import RunConfig, load_config
from jaxtrade.config.accounts import check_account
from jaxtrade.data.markets import load_markets
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import make_env, make_params
from jaxtrade.errors import ConfigError

ENV_ID = "jaxtrade/Trading-v0"
# Limits of the observation space. Slots are finite but have no natural limits (prices in ATRs, raw
# volumes). Libraries warn about infinite limits, and the difference of much larger limits would
# overflow float32.
LIMIT = 1e30


def load_world(
    config: RunConfig | str = "quickstart", overrides: Iterable[str] = (), split: str = "train"
) -> tuple[Any, Any]:
    """Load the environment and the parameters of one split.

    Args:
        config: a configuration, or the name of a file or of a shipped configuration.
        overrides: "section.key=value" changes; only for a name.
        split: train, validation, test or all.

    Raises:
        ConfigError, DataError: the configuration is invalid, the data cannot be read, or the split
            has no sessions.
    """
    overrides = tuple(overrides)
    if isinstance(config, str):
        config = load_config(config, overrides)
    elif overrides:
        raise ConfigError(
            "overrides apply to the name of a configuration, not to a RunConfig: give them to "
            "load_config"
        )
    check_account(config.account)
    market = load_markets(config)
    splits = split_sessions(market, config.split)
    if split not in splits:
        raise ConfigError(f"split '{split}': there are {', '.join(splits)}")
    if not int(splits[split].count):
        raise ConfigError(
            f"split '{split}': this configuration holds no sessions out for it "
            f"(split.{split}_sessions = 0)"
        )
    return make_env(config), make_params(market, splits[split], config)
