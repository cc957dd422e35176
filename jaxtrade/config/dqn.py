"""The section `dqn` of a configuration."""

from __future__ import annotations

from jaxtrade.config.base import Section


class DQNConfig(Section, frozen=True):
    """DQN with action masks and a replay on the device."""
