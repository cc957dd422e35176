"""What a resumed run may change: the limit of its time, and the devices that it trains on."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.config import RunConfig
from jaxtrade.config.load import changed_config
from jaxtrade.errors import ConfigError

# Another number of devices changes bits only with parallel.reduce=psum, where the last digits depend on it.
FREE = ("control.wall_clock", "parallel.devices")


def changes_bits(overrides: Sequence[str]) -> list[str]:
    """The overrides `a.b=value` that a resumed run refuses."""
    return [override for override in overrides if override.partition("=")[0].strip() not in FREE]


def resumed_config(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The configuration of a resumed run, with the overrides.

    Raises ConfigError for another key than those of `FREE`, and for a value that is wrong.
    """
    if refused := changes_bits(overrides):
        raise ConfigError(f"{', '.join(refused)}: a resumed run keeps its configuration, except {', '.join(FREE)}; for "
                          "other keys, begin a new run from this one")
    return changed_config(config, overrides) if overrides else config
