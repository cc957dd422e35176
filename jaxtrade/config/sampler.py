"""The section `sampler` of a configuration."""

from __future__ import annotations

from jaxtrade.config.base import Section


class SamplerConfig(Section, frozen=True):
    """How the symbol of an episode is chosen, in training on several symbols."""
