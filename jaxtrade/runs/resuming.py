"""What a resumed run may change: nothing that its bits depend on, so the limit of its time alone."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.config import RunConfig
from jaxtrade.config.load import changed_config
from jaxtrade.errors import ConfigError

FREE = ("control.wall_clock",)


def changes_bits(overrides: Sequence[str]) -> list[str]:
    """The overrides `a.b=value` that a resumed run refuses."""
    return [override for override in overrides if override.partition("=")[0].strip() not in FREE]


def time_limit(config: RunConfig, overrides: Sequence[str]) -> float | None:
    """Seconds that a resumed run may take: its own `control.wall_clock`, or that of the overrides.

    Raises ConfigError for another key and for a value that is no time.
    """
    if refused := changes_bits(overrides):
        raise ConfigError(f"{', '.join(refused)}: a resumed run keeps its configuration, except {', '.join(FREE)}; for "
                          "other keys, begin a new run from this one")
    return changed_config(config, overrides).control.wall_clock if overrides else config.control.wall_clock
