"""The section `monitor` of a configuration."""

from __future__ import annotations

from jaxtrade.config.base import Section


class MonitorConfig(Section, frozen=True):
    """Statistics of every finished training episode, in `monitor.csv` and TensorBoard."""
