"""The symbols of a set, `data.markets`: one configuration for each."""

from __future__ import annotations

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.data.contract_file import contract_of

COMMON = "all symbols"  # name of the one group of statistics of a set with network.normalise_per_symbol=false


def member_configs(config: RunConfig) -> tuple[RunConfig, ...]:
    """The configuration of each symbol alone, in the order of `data.markets`; `config` itself where that is empty.

    A member's `data.market` is its symbol, and its `data.per_market` entries have taken the place of the common keys.
    Raises ConfigError for a key of `data.per_market` that does not exist.
    """
    if not config.data.markets:
        return (config,)
    common = config.data.model_dump(mode="json") | {"markets": [], "folder": None, "per_market": {}}
    return tuple(changed_config(config, {"data": common | {"market": symbol} | config.data.per_market.get(symbol, {})})
                 for symbol in config.data.markets)


def symbols_of(config: RunConfig) -> tuple[str, ...]:
    """The symbols that a configuration trains on, in order; one without `data.markets`."""
    return tuple(contract_of(member.data).symbol for member in member_configs(config))


def groups_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the groups of observation statistics, in order: the symbols, or one name where they are common."""
    symbols = symbols_of(config)
    return symbols if len(symbols) == 1 or config.network.normalise_per_symbol else (COMMON,)
