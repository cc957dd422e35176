"""The section `allocate` of a configuration."""

from __future__ import annotations

from jaxtrade.config.base import Section


class AllocateConfig(Section, frozen=True):
    """The task `allocate`: several symbols held jointly, in one account."""
