"""The section `pqn` of a configuration."""

from __future__ import annotations

from jaxtrade.config.base import Section


class PQNConfig(Section, frozen=True):
    """PQN: Q(lambda) without a replay and without a target network."""
